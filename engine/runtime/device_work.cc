#include "engine/runtime/device_work.h"

#include <span>

#include "engine/common/error.h"
#include "engine/kernels/paged_attention.h"

namespace tandem {
namespace {

/// Each row has one of those that `counts` takes.
template <class Item, class Counts>
void check_one_each(std::span<const Item> items, std::size_t rows, const char* what, const Counts& counts) {
  std::vector<bool> seen(rows);
  for (const Item& item : items) {
    if (!counts(item)) continue;
    TANDEM_CHECK(!seen[item.row], "a row attends two {}", what);
    seen[item.row] = true;
  }
}

}  // namespace

/// What a GPU takes all rows of a kind by: one list for each KV head, in memory of each row's own.
void DecodeAttention::DeviceWork::check(bool scores) const {
  const std::size_t rows = fixed.size();
  TANDEM_CHECK(tokens.empty() || !chooses_blocks_of_store(), "the rows of a batch choose alike");
  TANDEM_CHECK(!scores || !chooses_of_store(), "scores of tokens beside chosen ones");
  for (const bool copied : {false, true}) {
    const DeviceBlocks* first = nullptr;
    const auto counts = [&](const DeviceBlocks& b) { return b.copy.has_value() == copied; };
    for (const DeviceBlocks& b : blocks) {
      if (!counts(b)) continue;
      if (first == nullptr) first = &b;
      TANDEM_CHECK(b.chosen.scope == first->chosen.scope && b.own_only == first->own_only,
                   "the rows of a batch choose alike");
    }
    check_one_each<DeviceBlocks>(blocks, rows, "selections", counts);
  }
  check_one_each<DeviceTokens>(tokens, rows, "choices of tokens", [](const auto&) { return true; });
  for (const bool in_pages : {false, true}) {
    check_one_each<DevicePacked>(packed, rows, "sets of packed tokens",
                                 [&](const DevicePacked& p) { return p.in_pages() == in_pages; });
  }
}

std::uint32_t DecodeAttention::DeviceWork::kernels(bool scores) const {
  // Lists, attention, and the merge of parts where lists are long.
  const auto attend = [](std::uint32_t entries) { return is_split(entries) ? 3u : 2u; };
  constexpr std::uint32_t kCounts = 1, kScores = 1, kNumbers = 1, kMerge = 1, kBehind = 1;
  std::uint32_t most = 0;
  for (const DeviceRow& row : fixed) most = std::max(most, row.entries);
  std::uint32_t all = attend(most) + (scores ? kScores : 0);
  if (chooses_of_store()) all += kBehind + (tokens.empty() ? kCounts : 0);
  for (const bool in_pages : {false, true}) {
    bool any = false, scored = false;
    most = 0;
    for (const DevicePacked& p : packed) {
      if (p.in_pages() != in_pages) continue;
      any = true;
      scored |= p.scored;
      most = std::max(most, blocks_for(p.packed.tokens));
    }
    if (any) all += attend(most) + (counts_packed(in_pages) ? kCounts : 0) + (scored ? kScores : 0);
  }
  if (copied_blocks()) {
    most = 0;
    for (const DeviceBlocks& b : blocks) most = std::max(most, b.copy ? b.chosen.pages() : 0);
    all += kNumbers + kCounts + attend(most);
  }
  return only_store() ? all : all + kMerge;
}

}  // namespace tandem
