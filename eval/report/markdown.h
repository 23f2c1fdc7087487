// Text in Markdown pages and cells of CSV that stays text: a name or a command of a stranger's run makes no link,
// picture, HTML, emphasis, heading, list, table cell, code or formula.
#pragma once

#include <string>
#include <string_view>

namespace tandem::eval {

/// Text within a line (CommonMark and GitHub's tables, links and formulas): printable(), with a backslash before what
/// would be read as more than text. Words like "niah_single_1" and "100.0 [79.6, 100.0]" stay as they are.
std::string markdown_text(std::string_view text);

/// The same at the beginning of a paragraph, where more characters mean something.
std::string markdown_paragraph(std::string_view text);

/// A code span, in as many backticks as it needs.
std::string markdown_code(std::string_view text);

/// A cell of comma-separated values (RFC 4180): printable() text that a spreadsheet takes for text: behind an
/// apostrophe where it would begin a formula, in quotes where it holds what separates cells, in some countries' tables
/// a semicolon.
std::string csv_cell(const std::string& text);

}  // namespace tandem::eval
