// A predicted row as tables and files show it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/common/json.h"
#include "eval/predict/prediction.h"
#include "eval/report/json_fields.h"
#include "eval/report/table.h"

namespace tandem::eval {

/// The cause that most idle time goes to; nothing where the device never waits.
std::optional<Cause> largest_cause(const PredictedRow& row);

/// Whether a method's budget is none behind so many prompt tokens: in all `steps` it attends everything before.
bool attends_everything(const PredictedRow& row, std::uint32_t context, std::uint32_t steps);
inline constexpr const char* kAttendsEverything =
    "A budget for the whole context leaves nothing out, so that answers are full attention's.";

/// Below 0 where all choices are drawn.
double sampling_error_of(const PredictedRow& row);
/// Sentences on choices drawn for some sequences only, and on the error left, which is largest in this row.
std::string sampling_text(const PredictedRow& row, const std::string& place);

/// Cells beside the heads of their columns.
using HeadedCells = std::vector<std::pair<std::string, std::string>>;
/// Appends a row behind the cells that name it, `leading` with their own heads; every row has the same heads.
void add_row(Table& table, const HeadedCells& leading, const HeadedCells& cells);

/// A prediction in a table: the cells that name it, and how many sequences decode together.
struct NamedRow {
  HeadedCells name;
  const PredictedRow& row;
  std::uint32_t sequences = 0;
};
/// All figures; dashes and "does not fit", "too slow" or "refused" where a row has none. What ranges are due to and a
/// peer's memory are columns where a row needs them.
Table figures_table(const std::vector<NamedRow>& rows, std::uint32_t layers);

/// "294.7 [118–310]": the step with its range, in ms; the step alone where it has none.
std::string step_text(const PredictedRow& row);
/// How ranges are to be read, as sentences.
inline constexpr const char* kHowRangesAre =
    "Brackets: what the step may be, given the low and high that the hardware profile states for its assumed and "
    "fitted numbers: one number moved at a time, the changes added in quadrature (or all of them a part of their way, "
    "where that changes more). Tokens/s have the same range, turned over. Methods on one machine share most of these "
    "numbers, so that their order is surer than overlapping ranges suggest. Fluxion's policies that let CPU and GPU "
    "compete for tasks have no range, since times decide who computes what.";

/// The text in place of figures; empty: the row has figures.
std::string why_absent(const PredictedRow& row);

/// The row's fields, written to a JSON object and read from it.
void visit_row(ObjectWriter& out, const PredictedRow& row);
void visit_row(ObjectReader& in, PredictedRow& row);

constexpr auto kVisitWorkload = [](auto& f, auto& workload) {
  if constexpr (kReads<decltype(f)>)
    workload = parse_workload(json_text(f.object("workload")), f.where() + ", workload");
  else
    f.field("workload", parse_ordered_json(workload_to_json(workload), "the workload"));
};

}  // namespace tandem::eval
