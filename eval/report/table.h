// Tables for people: one renderer for the terminal (at most 100 columns) and for Markdown.
#pragma once

#include <string>
#include <vector>

#include "eval/report/summary.h"

namespace tandem::eval {

struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::string text() const;  // aligned; first column left, the others right
  std::string markdown() const;
};

/// Sections with tables and how to read them; `markdown` false: for a terminal.
std::string report_text(const Summary& summary, bool markdown);

/// Runs plot.py on a run folder's summary.json; empty when it worked, else a sentence that says why not.
std::string make_plot(const std::filesystem::path& folder);

}  // namespace tandem::eval
