#include "engine/runtime/device_work.h"

#include <span>

#include "engine/common/error.h"
#include "engine/kernels/paged_attention.h"

namespace tandem {
namespace {

template <class Item>
void check_one_each(std::span<const Item> items, std::size_t rows, const char* what) {
  std::vector<bool> seen(rows);
  for (const Item& item : items) {
    TANDEM_CHECK(!seen[item.row], "a row attends two {}", what);
    seen[item.row] = true;
  }
}

}  // namespace

/// What a GPU takes all rows of a kind by: one list for each KV head, in memory of each row's own.
void DecodeAttention::DeviceWork::check(std::uint32_t kv_heads, bool scores) const {
  const std::size_t rows = fixed.size();
  TANDEM_CHECK(tokens.empty() || !chooses_blocks_of_store(), "the rows of a batch choose alike");
  TANDEM_CHECK(!scores || !chooses_of_store(), "scores of tokens beside chosen ones");
  for (const bool staged : {false, true}) {
    const DeviceChosen* first = nullptr;
    std::vector<bool> seen(rows);
    for (const DeviceChosen& c : chosen) {
      if (c.staging.has_value() != staged) continue;
      if (first == nullptr) first = &c;
      TANDEM_CHECK(c.heads == (Range{0, kv_heads}) && c.scope == first->scope && c.own_only == first->own_only,
                   "the rows of a batch choose alike");
      TANDEM_CHECK(!seen[c.row], "a row attends two selections");
      seen[c.row] = true;
    }
  }
  for (const DeviceFetched& f : fetched)
    TANDEM_CHECK(f.heads == (Range{0, kv_heads}), "fetched blocks are attended by all heads");
  check_one_each<DeviceFetched>(fetched, rows, "ranges of fetched blocks");
  check_one_each<DeviceResident>(residents, rows, "sets of residents");
  check_one_each<DeviceHeavy>(heavy, rows, "sets of survivors");
  check_one_each<DeviceTokens>(tokens, rows, "choices of tokens");
  check_one_each<DeviceAhead>(ahead, rows, "selections made ahead");
  check_one_each<DeviceSpeculated>(speculated, rows, "speculated sets");
}

std::uint32_t DecodeAttention::DeviceWork::kernels(bool scores) const {
  // Lists, attention, and the merge of parts where lists are long.
  const auto attend = [](std::uint32_t entries) { return is_split(entries) ? 3u : 2u; };
  // Of those that are attended by one kernel, each other kind by its own.
  const auto of_kind = [&](const auto& items, const auto& entries) {
    std::uint32_t most = 0;
    for (const auto& item : items) most = std::max(most, entries(item));
    return items.empty() ? 0 : attend(most);
  };
  constexpr std::uint32_t kCounts = 1, kScores = 1, kNumbers = 1, kMerge = 1, kBehind = 1;
  std::uint32_t most = 0;
  for (const DeviceRow& row : fixed) most = std::max(most, *std::max_element(row.entries.begin(), row.entries.end()));
  std::uint32_t all = attend(most) + (scores ? kScores : 0);
  if (chooses_of_store()) all += kBehind + (tokens.empty() ? kCounts : 0);
  all += of_kind(fetched, [](const DeviceFetched& f) { return f.blocks; });
  if (!residents.empty()) {
    all += kCounts + of_kind(residents, [](const DeviceResident& r) {
             return r.set.residents(r.layer) * r.set.pages_per_block();
           });
  }
  const auto of_heavy = [](const DeviceHeavy& h) { return blocks_for(h.held); };
  all += of_kind(heavy, of_heavy);
  if (std::any_of(heavy.begin(), heavy.end(), [](const DeviceHeavy& h) { return h.held > 0; })) all += kScores;
  all += of_kind(ahead, [](const DeviceAhead& a) { return blocks_for(a.rank.tokens[a.layer]); });
  if (!speculated.empty()) {
    all += kCounts +
           of_kind(speculated, [](const DeviceSpeculated& s) { return blocks_for(s.index.most * s.index.unit); });
  }
  const auto in_staging = [](const DeviceChosen& c) { return c.staging ? c.most * c.index.block / kPageTokens : 0; };
  if (std::any_of(chosen.begin(), chosen.end(), [](const DeviceChosen& c) { return c.staging.has_value(); }))
    all += kNumbers + kCounts + of_kind(chosen, in_staging);
  return only_store() ? all : all + kMerge;
}

}  // namespace tandem
