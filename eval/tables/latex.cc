#include "eval/tables/latex.h"

#include <cctype>
#include <fmt/core.h>
#include <string_view>

#include "engine/common/printable.h"

namespace tandem::eval {
namespace {

bool is_sign(const std::string& text, std::size_t at) {
  if (text[at] != '-' || at + 1 == text.size() || std::isdigit(static_cast<unsigned char>(text[at + 1])) == 0)
    return false;
  return at == 0 || text[at - 1] == ' ' || text[at - 1] == '[';
}

std::string line(const std::vector<std::string>& cells) {
  std::string out;
  for (std::size_t c = 0; c < cells.size(); ++c) out += (c == 0 ? "" : " & ") + latex_text(cells[c]);
  return out + " \\\\\n";
}

}  // namespace

std::string latex_text(const std::string& anybodys) {
  constexpr std::string_view kNoBreak = "\u00a0";
  const std::string text = printable(anybodys);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (std::string_view(text).substr(i).starts_with(kNoBreak)) {
      out += '~';
      i += kNoBreak.size() - 1;
    } else if (std::string_view("&%$#_{}").find(c) != std::string_view::npos) {
      out += std::string("\\") + c;
    } else if (c == '\\') {
      out += "\\textbackslash{}";
    } else if (c == '~') {
      out += "\\textasciitilde{}";
    } else if (c == '^') {
      out += "\\textasciicircum{}";
    } else if (c == '<' || c == '>' || c == '|') {  // other characters in TeX's old fonts
      out += std::string("$") + c + "$";
    } else if (i == 0 && (c == '[' || c == '*')) {  // behind \\ or \midrule an argument of these
      out += std::string("{") + c + "}";
    } else if (is_sign(text, i)) {
      out += "$-$";
    } else {
      out += c;
    }
  }
  return out;
}

std::string latex_comment(const std::string& text) {
  return "% " + printable(text) + "\n";
}

std::string latex_table(const Table& table) {
  const std::size_t columns = table.head.size();
  std::string out = fmt::format("\\begin{{tabular}}{{{}{}}}\n\\toprule\n", std::string(table.leading, 'l'),
                                std::string(columns - table.leading, 'r'));
  if (!table.clock.empty()) {
    for (std::size_t c = 0; c < table.leading; ++c) out += "& ";
    out += fmt::format("\\multicolumn{{{}}}{{c}}{{{}}} \\\\\n\\cmidrule(lr){{{}-{}}}\n", columns - table.leading,
                       latex_text(table.clock), table.leading + 1, columns);
  }
  out += line(table.head) + "\\midrule\n";
  for (const auto& row : table.rows) out += line(row);
  return out + "\\bottomrule\n\\end{tabular}\n";
}

}  // namespace tandem::eval
