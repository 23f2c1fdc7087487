// How many steps lie between two recalls of a layer (ScoutAttention section 3.4): one number for all layers, one per
// layer, or a file that `tandem profile scout-recall` wrote.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

struct RecallIntervals {
  std::vector<std::uint32_t> steps = {8};  // by layer, or one for all; 0: never
  std::string weights_hash;  // of the model that a file was measured on; empty: numbers, or it says nothing

  std::uint32_t of(std::uint32_t layer) const { return steps.size() == 1 ? steps[0] : steps.at(layer); }
  /// "8", or "8-12-9" for three layers; parse_recall_intervals reads it back.
  std::string text() const;
};

/// A number, numbers with '-' between them, or the path of a JSON file with a list "intervals". InputError naming the
/// file and the field where that is not what it holds.
RecallIntervals parse_recall_intervals(const std::string& text);

}  // namespace tandem
