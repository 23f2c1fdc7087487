#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "engine/common/version.h"
#include "eval/latency/latency.h"
#include "eval/report/statistics.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

std::string tenths(double figure) {
  return fmt::format("{:.1f}", figure);
}

std::string rate(double amount, double ms) {
  return amount > 0 ? figure_text(ratio(amount, ms * 1e-3), tenths) : "-";
}

std::string gigabytes(std::size_t bytes) {
  return fmt::format("{:.3f} GB", double(bytes) * 1e-9);
}

/// How many times as fast as the first method.
std::optional<double> speed_up(const Latency& r, const LatencyRow& row) {
  return ratio(r.rows.front().median_ms, row.median_ms);
}

std::string head_text(const Latency& r) {
  const std::string how = fmt::format("{}, {}, {} threads, {} kernels", r.model, r.precision, r.threads, r.isa);
  if (r.steps == 0)
    return fmt::format("{}; chunks of {} tokens, no logits; {}, one more before them warms up.", how, r.prefill_chunk,
                       counted(r.rounds, "round"));
  return fmt::format(
      "{}; {} behind {} tokens{}; {} of {} after one that is not counted, one more round before them warms up.", how,
      counted(r.batch, "sequence"), r.context, r.batch > 1 ? " each" : "", counted(r.rounds, "round"),
      counted(r.steps, "step"));
}

/// Names of the rows that fit into a column.
std::vector<std::string> short_labels_of(const Latency& r) {
  std::vector<std::string> labels;
  labels.reserve(r.rows.size());
  for (const LatencyRow& row : r.rows) labels.push_back(row.label);
  return short_labels(labels);
}

std::string figures_text(const Latency& r) {
  const std::vector<std::string> labels = short_labels_of(r);
  const bool decode = r.steps > 0, several = r.rows.size() > 1;
  Table table;
  table.clock = r.clock;
  table.head = {decode ? "decode" : "prefill", decode ? "ms per step, median" : "ms, median", "least", "most",
                "tokens/s"};
  if (several) table.head.emplace_back("speed-up");
  for (std::size_t i = 0; i < r.rows.size(); ++i) {
    const LatencyRow& row = r.rows[i];
    std::vector<std::string>& cells = table.rows.emplace_back();
    cells = {decode ? labels[i] : fmt::format("{} tokens", r.context), fmt::format("{:.3f}", row.median_ms),
             fmt::format("{:.3f}", row.min_ms), fmt::format("{:.3f}", row.max_ms),
             figure_text(row.tokens_per_second, tenths)};
    if (several)
      cells.push_back(figure_text(speed_up(r, row), [](double times) { return fmt::format("{:.2f}", times); }));
  }
  return table.text();
}

std::string operations_text(const Latency& r) {
  const std::vector<std::string> labels = short_labels_of(r);
  const bool several = r.rows.size() > 1;
  // As many as one screen has room for; the file has all.
  const std::size_t shown = several ? std::max<std::size_t>(1, 20 / r.rows.size()) : r.rows.front().operations.size();
  Table table;
  table.clock = r.clock;
  table.head = {"operation", r.steps > 0 ? "ms per step" : "ms per prefill", "share\u00a0%", "GB/s", "GFLOP/s"};
  if (several) table.head.insert(table.head.begin(), "method");
  table.leading = several ? 2 : 1;
  for (std::size_t i = 0; i < r.rows.size(); ++i) {
    const LatencyRow& row = r.rows[i];
    const double mean_ms = mean(row.round_ms);  // operations are summed over all rounds
    const auto add = [&](const std::string& name, double ms, const std::string& bytes, const std::string& flops) {
      std::vector<std::string>& cells = table.rows.emplace_back();
      cells = {name, fmt::format("{:.3f}", ms), figure_text(ratio(100 * ms, mean_ms), tenths), bytes, flops};
      if (several) cells.insert(cells.begin(), labels[i]);
    };
    for (std::size_t o = 0; o < std::min(row.operations.size(), shown); ++o) {
      const OperationTime& op = row.operations[o];
      add(op.name, op.ms, rate(op.gigabytes, op.ms), rate(op.gigaflops, op.ms));
    }
    if (!several) add("compute lane idle", row.compute_lane_idle_ms, "-", "-");
  }
  return table.text();
}

