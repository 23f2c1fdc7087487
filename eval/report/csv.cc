#include "eval/report/csv.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/common/printable.h"

namespace tandem::eval {
namespace {

/// Also in full width, which some programs read alike. Tabs and line ends are spelled out.
bool begins_a_formula(std::string_view text) {
  constexpr std::array<std::string_view, 8> kSigns = {"=", "+", "-", "@", "\uFF1D", "\uFF0B", "\uFF0D", "\uFF20"};
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return std::ranges::any_of(kSigns, [&](std::string_view sign) { return text.starts_with(sign); });
}

}  // namespace

std::string csv_cell(const std::string& text) {
  const std::string shown = (begins_a_formula(text) ? "'" : "") + printable(text);
  if (shown.find_first_of(",;\"") == std::string::npos) return shown;
  std::string out = "\"";
  for (const char c : shown) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

}  // namespace tandem::eval
