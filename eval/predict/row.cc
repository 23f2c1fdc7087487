#include "eval/predict/row.h"

#include <algorithm>
#include <fmt/core.h>
#include <numeric>
#include <string_view>

#include "eval/predict/text.h"
#include "eval/report/manifest_difference.h"

namespace tandem::eval {
namespace {

constexpr double kMostMs = 1e12, kMostBytes = 1e15;

std::string gigabytes(std::size_t bytes) {
  return bytes == 0 ? "0" : fmt::format("{:.2f}", double(bytes) * 1e-9);
}

constexpr auto kVisit = [](auto& f, auto& r) {
  f.field("method", r.method);
  f.optional("compared_as", r.compared);
  if (f.present("refused", !r.refused.empty())) {
    f.filled("refused", r.refused);
    f.optional("too_large", r.too_large);
    f.optional("too_slow", r.too_slow);
    return;
  }
  f.number("prefill_ms", r.prefill_ms, 0, kMostMs);
  f.number("setup_ms", r.setup_ms, 0, kMostMs);
  f.number("first_step_ms", r.first_step_ms, 0, kMostMs);
  f.number("step_ms", r.step_ms, 0, kMostMs);
  f.number("busy_ms", r.busy_ms, 0, kMostMs);
  f.number("idle_ms", r.idle_ms, 0, kMostMs);
  f.number("layer0_idle_ms", r.layer0_idle_ms, 0, kMostMs);
  f.require(r.step_ms > 0, "step_ms", "above 0");
  if (f.present("idle_ms_by_cause", largest_cause(r).has_value())) {
    f.object("idle_ms_by_cause", [&](auto& causes) {
      for (std::size_t c = 0; c < r.idle_ms_by_cause.size(); ++c) {
        const char* name = to_string(static_cast<Cause>(c));
        auto& ms = r.idle_ms_by_cause[c];
        if (causes.present(name, ms > 0)) causes.number(name, ms, 0, kMostMs);
      }
    });
  }
  f.number("attended_device", r.attended_device, 0, kMostMs);
  f.number("attended_host", r.attended_host, 0, kMostMs);
  if (f.present("touched_bytes", true)) f.number("touched_bytes", r.touched_bytes, 0, kMostBytes);  // since schema 9
  if (f.present("looked_up_bytes", r.looked_up_bytes > 0)) {
    f.number("looked_up_bytes", r.looked_up_bytes, 0, kMostBytes);
    f.number("missed_bytes", r.missed_bytes, 0, r.looked_up_bytes);
    for (const auto& [name, value] : {std::pair("late_bytes", &r.late_bytes), {"cancelled_bytes", &r.cancelled_bytes}})
      if (f.present(name, *value > 0)) f.number(name, *value, 0, kMostBytes);
    if (f.present("bringing_ms", r.bringing_ms > 0)) {
      f.number("bringing_ms", r.bringing_ms, 0, kMostMs);
      f.number("waited_ms", r.waited_ms, 0, r.bringing_ms);
    }
  }
  f.field("device_kv_bytes", r.device_kv_bytes);
  f.field("host_kv_bytes", r.host_kv_bytes);
  f.optional("peer_kv_bytes", r.peer_kv_bytes);
  if (f.present("step_high_ms", r.step_high_ms > 0)) {  // since schema 10
    f.number("step_low_ms", r.step_low_ms, 0, r.step_ms);
    f.number("step_high_ms", r.step_high_ms, r.step_ms, kMostMs);
    f.field("widest_range", r.widest_range);
  }
  if (f.present("drawn_sequences", r.drawn_sequences > 0)) {
    f.field("drawn_sequences", r.drawn_sequences);
    f.number("sampling_error", r.sampling_error, 0, 1);
  }
};

constexpr auto kVisitPrediction = [](auto& f, auto& t) {
  constexpr const char* kClock = "simulated for ";
  std::string clock = kClock + t.hardware_title;
  f.field("clock", clock);
  f.require(clock.starts_with(kClock), "clock", "\"simulated for \" and a machine");
  if constexpr (kReads<decltype(f)>) t.hardware_title = clock.substr(std::string_view(kClock).size());
  f.field("model", t.model);
  f.field("hardware_profile", t.hardware);
  f.field("layers", t.layers);
  f.field("batch", t.batch);
  f.field("context", t.context);
  f.field("steps", t.steps);
  f.field("prefill_chunk", t.prefill_chunk);
  f.require(t.layers > 0, "layers", "1 or more");
  f.require(t.batch > 0, "batch", "1 or more");
  f.require(t.context > 0, "context", "1 or more");
  f.numbered("methods", "method", t.rows, kVisit);
  kVisitWorkload(f, t.workload);
};

}  // namespace

std::optional<Cause> largest_cause(const PredictedRow& row) {
  const auto largest = std::ranges::max_element(row.idle_ms_by_cause);
  if (*largest == 0) return std::nullopt;
  return static_cast<Cause>(largest - row.idle_ms_by_cause.begin());
}

bool attends_everything(const PredictedRow& r, std::uint32_t context, std::uint32_t steps) {
  constexpr double kRounding = 1e-9;
  if (!r.refused.empty() || !has_budget(std::string_view(r.method).substr(0, r.method.find(':')))) return false;
  return r.attended_device + r.attended_host >= (1 - kRounding) * (context + (steps - 1) / 2.0);
}

double sampling_error_of(const PredictedRow& row) {
  return row.drawn_sequences > 0 ? row.sampling_error : -1;
}

std::string sampling_text(const PredictedRow& row, const std::string& place) {
  return fmt::format(
      "Choices are drawn for some sequences of a batch, and the others share them. Tokens attended differ from those "
      "of drawing all by an estimated {:.2g} % ({}): one standard error, a rough figure from {} drawn sequences.",
      100 * row.sampling_error, place, row.drawn_sequences);
}

void add_row(Table& table, const HeadedCells& leading, const HeadedCells& cells) {
  table.leading = leading.size();
  table.head.clear();
  std::vector<std::string>& row = table.rows.emplace_back();
  for (const HeadedCells* part : {&leading, &cells}) {
    for (const auto& [head, cell] : *part) {
      table.head.push_back(head);
      row.push_back(cell);
    }
  }
}

std::string step_text(const PredictedRow& r) {
  std::string text = fmt::format("{:.{}f}", r.step_ms, r.step_ms < 100 ? 2 : 1);
  if (r.step_high_ms > 0) text += fmt::format("\u00a0[{}]", range_text(r.step_low_ms, r.step_high_ms));
  return text;
}

std::string why_absent(const PredictedRow& row) {
  if (row.refused.empty()) return "";
  if (row.too_slow) return "too slow";
  return row.too_large ? "does not fit" : "refused";
}

Table figures_table(const std::vector<NamedRow>& rows, std::uint32_t layers) {
  const bool ranges = std::ranges::any_of(rows, [](const NamedRow& n) { return !n.row.widest_range.empty(); });
  const bool peers = std::ranges::any_of(rows, [](const NamedRow& n) { return n.row.peer_kv_bytes > 0; });
  const bool looks_up = std::ranges::any_of(rows, [](const NamedRow& n) { return n.row.looked_up_bytes > 0; });
  Table table;
  for (const auto& [name, r, sequences] : rows) {
    const std::optional<Cause> cause = largest_cause(r);
    const double causes_ms = std::accumulate(r.idle_ms_by_cause.begin(), r.idle_ms_by_cause.end(), 0.0);
    HeadedCells cells = {{"TTFT s", fmt::format("{:.2f}", (r.prefill_ms + r.setup_ms + r.first_step_ms) * 1e-3)},
                         {"step ms", step_text(r)},
                         {"step\u00a0/ batch ms", fmt::format("{:.3f}", r.step_ms / sequences)},
                         {"tokens/s", fmt::format("{:.0f}", 1e3 * sequences / r.step_ms)},
                         {"idle\u00a0ms / layer", fmt::format("{:.3f}", r.idle_ms / layers)},
                         {"idle %", fmt::format("{:.1f}", 100 * r.idle_ms / r.step_ms)},
                         {"of it in layer\u00a00, ms", fmt::format("{:.3f}", r.layer0_idle_ms)},
                         {"waits mostly for",
                          !cause ? "-"
                                 : fmt::format("{} {:.0f}\u00a0%", to_string(*cause),
                                               100 * r.idle_ms_by_cause[static_cast<std::size_t>(*cause)] / causes_ms)},
                         {"attended on device", fmt::format("{:.0f}", r.attended_device)},
                         {"attended on host", fmt::format("{:.0f}", r.attended_host)},
                         {"KV GB, device", gigabytes(r.device_kv_bytes)},
                         {"KV GB, host", gigabytes(r.host_kv_bytes)}};
    if (peers) cells.emplace_back("KV GB, peer", gigabytes(r.peer_kv_bytes));
    if (looks_up) {
      const bool any = r.looked_up_bytes > 0;
      cells.emplace_back("missed MB", any ? fmt::format("{:.2f}", r.missed_bytes * 1e-6) : "-");
      cells.emplace_back("hit rate %",
                         any ? fmt::format("{:.1f}", 100 * (1 - r.missed_bytes / r.looked_up_bytes)) : "-");
      cells.emplace_back("overlap %",
                         r.bringing_ms > 0 ? fmt::format("{:.1f}", 100 * (1 - r.waited_ms / r.bringing_ms)) : "-");
      cells.emplace_back("late MB", any ? fmt::format("{:.2f}", r.late_bytes * 1e-6) : "-");
      cells.emplace_back("cancelled MB", any ? fmt::format("{:.2f}", r.cancelled_bytes * 1e-6) : "-");
    }
    if (ranges) cells.emplace_back("range mostly from", r.widest_range.empty() ? "-" : r.widest_range);
    if (const std::string absent = why_absent(r); !absent.empty())
      for (auto& [head, cell] : cells) cell = head == "step ms" ? absent : "-";
    add_row(table, name, cells);
  }
  return table;
}

void visit_row(ObjectWriter& out, const PredictedRow& row) {
  kVisit(out, row);
}

void visit_row(ObjectReader& in, PredictedRow& row) {
  kVisit(in, row);
}

Table prediction_table(const Prediction& t) {
  std::vector<NamedRow> rows;
  rows.reserve(t.rows.size());
  for (const PredictedRow& r : t.rows) rows.push_back({{{"method", r.method}}, r, t.batch});
  Table table = figures_table(rows, t.layers);
  table.clock = fmt::format("simulated: {}, batch {} x {}, {}, level machine", t.model, t.batch, length_text(t.context),
                            t.hardware_title);
  return table;
}

std::vector<std::string> prediction_notes(const Prediction& t) {
  std::vector<std::string> notes = {fmt::format(
      "The schedule of each method with the costs of this shape, weights and KV in bf16, {} decode steps after a "
      "prompt of {} tokens that is prefilled in chunks of {}; no tensor is computed. Which blocks and tokens heads "
      "choose is drawn from the workload {} ({}). TTFT is of the batch, all of whose prompts are prefilled before it "
      "decodes. Step: mean window of the steps after the first; step / batch is what papers that divide by the batch "
      "call TPOT. Launches are priced as captured graphs where the profile has a time for one, and prefill's attention "
      "at the rate that it has there. Level machine: the hardware with the best kernels that were measured on it; "
      "`tandem validate` has the errors. A small model's own latency is mostly launches and kernel floors and says "
      "nothing about this table, nor this table about its accuracy.",
      t.steps, length_text(t.context), t.prefill_chunk, t.workload.name, t.workload.source)};
  if (std::ranges::any_of(t.rows, [](const PredictedRow& r) { return r.step_high_ms > 0; }))
    notes.emplace_back(kHowRangesAre);
  notes.emplace_back(kPrefillsElsewhere);
  const auto worst = std::ranges::max_element(t.rows, {}, &sampling_error_of);
  if (worst != t.rows.end() && worst->drawn_sequences > 0) notes.push_back(sampling_text(*worst, worst->method));
  const std::string whole =
      listed(t.rows, [&](const PredictedRow& r) { return attends_everything(r, t.context, t.steps) ? r.method : ""; });
  if (!whole.empty())
    notes.push_back(fmt::format("Attends everything at {}: {}. {}", length_text(t.context), whole, kAttendsEverything));
  for (const PredictedRow& r : t.rows)
    if (!r.refused.empty()) notes.push_back(fmt::format("{}: {}", r.method, r.refused));
  const std::string others = listed(t.rows, [](const PredictedRow& r) {
    return r.compared.empty() ? "" : fmt::format("{} (above: {})", r.method, r.compared);
  });
  if (!others.empty())
    notes.push_back(
        fmt::format("Predicted with other options than in the tables above, whose are for short prompts or for the "
                    "model there: {}.",
                    others));
  return notes;
}

std::string prediction_text(const Prediction& t, bool markdown) {
  const Table table = prediction_table(t);
  std::string notes;
  for (const std::string& sentence : prediction_notes(t)) notes += note(sentence, markdown);
  if (markdown) return "## At a target shape\n\n" + table.markdown() + notes;
  return "\nAt a target shape\n" + table.text() + notes;
}

std::string prediction_json(const Prediction& t) {
  return json_text(written(t, kVisitPrediction), 1) + "\n";
}

Prediction parse_prediction(const std::string& text, const std::string& file) {
  const auto json = parse_ordered_json(text, file);
  ObjectReader in(json, file);
  Prediction t;
  kVisitPrediction(in, t);
  in.finish();
  return t;
}

}  // namespace tandem::eval
