#include "eval/report/table.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <sys/ioctl.h>
#include <unistd.h>

#include "engine/common/error.h"
#include "engine/common/printable.h"
#include "eval/report/markdown.h"

namespace tandem::eval {
namespace {

constexpr std::string_view kGap = "  ";

thread_local int fixed_widths = 0;  // FixedWidth objects that live

std::string rule(std::size_t width) {
  return fmt::format("{:─<{}}", "", width);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  if (lines.empty()) lines.emplace_back();
  return lines;
}

void add_line(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + "\n";
}

struct Column {
  std::vector<std::string> head, cells;
  std::size_t width = 0;
};

Column make_column(const Table& table, std::size_t index, std::size_t limit) {
  constexpr std::size_t kNarrow = 10;  // a head is not broken into shorter lines than this
  Column column;
  for (const auto& row : table.rows) {
    column.cells.push_back(cut(printable(row[index]), limit));
    column.width = std::max(column.width, text_columns(column.cells.back()));
  }
  for (const std::string& line :
       lines_of(wrap(printable(table.head[index]), std::min(limit, std::max(column.width, kNarrow))))) {
    column.head.push_back(cut(line, limit));
    column.width = std::max(column.width, text_columns(column.head.back()));
  }
  return column;
}

/// The columns that name the rows, `most` wide together; wide ones have what narrow ones leave over.
std::vector<Column> leading_columns(const Table& table, std::size_t most) {
  std::vector<Column> columns;
  columns.reserve(table.leading);
  for (std::size_t c = 0; c < table.leading; ++c) columns.push_back(make_column(table, c, most));
  std::vector<std::size_t> order(columns.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return columns[a].width < columns[b].width; });
  std::size_t room = most - kGap.size() * (columns.size() - 1);
  for (std::size_t i = 0; i < order.size(); ++i) {
    Column& column = columns[order[i]];
    column = make_column(table, order[i], room / (order.size() - i));
    room -= column.width;
  }
  return columns;
}

/// One table of `columns`, of which the first `leading` name the rows.
std::string block(const std::vector<Column>& columns, std::size_t leading, const std::string& clock,
                  std::size_t limit) {
  std::size_t named = 0, width = 0, depth = 0;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (c > 0) width += kGap.size();
    if (c == leading) named = width;
    width += columns[c].width;
    depth = std::max(depth, columns[c].head.size());
  }
  std::string out;
  if (!clock.empty()) {
    // Centred in a rule over its columns; where they are narrower than it, flush with their right end or the left edge.
    const std::size_t size = text_columns(clock), span = width - named;
    if (size + 2 <= span) {
      const std::size_t before = (span - size - 2) / 2;
      add_line(out, std::string(named, ' ') + rule(before) + " " + clock + " " + rule(span - size - 2 - before));
    } else {
      for (const std::string& line : lines_of(wrap(clock, limit)))
        add_line(out, std::string(width - std::min(width, text_columns(line)), ' ') + line);
    }
  }
  const auto line = [&](auto&& cell) {
    std::string text;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (c > 0) text += kGap;
      const std::string value = cell(columns[c]), space(columns[c].width - text_columns(value), ' ');
      text += c < leading ? value + space : space + value;
    }
    add_line(out, text);
  };
  for (std::size_t i = 0; i < depth; ++i)  // heads stand on the rule
    line([&](const Column& c) { return i + c.head.size() < depth ? "" : c.head[i + c.head.size() - depth]; });
  line([](const Column& c) { return rule(c.width); });
  for (std::size_t row = 0; row < columns.front().cells.size(); ++row)
    line([&](const Column& c) { return c.cells[row]; });
  return out;
}

}  // namespace

std::size_t terminal_width() {
  constexpr std::size_t kNarrowest = 60;  // below it tables fall apart
  winsize size{};
  if (fixed_widths > 0 || isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
      size.ws_col == 0)
    return kTerminalWidth;
  return std::clamp<std::size_t>(size.ws_col, kNarrowest, kTerminalWidth);
}

FixedWidth::FixedWidth() {
  ++fixed_widths;
}

FixedWidth::~FixedWidth() {
  --fixed_widths;
}

std::string cut(const std::string& text, std::size_t width) {
  if (text_columns(text) <= width) return text;
  std::string out;
  std::size_t columns = 0;
  for (const char c : text) {
    if ((c & 0xC0) != 0x80 && ++columns >= width) break;
    out += c;
  }
  return out + "…";
}

std::size_t text_columns(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string counted(std::uint64_t number, std::string_view singular) {
  return fmt::format("{} {}{}", number, singular, number == 1 ? "" : "s");
}

std::string wrap(std::string_view text, std::size_t width) {
  std::string out;
  for (const std::string& paragraph : lines_of(std::string(text))) {
    std::size_t used = 0;
    std::istringstream words(paragraph);
    for (std::string word; words >> word;) {
      if (used > 0) {
        const bool fits = used + 1 + text_columns(word) <= width;
        out += fits ? ' ' : '\n';
        used = fits ? used + 1 : 0;
      }
      out += word;
      used += text_columns(word);
    }
    out += '\n';
  }
  out.pop_back();
  return out;
}

std::string Table::text(std::size_t width) const {
  TANDEM_CHECK(leading >= 1 && leading < head.size(), "{} leading columns of {}", leading, head.size());
  TANDEM_CHECK(width >= 40, "a table of {} columns", width);
  for (const auto& row : rows) TANDEM_CHECK(row.size() == head.size(), "{} cells under {}", row.size(), head.size());
  const std::vector<Column> names = leading_columns(*this, width / 2);
  std::size_t named = kGap.size() * (leading - 1);
  for (const Column& column : names) named += column.width;
  std::string out;
  std::vector<Column> columns = names;
  std::size_t used = named;
  for (std::size_t c = leading; c < head.size(); ++c) {
    Column column = make_column(*this, c, width - named - kGap.size());
    if (columns.size() > leading && used + kGap.size() + column.width > width) {
      out += block(columns, leading, printable(clock), width) + "\n";
      columns = names;
      used = named;
    }
    used += kGap.size() + column.width;
    columns.push_back(std::move(column));
  }
  return out + block(columns, leading, printable(clock), width);
}

std::string Table::markdown() const {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string out = "|";
    for (const std::string& cell : cells) out.append(" ").append(cell).append(" |");
    return out + "\n";
  };
  const auto escaped = [](std::vector<std::string> cells) {
    for (std::string& cell : cells) cell = markdown_text(cell);
    return cells;
  };
  std::string out = clock.empty() ? "" : markdown_paragraph("Figures are " + clock + ".") + "\n\n";
  out += line(escaped(head)) + "|";
  for (std::size_t c = 0; c < head.size(); ++c) out.append(c < leading ? "---|" : "---:|");
  out += "\n";
  for (const auto& row : rows) out += line(escaped(row));
  return out;
}

std::string about_text(std::uint64_t count, std::uint64_t most) {
  if (count >= most) return fmt::format("more than {}", most);
  std::uint64_t step = 1;
  while (count / step >= 100) step *= 10;
  return fmt::format("about {}", (count + step - 1) / step * step);
}

}  // namespace tandem::eval
