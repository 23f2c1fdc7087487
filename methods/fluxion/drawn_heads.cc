#include "methods/fluxion/drawn_heads.h"

#include <bit>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/common/drawing.h"
#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "methods/fluxion/predicted_heads.h"

namespace tandem {
namespace {

double uniform(std::uint64_t hash) {  // in (0, 1)
  return (double(hash >> 11) + 0.5) * 0x1p-53;
}

/// Standard normal (Box and Muller).
double normal(std::uint64_t key) {
  const std::uint64_t hash = mix64(key);
  return std::sqrt(-2 * std::log(uniform(hash))) * std::cos(2 * M_PI * uniform(mix64(hash)));
}

class DrawnHeads : public HeadSource {
 public:
  DrawnHeads(const HeadSpreads& spreads, BudgetPolicy policy)
      : spreads_(spreads), rule_(spreads.rules[static_cast<std::size_t>(policy)]) {}

  // A predictor looks at the context once; what is drawn has no use for it, but costs the same.
  std::uint32_t last_queries() const override { return 1; }
  std::shared_ptr<void> prepare(SequenceState& sequence, Range host, Ops& ops) const override {
    if (host.begin < host.end) ops.use<ContextViews>().show(sequence, statistics_request(ops.shape(), sequence.tokens));
    return nullptr;
  }

  std::size_t kept_bytes(const ModelShape& shape) const override {
    return shape.layers * layer_statistics_bytes(shape);
  }
  Cost cost(const ModelShape& shape, std::uint32_t rows) const override {
    const std::uint64_t parameters = spreads_.predictor_parameters, heads = std::uint64_t{rows} * shape.q_heads;
    return prediction_cost(shape, rows, 2 * parameters * heads, parameters * sizeof(float));
  }

  void properties(const ModelShape& shape, const HeadInputs& inputs, HeadProperties* out) const override {
    const HeadView& view = inputs.view;
    const std::uint32_t group = shape.group();
    const std::uint64_t now = mix64(sequence(shape, inputs) ^ mix64(view.tokens));
    for (std::uint32_t h = 0; h < shape.q_heads; ++h) {
      // A KV group's part is drawn as that of a head that no group has.
      const double shared = need(view.layer, shape.q_heads + h / group, now), own = need(view.layer, h, now);
      const double z = std::sqrt(spreads_.group) * shared + std::sqrt(1 - spreads_.group) * own;
      const double above = normal_below(-z);
      const double budget = -rule_.mean * std::log(above);
      out[h].budget = static_cast<float>(budget);
      out[h].slope = static_cast<float>(rule_.growth * budget);
      out[h].streaming = 1 - above < rule_.streaming;
    }
  }

 private:
  /// What tells sequences apart, whatever else is in the batch: their queries, whose bits depend on the sequence alone,
  /// and where there are none, their numbers.
  static std::uint64_t sequence(const ModelShape& shape, const HeadInputs& inputs) {
    if (inputs.view.query == nullptr) return mix64(inputs.request);
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < std::size_t{shape.q_heads} * shape.head_dim; ++i)
      hash = mix64(hash ^ std::bit_cast<std::uint32_t>(inputs.view.query[i]));
    return hash;
  }

  double need(std::uint32_t layer, std::uint32_t head, std::uint64_t now) const {
    const std::uint64_t of_head = mix64(std::uint64_t{layer} << 32 | head);
    return std::sqrt(spreads_.lasting) * normal(of_head) +
           std::sqrt(1 - spreads_.lasting) * normal(mix64(of_head ^ now));
  }

  HeadSpreads spreads_;
  HeadSpread rule_;
};

}  // namespace

HeadSpreads parse_head_spreads(const std::string& text, const std::string& file) {
  HeadSpreads spreads;
  const auto share = [&](const nlohmann::json& json, const std::string& path, const char* field, double most) {
    const double value = json.at(field).get<double>();
    if (!(value >= 0 && value <= most))
      throw_input_error("{}: {}{} is {}; it must lie between 0 and {}.", file, path, field, value, most);
    return value;
  };
  const auto spread = [&](const nlohmann::json& from, const std::string& path) {
    return HeadSpread{share(from, path, "mean", 1), share(from, path, "growth", 10), share(from, path, "streaming", 1)};
  };
  try {
    const nlohmann::json json = parse_json(text, file);
    spreads.name = json.at("name").get<std::string>();
    spreads.source = json.at("source").get<std::string>();
    spreads.group = share(json, "", "group", 1);
    spreads.lasting = share(json, "", "lasting", 1);
    spreads.predictor_parameters = json.at("predictor_parameters").get<std::uint64_t>();
    for (std::size_t i = 0; i < kBudgetPolicies; ++i) {
      const std::string rule(kBudgetPolicyNames[i]), path = "rules." + rule + ".";
      spreads.rules[i] = spread(json.at("rules").at(rule), path);
    }
    for (const nlohmann::json& at : json.at("errors")) {
      const double error = share(at, "errors.", "error", 1);
      spreads.errors[error] = spread(at, "errors.");
    }
  } catch (const nlohmann::json::exception& e) {
    throw_input_error("{} does not say how heads are spread: {}.", file, e.what());
  }
  return spreads;
}

HeadSpreads at_error(HeadSpreads spreads, double error) {
  const auto found = spreads.errors.find(error);
  if (found == spreads.errors.end()) {
    std::vector<std::string> known;
    known.reserve(spreads.errors.size());
    for (const auto& [e, spread] : spreads.errors) known.push_back(fmt::format("{}", e));
    throw_input_error("{} says nothing of heads at an error of {}: there are {}.", spreads.name, error,
                      join_names(known));
  }
  spreads.rules[static_cast<std::size_t>(BudgetPolicy::fluxion)] = found->second;
  return spreads;
}

HeadSpreads published_head_spreads() {
  const std::filesystem::path file = data_path("hardware/workloads/fluxion-heads.json");
  return parse_head_spreads(read_file(file), file.string());
}

std::shared_ptr<const HeadSource> drawn_heads(const HeadSpreads& spreads, BudgetPolicy policy) {
  return std::make_shared<DrawnHeads>(spreads, policy);
}

}  // namespace tandem
