#include <fmt/core.h>

#include "eval/report/table.h"
#include "hardware/calibration/calibration.h"

namespace tandem::hardware {

std::string calibration_text(const CalibratedProfile& result, const std::string& base) {
  eval::Table table;
  table.head = {"field", base, result.profile.name, "p10 to p90 %", "from"};
  for (const CalibratedField& field : result.fields)
    table.rows.push_back({field.field, field.base, field.value,
                          field.spread < 0 ? "" : fmt::format("{:.0f}", field.spread * 100), field.from});
  std::string text = table.text();
  for (const std::string& warning : result.warnings) text += "\n" + eval::note("Note: " + warning, false);
  return text;
}

}  // namespace tandem::hardware
