#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/common/json.h"
#include "eval/predict/row.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

/// "quest (above: quest:budget=512), ..."
std::string other_specs(const Prediction& t) {
  std::string text;
  for (const PredictedRow& r : t.rows) {
    if (!r.compared.empty()) text += fmt::format("{}{} (above: {})", text.empty() ? "" : ", ", r.method, r.compared);
  }
  return text;
}

constexpr std::string_view kClock = "simulated for ";

void visit_title(ObjectWriter& out, const std::string& title) {
  out.field("clock", std::string(kClock) + title);
}

void visit_title(ObjectReader& in, std::string& title) {
  const std::string clock = in.text("clock");
  in.require(clock.starts_with(kClock), "clock", "\"simulated for \" and a machine");
  title = clock.substr(kClock.size());
}

/// Without the workload.
constexpr auto kVisitPrediction = [](auto& f, auto& t) {
  visit_title(f, t.hardware_title);
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
  f.numbered("methods", "method", t.rows, [](auto& in, auto& row) { visit_row(in, row); });
};

}  // namespace

Table prediction_table(const Prediction& t) {
  Table table;
  table.clock = fmt::format("simulated: {}, batch {} x {}, {}, level machine", t.model, t.batch, length_text(t.context),
                            t.hardware_title);
  RowColumns columns;
  for (const PredictedRow& r : t.rows) columns.add(r);
  table.head = row_heads(columns);
  table.head.insert(table.head.begin(), "method");
  for (const PredictedRow& r : t.rows) {
    std::vector<std::string>& row = table.rows.emplace_back(row_cells(r, t.layers, t.batch, columns));
    row.insert(row.begin(), r.method);
  }
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
  const PredictedRow* worst = nullptr;
  for (const PredictedRow& r : t.rows)
    if (r.drawn_sequences > 0 && (worst == nullptr || r.sampling_error > worst->sampling_error)) worst = &r;
  if (worst != nullptr) notes.push_back(sampling_text(*worst, worst->method));
  std::string whole;
  for (const PredictedRow& r : t.rows)
    if (attends_everything(r, t.context, t.steps)) whole += (whole.empty() ? "" : ", ") + r.method;
  if (!whole.empty())
    notes.push_back(fmt::format("Attends everything at {}: {}. {}", length_text(t.context), whole, kAttendsEverything));
  for (const PredictedRow& r : t.rows)
    if (!r.refused.empty()) notes.push_back(fmt::format("{}: {}", r.method, r.refused));
  if (const std::string others = other_specs(t); !others.empty())
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
  auto json = written(t, kVisitPrediction);
  json["workload"] = parse_ordered_json(workload_to_json(t.workload), "the workload");
  return json_text(json, 1) + "\n";
}

Prediction parse_prediction(const std::string& text, const std::string& file) {
  const auto json = parse_ordered_json(text, file);
  ObjectReader in(json, file);
  Prediction t;
  kVisitPrediction(in, t);
  t.workload = parse_workload(json_text(in.object("workload")), file + ", workload");
  in.finish();
  return t;
}

}  // namespace tandem::eval
