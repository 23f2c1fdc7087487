#include <algorithm>
#include <cctype>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "engine/device/cost_model.h"
#include "engine/model/model.h"
#include "engine/model/presets.h"
#include "engine/runtime/layer_costs.h"
#include "eval/predict/text.h"
#include "eval/validate/validation.h"

namespace tandem::eval {
namespace {

constexpr double kDecodeRows = 256;  // products of more rows are a prefill's
constexpr std::uint64_t kVectorBytes = 2;
constexpr std::uint64_t kMostTokens = 1 << 28;  // of a batch

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

/// Whether `name` stands in `text` as words of its own: no "RTX 4090" in "RTX 4090D".
bool names(const std::string& text, const std::string& name) {
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

/// 16-bit weights and KV: a text that says so and names no other format, or none.
bool is_16_bit(const std::string& precision) {
  const std::string text = lower(precision);
  const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  for (const char* other : {"fp8", "f8", "fp4", "gf4", "int", "q4", "q8", "4-bit", "8-bit", "w4a", "w8a", "awq", "gptq",
                            "quantised weights"})
    if (has(other)) return false;
  return text.empty() || has("f16") || has("fp16") || has("16-bit");
}

/// Nanoseconds of an operation that runs alone.
double kernel_ns(const HardwareProfile& hardware, const Cost& cost) {
  LaneInfo lane;
  lane.kind = cost.h2d > 0 ? LaneKind::h2d : cost.d2h > 0 ? LaneKind::d2h : LaneKind::device_compute;
  const Phases phases = CostModel(hardware).phases(cost, lane);
  return static_cast<double>(phases.fixed + phases.flow);
}

/// Sets prediction and range. `amount`: bytes or tokens of a rate; 0 for a time.
void set_prediction(Comparison& c, double ns, const TimeRange& range, double amount) {
  c.predicted = amount > 0 ? amount / ns : ns;
  c.low = amount > 0 ? c.predicted / range.high : c.predicted * range.low;
  c.high = amount > 0 ? c.predicted / range.low : c.predicted * range.high;
}

/// Some machine with this link of hardware/links.
HardwareProfile profile_with_link(const char* link) {
  const std::string file = data_path("hardware/profiles/b200.json").string();
  nlohmann::json json = parse_json(read_file(file), file);
  json["link"] = {{"of", link}};
  return parse_profile(json_text(json), link, file);
}

std::uint64_t whole(double number) {
  return static_cast<std::uint64_t>(std::llround(number));
}

void skip(Comparison& c, std::string why) {
  c.use = Use::skipped;
  c.why = std::move(why);
}

/// Sets what is predicted and its range. `time`: ns on a profile; `bytes`: of a rate, else 0.
void predict_time(Comparison& c, const HardwareProfile& hardware,
                  const std::function<double(const HardwareProfile&)>& time, double bytes = 0) {
  set_prediction(c, time(hardware), range_of(hardware, time), bytes);
}

const HardwareProfile& profile_on(Predictor& by, const std::string& device) {
  if (!by.profiles.contains(device)) by.profiles[device] = profile_of_device(device);
  return by.profiles[device];
}

void predict_kernel(Predictor& by, Comparison& c, const Cost& cost) {
  predict_time(c, profile_on(by, c.device), [&](const HardwareProfile& h) { return kernel_ns(h, cost); });
}

void decode_attention(Predictor& by, Comparison& c, const DeviceFacts* device) {
  const std::optional<HeadShape> shape = head_shape(c.point);
  if (!shape || !c.point.batch || !c.point.context) return skip(c, "its heads, batch or context are not given");
  const std::uint64_t batch = whole(*c.point.batch), context = whole(*c.point.context);
  if (batch * context > kMostTokens) return skip(c, "its batch or context is out of range");
  Cost cost;
  cost.work = Work::attention;
  cost.hbm = query_bytes(batch, shape->q_heads, shape->head_dim);
  add_decode_attention(cost, batch * context * shape->kv_heads, kVectorBytes * shape->head_dim,
                       shape->q_heads / shape->kv_heads, shape->head_dim);
  c.what = batch == 1 ? "attention, batch 1" : "decode attention";
  predict_kernel(by, c, cost);
  if (static_cast<double>(cost.context) < 1e6 * device->l2_mb) c.use = Use::in_cache;
}

void product(Predictor& by, Comparison& c, const DeviceFacts* /*device*/) {
  const std::optional<MatrixShape> shape = matrix_shape(c.point);
  const std::optional<double> rows = c.point.batch ? c.point.batch : c.point.tokens;
  if (!shape || !rows) return skip(c, "its matrix or its rows are not given");
  const bool decode = *rows <= kDecodeRows;
  Cost cost;
  cost.work = decode ? Work::weights : Work::gemm;
  const std::uint64_t weights = 2 * shape->outputs * shape->inputs;
  add_product(cost, whole(*rows), shape->outputs, shape->inputs, weights);
  c.what = decode ? "decode product" : "prefill product";
  predict_kernel(by, c, cost);
}

void prefill_attention(Predictor& by, Comparison& c, const DeviceFacts* /*device*/) {
  const std::optional<HeadShape> shape = head_shape(c.point);
  if (!shape || !c.point.tokens) return skip(c, "its heads or its tokens are not given");
  const std::uint64_t rows = whole(*c.point.tokens), before = whole(c.point.prefix_tokens.value_or(0)),
                      batch = whole(c.point.batch.value_or(1));
  Cost cost;
  cost.work = Work::prefill_attention;
  if (batch * (before + rows) > kMostTokens) return skip(c, "its tokens are out of range");
  for (std::uint64_t i = 0; i < batch; ++i)
    add_prefill_attention(cost, before, rows, shape->q_heads, shape->head_dim,
                          (before + rows) * shape->kv_heads * 2 * kVectorBytes * shape->head_dim);
  c.what = "prefill attention";
  predict_kernel(by, c, cost);
}

void transfer(Predictor& by, Comparison& c, const DeviceFacts* device) {
  static constexpr std::pair<const char*, const char*> kLinks[] = {{"GB200", "nvlink-c2c-gb"},
                                                                   {"GB300", "nvlink-c2c-gb"},
                                                                   {"PCIe 4", "pcie4-x16"},
                                                                   {"PCIe 5", "pcie5-x16"},
                                                                   {"NVLink-C2C", "nvlink-c2c"}};
  const auto* link =
      std::ranges::find_if(kLinks, [&](const auto& l) { return c.point.hardware.find(l.first) != std::string::npos; });
  if (link == std::end(kLinks)) return skip(c, "its link's generation is not given");
  if (c.point.submission == "raw") return skip(c, "it is of a link's hardware alone, without its driver");
  if (c.point.hardware.find("x8") != std::string::npos) return skip(c, "its link has 8 lanes");
  const bool rate = unit_kind(c.point) == UnitKind::bytes_per_second;
  if (!rate && !c.point.transfer_bytes) return skip(c, "it has a time and no bytes");
  constexpr double kLong = 1 << 30;  // bytes of one piece where a source says nothing
  const double piece = c.point.transfer_bytes.value_or(kLong), pieces = c.point.descriptors.value_or(1);
  if (piece * pieces > 1e13) return skip(c, "its pieces are out of range");
  const bool back = c.point.kind == "d2h_transfer" || c.point.metric.find("D2H") != std::string::npos;
  if (back && c.point.submission == "zero_copy")
    return skip(c, "a kernel writes to the host, for which there is no curve");
  Cost cost;
  const auto bytes = static_cast<std::uint64_t>(piece * pieces);
  (back ? cost.d2h : cost.h2d) = bytes;
  cost.pieces = static_cast<std::uint32_t>(pieces);
  cost.gathered = c.point.submission == "zero_copy" && !back;
  // A GPU's own profile may have a rate of its own: Hopper's kernels read the host more slowly than Blackwell's.
  const bool own = device != nullptr && device->link == link->second;
  HardwareProfile hardware = own ? profile_on(by, device->name) : profile_with_link(link->second);
  hardware.host.dram_gbps = 1e4;  // the link alone
  hardware.ranges.erase("host.dram_gbps");
  c.device = link->second;
  c.what = cost.gathered ? "zero-copy read" : back ? "copy to the host" : "copy to the device";
  if (c.point.unit.ends_with("per call")) c.use = Use::upper_bound;  // with the launch of a kernel, or more of them
  // A call for each piece: they overlap with the copies before them, so that the slower of the two counts.
  const double calls = c.point.submission == "dma_loop" ? pieces : 0;
  const auto time = [&](const HardwareProfile& h) {
    return std::max(kernel_ns(h, cost), calls * static_cast<double>(h.device.launch_ns));
  };
  predict_time(c, hardware, time, rate ? static_cast<double>(bytes) : 0);
}

const Predictor::Step& step(Predictor& by, const std::string& device, const std::string& preset, std::uint32_t batch,
                            std::uint32_t context, const LayerTime& engine, bool first) {
  const std::string key = fmt::format("{} {} {} {} {} {}", device, preset, batch, context, engine.ns, first);
  if (const auto found = by.steps.find(key); found != by.steps.end()) return found->second;
  Predictor::Step out;
  Model shape = load_shape(preset);
  HardwareProfile hardware = profile_on(by, device);
  hardware.device.layer_ns = engine.ns;
  if (engine.ns > 0) hardware.ranges["device.layer_ns"] = engine.range;
  constexpr std::uint32_t kSteps = 3;
  shape.config.max_positions = std::max(shape.config.max_positions, context + kSteps);
  // Unchecked: the schedule of full is, in each sweep.
  const PredictionOptions options{.methods = {"full"},
                                  .batch = batch,
                                  .context = context,
                                  .steps = kSteps,
                                  .threads = 1,
                                  .checked = false,
                                  .ranges = !first};
  const auto row_on = [&](const HardwareProfile& h) { return predict(shape, h, by.workload, options).rows.at(0); };
  const auto first_token = [&](const HardwareProfile& h) {
    const PredictedRow row = row_on(h);
    return row.prefill_ms + row.first_step_ms;
  };
  try {
    const PredictedRow row = row_on(hardware);
    out.refused = row.refused;
    if (row.refused.empty() && first)
      out = {row.prefill_ms + row.first_step_ms, range_of(hardware, first_token), ""};
    else if (row.refused.empty())
      out = {row.step_ms, {row.step_low_ms / row.step_ms, row.step_high_ms / row.step_ms, row.widest_range}, ""};
  } catch (const InputError& e) {
    out.refused = e.what();
  }
  return by.steps.emplace(key, std::move(out)).first->second;
}

void whole_step(Predictor& by, Comparison& c, const DeviceFacts* /*device*/) {
  const std::string preset = preset_of(c.point.model);
  if (preset.empty()) return skip(c, "its model has no preset");
  const bool first = c.point.kind == "first_token";
  const bool serving =
      c.point.kind == "serving_end_to_end" || c.point.metric.find("prefill included") != std::string::npos;
  std::optional<double> context = c.point.context;
  if (!context && c.point.prompt_tokens) context = *c.point.prompt_tokens + c.point.generated_tokens.value_or(0) / 2;
  if (first && c.point.prompt_tokens) context = c.point.prompt_tokens;
  if (!c.point.batch || !context) return skip(c, "its batch or context is not a number");
  const auto batch = static_cast<std::uint32_t>(std::max(1LL, std::llround(*c.point.batch))),
             tokens = static_cast<std::uint32_t>(std::max(2LL, std::llround(*context)));
  if (batch > 1024 || tokens > 1 << 20) return skip(c, "its batch or context is out of range");
  const auto engine =
      std::ranges::find_if(by.engines, [&](const auto& e) { return c.point.engine.starts_with(e.first); });
  if (engine != by.engines.end()) c.level = "a published engine";
  const Predictor::Step& predicted =
      step(by, c.device, preset, batch, tokens, engine == by.engines.end() ? LayerTime{} : engine->second, first);
  if (!predicted.refused.empty())
    return skip(c, predicted.refused.substr(0, predicted.refused.find_last_not_of('.') + 1));
  c.what = first ? "first token" : serving ? "serving step" : "decode step";
  c.layers = preset_config(preset).layers;
  if (serving) c.use = Use::upper_bound;
  set_prediction(c, predicted.ms * 1e6, predicted.range,
                 unit_kind(c.point) == UnitKind::tokens_per_second ? 1e9 * batch : 0);
}

void predict_point(Predictor& by, Comparison& c) {
  struct Kind {
    std::string_view name;
    void (*predict)(Predictor&, Comparison&, const DeviceFacts*);
    UnitKind rate;  // that its unit may be beside a time
  };
  static constexpr Kind kKinds[] = {{"decode_attention_kernel", decode_attention, UnitKind::time},
                                    {"gemm_kernel", product, UnitKind::time},
                                    {"linear_op", product, UnitKind::time},
                                    {"prefill_attention_kernel", prefill_attention, UnitKind::time},
                                    {"h2d_transfer", transfer, UnitKind::bytes_per_second},
                                    {"d2h_transfer", transfer, UnitKind::bytes_per_second},
                                    {"decode_end_to_end", whole_step, UnitKind::tokens_per_second},
                                    {"serving_end_to_end", whole_step, UnitKind::tokens_per_second},
                                    {"first_token", whole_step, UnitKind::time}};
  const MeasuredPoint& point = c.point;
  const auto* const kind = std::ranges::find(kKinds, point.kind, &Kind::name);
  const bool known = kind != std::end(kKinds), transfers = known && kind->rate == UnitKind::bytes_per_second;
  if (point.gpus != 1 && !transfers) return skip(c, point.gpus == 0 ? "no GPU is part of it" : "it is of several GPUs");
  if (!known) return skip(c, fmt::format("nothing here predicts the kind {}", point.kind));
  const DeviceFacts* device = device_in(by.devices, point.hardware);
  if (device == nullptr && !transfers) return skip(c, "hardware/devices has no such GPU");
  if (device != nullptr) c.device = device->name;
  const UnitKind measures = unit_kind(point);
  if (measures != UnitKind::time && measures != kind->rate)
    return skip(c, fmt::format("the unit '{}' is none of {}", point.unit, point.kind));
  if (!transfers && !is_16_bit(point.precision)) return skip(c, "its weights or KV have other than 16 bits");
  c.use = Use::compared;
  c.calibrated = std::ranges::find(by.calibration, std::pair(point.hardware, point.engine)) != by.calibration.end();
  kind->predict(by, c, device);
  for (const Predictor::Apart& group : by.apart) {
    if (c.use != Use::compared || point.hardware != group.hardware || !point.engine.starts_with(group.engine) ||
        !point.kind.starts_with(group.kind) || !point.model.starts_with(group.model))
      continue;
    c.use = Use::apart;
    c.why = group.why;
  }
}

}  // namespace

double Comparison::error() const {
  return unit_kind(point) == UnitKind::time ? predicted / point.value - 1 : point.value / predicted - 1;
}

const DeviceFacts* device_in(const std::vector<DeviceFacts>& devices, const std::string& hardware) {
  // Variants with other memory or clocks than the devices that they are named after.
  for (const char* variant : {"40GB", "NVL", "Laptop", "SUPER", "Max-Q", "MIG"})
    if (names(hardware, variant)) return nullptr;
  const DeviceFacts* best = nullptr;
  std::size_t longest = 0;
  for (const DeviceFacts& device : devices) {
    for (const std::string& name : device.hardware) {
      if (name.size() <= longest || !names(hardware, name)) continue;
      best = &device;
      longest = name.size();
    }
  }
  return best;
}

// Full attention chooses nothing, but a prediction has a workload.
Predictor::Predictor() : devices(device_facts()), workload(shipped_workload("published")) {
  const nlohmann::json split = validation_file("split.json");
  for (const auto& group : split.at("calibration"))
    calibration.emplace_back(group.at(0).get<std::string>(), group.at(1).get<std::string>());
  for (const auto& group : split.at("apart"))
    apart.push_back({group.at("hardware").get<std::string>(), group.at("engine").get<std::string>(),
                     group.value("kind", ""), group.value("model", ""), group.at("why").get<std::string>()});
  engines = published_engines();
}

Comparison Predictor::compare(const MeasuredPoint& point) {
  Comparison c;
  c.point = point;
  predict_point(*this, c);
  const std::optional<double> ns = nanoseconds(point);
  if (c.use != Use::skipped && ns)
    for (double* value : {&c.predicted, &c.low, &c.high}) *value *= point.value / *ns;  // in the point's unit
  return c;
}

}  // namespace tandem::eval
