#include "eval/run/decoded.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <map>

#include "engine/common/error.h"
#include "engine/model/utf8.h"
#include "eval/report/table.h"
#include "methods/registry.h"

namespace tandem::eval {

std::vector<MethodEntry> method_entries(const std::vector<std::string>& specs) {
  std::vector<MethodEntry> entries;
  entries.reserve(specs.size());
  for (const std::string& text : specs) {
    if (valid_utf8_bytes(text) != text.size())
      throw_input_error("Method '{}' has a name that is no UTF-8 text: rename its file.", repair_utf8(text));
    const std::unique_ptr<Method> method = make_method(text);
    const MethodSpec spelled = parse_method_spec(method->spelled_out());
    for (const MethodEntry& other : entries) {
      if (other.label == text) throw_input_error("Method '{}' is listed twice.", text);
    }
    const std::uint64_t content = method->content();
    entries.push_back({text, spelled.name, spelled.options, content == 0 ? "" : fmt::format("{:016x}", content)});
  }
  return entries;
}

std::string budget_meanings(const std::vector<MethodEntry>& methods) {
  std::map<std::string, std::string> by_name;
  for (const MethodEntry& entry : methods) by_name[entry.name] = find_method(entry.name).budget;
  std::vector<std::string> parts;
  for (const auto& [name, meaning] : by_name) {
    if (!meaning.empty()) parts.push_back(fmt::format("{}={}", name, meaning));
  }
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ","));
}

std::vector<std::string> method_remarks(const std::vector<MethodEntry>& methods, const std::string& weights_hash) {
  std::vector<std::string> remarks;
  const auto add = [&](std::string text) {
    if (std::find(remarks.begin(), remarks.end(), text) == remarks.end()) remarks.push_back(std::move(text));
  };
  for (const MethodEntry& method : methods) {
    for (const OptionRemark& remark : find_method(method.name).remarks) {
      const std::pair<std::string, std::string> option(remark.option, remark.value);
      const auto& given = method.options;
      if (std::find(given.begin(), given.end(), option) == given.end()) continue;
      add(remark.text);
    }
    const std::string trained = make_method(method.label)->trained_for();
    if (trained.empty() || trained == weights_hash) continue;
    add(fmt::format(
        "{} has what was made for another model of this shape (weights {}; these are {}): its figures are not those of "
        "the method with what was made for this one.",
        method.label, trained, weights_hash));
  }
  return remarks;
}

std::size_t prompt_kv_bytes(const EngineOptions& engine, const Model& model, std::uint32_t tokens) {
  const ModelConfig& c = model.config;
  const KvShape kv{c.layers, c.kv_heads, c.head_dim, engine.precision};
  return blocks_for(tokens) * std::size_t{c.layers} * kv.slot_bytes();
}

void check_device_room(const EngineOptions& engine, const Model& model, std::uint32_t batch, std::uint32_t tokens,
                       const char* lengths) {
  const std::size_t needed = batch * prompt_kv_bytes(engine, model, tokens);
  if (needed <= engine.kv.device_bytes || engine.host_prompts) return;
  throw_input_error(
      "--device-kv is {} bytes, but the prompts of {} of {} tokens need {}: raise it, or lower --batch or {}.",
      engine.kv.device_bytes, counted(batch, "sequence"), tokens, needed, lengths);
}

std::int64_t prefill_ns_of(std::span<const DecodeRequest> requests, const Needs& needs) {
  std::int64_t sum = 0;
  for (const DecodeRequest& request : requests) sum += request.prefix->prefill_ns_for(needs);
  return sum;
}

SampleTiming timing_of(const SampleKey& key, const DecodeResult& result, std::size_t row, std::int64_t prefill_ns,
                       const std::string& clock) {
  const DecodedSequence& decoded = result.sequences[row];
  SampleTiming t{key};
  t.clock = clock;
  t.prefill_ns = prefill_ns;
  CauseTimes causes{};
  for (const StepIdle& step : result.idle.steps) {
    if (step.step == Device::kSetupStep) {
      t.setup_ns = step.window;
      continue;
    }
    const auto took_part = [&](const DecodedSequence& s) {
      return std::binary_search(s.steps.begin(), s.steps.end(), step.step);
    };
    if (!took_part(decoded)) continue;
    const auto& all = result.sequences;
    const auto sharers = static_cast<std::uint64_t>(std::count_if(all.begin(), all.end(), took_part));
    const auto before = static_cast<std::uint64_t>(
        std::count_if(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(row), took_part));
    const auto share = [&](std::uint64_t n) { return n / sharers + (before < n % sharers ? 1 : 0); };
    if (t.steps == 0) {
      t.first_step_ns = step.window;
    } else {
      t.step_ns.push_back(step.window);
    }
    ++t.steps;
    t.window_ns += step.window;
    t.busy_ns += step.busy;
    t.idle_ns += step.idle;
    for (std::size_t c = 0; c < causes.size(); ++c) causes[c] += step.by_cause[c];
    for (const LayerIdle& layer : step.layers) t.layer0_idle_ns += layer.layer == 0 ? layer.idle : 0;
    t.bytes.hbm += share(step.cost.hbm);
    t.bytes.dram += share(step.cost.dram);
    t.bytes.h2d += share(step.cost.h2d);
    t.bytes.d2h += share(step.cost.d2h);
    t.bytes.peer_link += share(step.cost.peer_link);
    t.bytes.peer_hbm += share(step.cost.peer_hbm);
    t.bytes.touched += share(step.cost.touched);
    t.bytes.looked_up += share(step.cost.looked_up);
    t.bytes.missed += share(step.cost.missed);
    t.bytes.late += share(step.cost.late);
    t.bytes.cancelled += share(step.cost.cancelled);
    t.bringing_ns += step.cost.bringing;
    t.waited_ns += step.cost.waited;
    t.flops += share(step.cost.flops);
    t.peer_flops += share(step.cost.peer_flops);
  }
  for (std::size_t c = 0; c < causes.size(); ++c) {
    if (causes[c] != 0) t.idle_by_cause.emplace_back(to_string(static_cast<Cause>(c)), causes[c]);
  }
  t.device_kv_bytes = decoded.peak_kv_bytes[static_cast<int>(Tier::device)];
  t.host_kv_bytes = decoded.peak_kv_bytes[static_cast<int>(Tier::host)];
  t.peer_kv_bytes = decoded.peak_peer_bytes;
  t.tokens_attended_device = decoded.attended[static_cast<int>(Side::device)];
  t.tokens_attended_host = decoded.attended[static_cast<int>(Side::host)];
  return t;
}

}  // namespace tandem::eval
