#include "eval/reproduce/asyncspade.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

// Where the cache rank is slower than the step its delay grows over the first steps: only the last ones count.
constexpr std::uint32_t kSteps = 48, kCounted = 8;
constexpr double kMs = 1e-6;  // of a nanosecond

/// Selections of asyncspade and tova do not depend on what is chosen, quest's on how many pages: any workload serves.
Workload plain_workload(const Model& shape) {
  Workload workload;
  workload.name = "all heads alike";
  workload.source = "no time here depends on it";
  workload.layers.assign(shape.config.layers, std::vector<HeadWorkload>(shape.config.q_heads));
  return workload;
}

TargetOptions target_options(const ReproduceOptions& options, std::string method, std::uint32_t batch,
                             std::uint32_t context) {
  TargetOptions target;
  target.methods = {std::move(method)};
  target.batch = batch;
  target.context = context;
  target.steps = kSteps;
  target.threads = options.threads;
  target.interrupted = options.interrupted;
  return target;
}

SpadeTimes times_of(const DecodeResult& result, const SpadePack& pack, std::uint32_t layers) {
  SpadeTimes times;
  const double packs = double(layers) / pack.layers;
  Nanos busy = 0, management = 0, transfer = 0;
  for (const LayerIdle& layer : result.idle.decode.layers) busy += layer.layer < layers ? layer.busy : 0;
  double messages = 0;
  for (const TraceRecord& r : result.trace.records) {
    if (r.start < result.trace.steps.front().end) continue;  // setup, one sequence at a time
    const std::string_view name = r.name;
    if (name == "selection from peer") {  // the last step's queries are sent, and nothing is chosen any more
      transfer += r.end - r.start;
      ++messages;
    }
  }
  std::size_t counted = 0;
  for (const TraceRecord& r : result.trace.records) {
    if (r.start < result.trace.steps.front().end || std::string_view(r.name) != "select ahead") continue;
    if (double(counted++) < messages) management += r.end - r.start;
  }
  times.inference_ms = double(busy) * kMs / kSteps / packs;
  times.management_ms = double(management) * kMs / messages;
  times.transfer_ms = double(transfer) * kMs / messages;
  return times;
}

struct StepTimes {
  double step_ms = 0, idle_ms = 0;
};

/// Means over the last steps.
StepTimes last_steps_of(const DecodeResult& result) {
  StepTimes times;
  for (const StepIdle& step : result.idle.steps) {
    if (step.step == Device::kSetupStep || step.step < kSteps - kCounted) continue;
    times.step_ms += double(step.window) * kMs / kCounted;
    times.idle_ms += double(step.idle) * kMs / kCounted;
  }
  return times;
}

/// Bytes over bandwidth, as the profile's datasheet has it.
SpadeTimes roofline_of(const SpadePack& pack, const Model& shape, const HardwareProfile& hardware) {
  const ModelConfig& c = shape.config;
  const double h = c.hidden, q = double(c.q_heads) * c.head_dim, kv = double(c.kv_heads) * c.head_dim;
  const double weights = 2 * (2 * h * q + 2 * h * kv + 3 * h * c.intermediate);  // bf16
  const double selected = 4 * kv * pack.batch * pack.selected;                   // K and V
  const double keys = 2 * kv * pack.batch * pack.context;
  SpadeTimes times;
  const double per_ms = hardware.device.hbm_gbps * 1e6;
  times.inference_ms = pack.layers * (weights + selected) / per_ms;
  times.management_ms = pack.layers * (keys + 2 * selected) / per_ms;
  times.transfer_ms = pack.layers * selected / (hardware.peer.gbps * 1e6);
  return times;
}

std::string ms(double value) {
  return fmt::format("{:.2f}", value);
}

std::string percent(double share) {
  return fmt::format("{:+.0f} %", 100 * share);
}

}  // namespace

const std::vector<SpadePack>& spade_table2() {
  static const std::vector<SpadePack> rows = {{"qwen3-8b", 8, 32768, 2048, "a100", 6, 7.13, 6.42, 107.71},
                                              {"qwen3-8b", 8, 32768, 2048, "a100", 12, 14.26, 12.75, 107.71},
                                              {"qwen3-8b", 8, 32768, 2048, "h100", 6, 5.47, 3.92, 140.40},
                                              {"qwen3-8b", 8, 32768, 2048, "h100", 12, 10.94, 7.85, 140.40},
                                              {"qwen3-8b", 16, 16384, 1024, "a100", 6, 7.30, 7.02, 105.20},
                                              {"qwen3-8b", 16, 16384, 1024, "a100", 12, 14.60, 14.43, 105.20},
                                              {"qwen3-8b", 16, 16384, 1024, "h100", 6, 5.91, 5.18, 129.94},
                                              {"qwen3-8b", 16, 16384, 1024, "h100", 12, 11.82, 11.14, 129.94},
                                              {"qwen3-32b", 8, 32768, 2048, "a100", 4, 6.30, 5.16, 159.49},
                                              {"qwen3-32b", 8, 32768, 2048, "a100", 8, 12.60, 8.32, 159.49},
                                              {"qwen3-32b", 8, 32768, 2048, "h100", 4, 4.39, 3.74, 228.88},
                                              {"qwen3-32b", 8, 32768, 2048, "h100", 8, 8.78, 7.48, 228.88},
                                              {"qwen3-32b", 16, 16384, 1024, "a100", 4, 7.77, 7.02, 129.32},
                                              {"qwen3-32b", 16, 16384, 1024, "a100", 8, 15.54, 14.01, 129.32},
                                              {"qwen3-32b", 16, 16384, 1024, "h100", 4, 4.37, 3.72, 229.93},
                                              {"qwen3-32b", 16, 16384, 1024, "h100", 8, 8.74, 7.48, 229.93}};
  return rows;
}