std::string notes_text(const Latency& r) {
  const std::vector<std::string> labels = short_labels_of(r);
  std::string out;
  for (std::size_t i = 0; i < r.rows.size(); ++i)
    if (labels[i] != r.rows[i].label) out += note(labels[i] + " = " + r.rows[i].label, /*markdown=*/false);
  return out + note(r.rows.size() > 1
                        ? "The operations that take longest; --out has all. Those of side streams, copies "
                          "and the host run beside others."
                        : "Side streams, copies and the host run beside the compute lane and each other: "
                          "their rows overlap with others, with the last one too.",
                    /*markdown=*/false);
}

std::string memory_text(const Latency& r) {
  const MemoryUse& m = r.memory;
  std::string out;
  if (r.loading)
    out = fmt::format(
        "loading: {:.2f} s, {} of weights{}\n", r.loading->seconds, gigabytes(m.weight_bytes),
        r.mapped_weights
            ? ", in their files"
            : fmt::format(
                  ", {:.0f} % in huge pages",
                  std::min(100.0,
                           100 * ratio(double(r.loading->huge_page_bytes), double(m.weight_bytes)).value_or(0))));
  out += fmt::format("memory: {} at the end, {} at most; KV {}{}\n",
                     m.resident_bytes > 0 ? gigabytes(m.resident_bytes) : "-",
                     m.peak_bytes > 0 ? gigabytes(m.peak_bytes) : "-", gigabytes(m.kv_bytes[0]),
                     m.kv_bytes[1] > 0 ? fmt::format(", {} on the host", gigabytes(m.kv_bytes[1])) : "");
  return out;
}

}  // namespace

void to_json(nlohmann::ordered_json& json, const OperationTime& o) {
  json = {{"name", o.name}, {"ms", o.ms}, {"gigabytes", o.gigabytes}, {"gigaflops", o.gigaflops}};
}

static void to_json(nlohmann::ordered_json& json, const LatencyRow& row) {
  if (!row.method.empty()) json["method"] = row.method;
  json["tokens_per_second"] = json_or_null(row.tokens_per_second);
  json["median_ms"] = row.median_ms;
  json["min_ms"] = row.min_ms;
  json["max_ms"] = row.max_ms;
  json["round_ms"] = row.round_ms;
  json["operations"] = row.operations;
  json["compute_lane_idle_ms"] = row.compute_lane_idle_ms;
}

std::string latency_text(const Latency& r) {
  return fmt::format("{}\n\n{}\n{}{}\n{}", wrap(head_text(r), terminal_width()), figures_text(r), operations_text(r),
                     notes_text(r), memory_text(r));
}

std::string latency_json(const Latency& r) {
  nlohmann::ordered_json json;
  json["schema"] = "tandem-latency-3";
  json["what"] = r.steps > 0 ? "decode" : "prefill";
  json["tandem_version"] = version();
  json["git_commit"] = git_commit();
  json["clock"] = r.clock;
  json["model"] = r.model;
  json["weights_hash"] = r.weights_hash;
  json["isa"] = r.isa;
  json["precision"] = r.precision;
  json["threads"] = r.threads;
  json["context"] = r.context;
  if (r.steps > 0) {
    json["batch"] = r.batch;
    json["steps"] = r.steps;
  }
  json["rounds"] = r.rounds;
  if (!r.unfinished.empty()) json["unfinished"] = r.unfinished;
  json["prefill_chunk"] = r.prefill_chunk;
  if (r.loading) {
    json["loading"]["seconds"] = r.loading->seconds;
    json["loading"]["huge_page_bytes"] = r.loading->huge_page_bytes;
    json["loading"]["mapped"] = r.mapped_weights;
  }
  json["memory"]["weight_bytes"] = r.memory.weight_bytes;
  json["memory"]["device_kv_bytes"] = r.memory.kv_bytes[0];
  json["memory"]["host_kv_bytes"] = r.memory.kv_bytes[1];
  for (const auto& [name, bytes] :
       {std::pair("resident_bytes", r.memory.resident_bytes), std::pair("peak_bytes", r.memory.peak_bytes)})
    json["memory"][name] = bytes > 0 ? nlohmann::ordered_json(bytes) : nlohmann::ordered_json(nullptr);
  json["rows"] = r.rows;
  if (r.rows.size() > 1)
    for (std::size_t i = 0; i < r.rows.size(); ++i) json["rows"][i]["speed_up"] = json_or_null(speed_up(r, r.rows[i]));
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval
