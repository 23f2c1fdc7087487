// Every table and figure of the sources: what it shows, which command makes it, and how ours compares. items.json has
// one object each. What it takes from results and published numbers, studies/scripts/reproduction_page.py fills in; the
// same script writes docs/reproduction.md.
#pragma once

#include <string>
#include <vector>

namespace tandem::eval {

/// The texts of a row; those of `command` (behind `tandem`), `clock`, `fitted` and `ours` may be empty.
struct Item {
  std::string source, name, shows, command, clock, fitted, published, ours, verdict, reason;
};

/// In the order of sources.
std::vector<Item> load_items();

/// "52 tables and figures: 14 reproduced, 12 partly, ...", in the order of the verdicts' meaning.
std::string counted_verdicts(const std::vector<Item>& items);

}  // namespace tandem::eval