std::vector<std::string> spade_names() {
  return {"asyncspade-table2", "asyncspade-fig10"};
}

SpadeRow simulate_spade_pack(const SpadePack& pack, const ReproduceOptions& options) {
  const Model shape = load_shape(pack.model);
  const HardwareProfile hardware = load_profile(fmt::format("asyncspade-{}", pack.gpu));
  SpadeRow row{pack, {}, roofline_of(pack, shape, hardware), 0, 0};
  TargetOptions target =
      target_options(options, fmt::format("asyncspade:place=peer,budget={},pack={}", pack.selected, pack.layers),
                     pack.batch, pack.context);
  target.look = [&](const DecodeResult& result) {
    row.ours = times_of(result, pack, shape.config.layers);
    const StepTimes times = last_steps_of(result);
    row.step_ms = times.step_ms;
    row.idle_ms = times.idle_ms;
  };
  const TargetRow found = simulate_target(shape, hardware, plain_workload(shape), target).rows.at(0);
  if (!found.refused.empty()) throw_run_error("{} on {}: {}", pack.model, pack.gpu, found.refused);
  return row;
}

std::vector<SpadeRow> reproduce_spade_table2(const ReproduceOptions& options) {
  std::vector<SpadeRow> rows;
  rows.reserve(spade_table2().size());
  for (const SpadePack& pack : spade_table2()) {
    if (options.progress)
      options.progress(rows.size(), spade_table2().size(), fmt::format("{} on {}", pack.model, pack.gpu));
    rows.push_back(simulate_spade_pack(pack, options));
  }
  return rows;
}

std::vector<SpadeBar> reproduce_spade_fig10(const ReproduceOptions& options) {
  constexpr std::uint32_t kBatch = 8, kContext = 32768, kBars = 16;
  std::vector<SpadeBar> bars;
  bars.reserve(kBars);
  for (const std::string gpu : {"a100", "h100"}) {
    const HardwareProfile hardware = load_profile("asyncspade-" + gpu);
    for (const std::string model : {"qwen3-8b", "qwen3-32b"}) {
      const Model shape = load_shape(model);
      for (const std::string method :
           {"full", "quest:budget=2048,page=16", "tova:budget=2048", "asyncspade:budget=2048,place=peer"}) {
        if (options.progress) options.progress(bars.size(), kBars, fmt::format("{} of {} on {}", method, model, gpu));
        SpadeBar bar{model, gpu, method, 0, 0, ""};
        TargetOptions target = target_options(options, method, kBatch, kContext);
        target.look = [&](const DecodeResult& result) {
          const StepTimes times = last_steps_of(result);
          bar.tpot_ms = times.step_ms;
          bar.idle_ms = times.idle_ms;
        };
        bar.refused = simulate_target(shape, hardware, plain_workload(shape), target).rows.at(0).refused;
        bars.push_back(std::move(bar));
      }
    }
  }
  return bars;
}

