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

/// A cell of CSV (RFC 4180): printable() text, behind an apostrophe where it would begin a formula, in quotes where it
/// holds a comma, a semicolon or a quote.
std::string csv_cell(const std::string& text);

}  // namespace tandem::eval
