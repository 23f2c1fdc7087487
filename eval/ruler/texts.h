// The files that --ruler-essays and --ruler-qa name, for the tasks of a run.
#pragma once

#include <string>
#include <vector>

#include "eval/ruler/ruler.h"

namespace tandem::eval {

struct RulerFiles {
  std::string essays;                  // empty: none
  std::vector<std::string> questions;  // SQuAD's or HotpotQA's format, at most one of each
  bool empty() const { return essays.empty() && questions.empty(); }
};

/// InputError for files that cannot be read, for two of one format, and for one that none of `tasks` uses: it would
/// change nothing, which is hardly what was meant.
RulerTexts read_ruler_texts(const RulerFiles& files, const std::vector<std::string>& tasks);

}  // namespace tandem::eval