std::string spade_table2_text(const std::vector<SpadeRow>& rows, bool markdown) {
  Table table;
  table.leading = 4;
  table.head = {"model",
                "batch x context",
                "GPU",
                "pack",
                "inference, published",
                "cache, published",
                "inference, simulated",
                "cache, simulated",
                "transfer, simulated",
                "inference, roofline",
                "cache, roofline",
                "below ours",
                "below published",
                "idle %, simulated"};
  std::size_t below_ours = 0, below_published = 0;
  for (const SpadeRow& r : rows) {
    const bool ours = r.ours.management_ms < r.ours.inference_ms,
               published = r.ours.management_ms < r.pack.inference_ms;
    below_ours += ours ? 1 : 0;
    below_published += published ? 1 : 0;
    table.rows.push_back({r.pack.model, fmt::format("{} x {}K", r.pack.batch, r.pack.context / 1024), r.pack.gpu,
                          std::to_string(r.pack.layers), ms(r.pack.inference_ms), ms(r.pack.management_ms),
                          ms(r.ours.inference_ms), ms(r.ours.management_ms), ms(r.ours.transfer_ms),
                          ms(r.roofline.inference_ms), ms(r.roofline.management_ms), ours ? "yes" : "NO",
                          published ? "yes" : "NO", fmt::format("{:.0f}", 100 * r.idle_ms / r.step_ms)});
  }
  Table links;
  links.head = {"model", "batch", "GPU", "pack", "published", "simulated", "link"};
  links.leading = 4;
  for (const SpadeRow& r : rows) {
    // The published figure of the 8B rows is twice the selected KV of the pack in MiB over the inference time in ms.
    const double bytes = 4.0 * 8 * 128 * r.pack.batch * r.pack.selected * r.pack.layers;
    links.rows.push_back({r.pack.model, std::to_string(r.pack.batch), r.pack.gpu, std::to_string(r.pack.layers),
                          fmt::format("{:.1f}", r.pack.bandwidth),
                          fmt::format("{:.1f}", bytes * 1e-6 / r.ours.inference_ms),
                          fmt::format("{:.0f}", bytes * 1e-6 / r.roofline.transfer_ms)});
  }
  return section("AsyncSpade, Table 2: ms per pack of layers, simulated for asyncspade-a100 and -h100", markdown) +
         text_of(table, markdown) +
         note(fmt::format(
                  "inference: the inference rank's work on the layers of a pack; cache: prediction, scores, top-k and "
                  "gather "
                  "of the cache rank; roofline: bytes over the datasheet's HBM bandwidth (weights and selected KV; all "
                  "keys, and what is gathered in and out). below: our cache management takes less than our inference "
                  "({} of {} rows), than the published inference ({} of {}). The published inference times are several "
                  "times the roofline; where the inference rank runs near it, reading all keys takes longer than a "
                  "small "
                  "model's layers, and the device waits (idle: means over the last 8 of 48 steps).",
                  below_ours, rows.size(), below_published, rows.size()),
              markdown) +
         section("Bandwidth that hides the selection, GB/s", markdown) + text_of(links, markdown) +
         note(
             "published: minimal bandwidth, in the 8B rows 2 x selected K and V of the pack in MiB over the inference "
             "time; simulated: K and V selected, once, over our inference time; link: of the profile.",
             markdown);
}

std::string spade_fig10_text(const std::vector<SpadeBar>& bars, bool markdown) {
  Table table;
  table.leading = 3;
  table.head = {
      "model",     "GPU", "method", "TPOT ms, simulated", "idle ms, simulated", "asyncspade against it, simulated",
      "published", "KV"};
  for (const SpadeBar& bar : bars) {
    const auto own = std::find_if(bars.begin(), bars.end(), [&](const SpadeBar& b) {
      return b.model == bar.model && b.gpu == bar.gpu && b.method.starts_with("asyncspade");
    });
    const bool is_own = own != bars.end() && &*own == &bar;
    table.rows.push_back({bar.model, bar.gpu, bar.method, ms(bar.tpot_ms), ms(bar.idle_ms),
                          is_own || own == bars.end() ? "-" : percent(own->tpot_ms / bar.tpot_ms - 1),
                          bar.method == "full"           ? "-50 % at least"
                          : bar.method.starts_with("qu") ? "-20 % at least"
                                                         : "-",
                          bar.refused.empty() ? "fits" : "does not fit"});
  }
  return section("AsyncSpade, Figure 10, simulated for asyncspade-a100 and -h100", markdown) +
         text_of(table, markdown) +
         note(
             "Batch 8, 32K of context, 2,048 selected tokens; means over the last 8 of 48 steps. published: the claims "
             "of section 5.3; the figure's bars "
             "are "
             "not given as numbers. Where the KV does not fit the device beside the weights, the time is that of a "
             "device with more memory.",
             markdown);
}

std::string spade_table2_json(const std::vector<SpadeRow>& rows) {
  nlohmann::ordered_json json = {{"schema", "tandem-asyncspade-table2-1"}, {"rows", nlohmann::ordered_json::array()}};
  const auto times = [](const SpadeTimes& t) {
    return nlohmann::ordered_json{
        {"inference_ms", t.inference_ms}, {"management_ms", t.management_ms}, {"transfer_ms", t.transfer_ms}};
  };
  for (const SpadeRow& r : rows) {
    json["rows"].push_back({{"model", r.pack.model},
                            {"batch", r.pack.batch},
                            {"context", r.pack.context},
                            {"selected", r.pack.selected},
                            {"gpu", r.pack.gpu},
                            {"pack", r.pack.layers},
                            {"published",
                             {{"inference_ms", r.pack.inference_ms},
                              {"management_ms", r.pack.management_ms},
                              {"bandwidth", r.pack.bandwidth}}},
                            {"ours", times(r.ours)},
                            {"roofline", times(r.roofline)},
                            {"step_ms", r.step_ms},
                            {"idle_ms", r.idle_ms}});
  }
  return json.dump(1) + "\n";
}

std::string spade_fig10_json(const std::vector<SpadeBar>& bars) {
  nlohmann::ordered_json json = {{"schema", "tandem-asyncspade-fig10-1"}, {"bars", nlohmann::ordered_json::array()}};
  for (const SpadeBar& b : bars) {
    json["bars"].push_back({{"model", b.model},
                            {"gpu", b.gpu},
                            {"method", b.method},
                            {"tpot_ms", b.tpot_ms},
                            {"idle_ms", b.idle_ms},
                            {"fits", b.refused.empty()}});
  }
  return json.dump(1) + "\n";
}

}  // namespace tandem::eval
