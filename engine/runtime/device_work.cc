#include "engine/runtime/device_work.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/common/error.h"
#include "engine/kernels/paged_attention.h"
#include "engine/runtime/packed_spans.h"

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

/// Counts the chosen blocks, and appends them to the spans of their heads. Without `out` and without a look at
/// accesses, sizes alone are wanted: those follow from sets of blocks, and no page is listed.
void DecodeAttention::resolve_blocks(BodyContext& ctx, const ModelShape& shape, const DeviceBlocks& b,
                                     std::vector<HeadSpans>* out, std::vector<Access>& access, Cost& cost) const {
  const KvMemory* const copy = b.copy ? &b.copy->memory : nullptr;
  const bool sizes_alone = out == nullptr && (copy != nullptr || !ctx.lists_access());
  const std::size_t v_after_k = kPageTokens * kv_.shape().vector_bytes();
  const char* from = sizes_alone       ? nullptr
                     : copy != nullptr ? copy->kv.read<char>(ctx)
                                       : ctx.read<char>(kv_.device_buffer());
  const std::uint32_t* const lists = b.chosen.lists(ctx);
  std::uint64_t attended = 0;
  for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
    if (sizes_alone) {
      attended += b.chosen.index.tokens_of(b.chosen.set(lists, shape, g), b.chosen.blocks);
      continue;
    }
    b.chosen.for_pages(
        lists, shape, g, [&](std::uint32_t mask, std::uint32_t page, std::uint32_t place, std::uint32_t n) {
          attended += n;
          TANDEM_CHECK(copy != nullptr || b.chosen.slots[page] != KvStore::kNoSlot,
                       "page {} was chosen and is not on the device", page);
          const char* const k =
              from + (copy != nullptr ? copy->k_offset(g, place) : kv_.k_offset(b.chosen.slots[page], g));
          if (copy == nullptr && ctx.lists_access())
            access.push_back(kv_.slot_access(Tier::device, b.chosen.slots[page], 1, Range{g, g + 1}, false));
          if (out == nullptr) return;
          (*out)[b.row * shape.kv_heads + g].spans.push_back({k, k + v_after_k, n, b.own_only ? mask : ~0u});
        });
  }
  ctx.write<std::uint64_t>(device_attended_)[b.row] += attention_cost(attended, cost);
}

/// Spans of every row and KV head, without chosen blocks: packed tokens whose positions are known, which are older than
/// those that stay, so that what attends everything does so in the order of positions; the store's pages; then what
/// else is packed.
std::vector<HeadSpans> DecodeAttention::device_spans(BodyContext& ctx, const ModelShape& shape,
                                                     const DeviceWork& work) {
  std::vector<HeadSpans> spans(work.fixed.size() * shape.kv_heads);
  const std::size_t vector_bytes = kv_.shape().vector_bytes();
  const auto add_packed = [&](bool with_positions) {
    for (const DevicePacked& p : work.packed) {
      if (p.packed.positions.empty() == with_positions) continue;
      for (std::uint32_t g = 0; g < shape.kv_heads; ++g)
        append_packed_spans(ctx, p.packed, vector_bytes, g, true, spans[p.row * shape.kv_heads + g].spans);
    }
  };
  add_packed(true);
  const bool any =
      std::any_of(work.fixed.begin(), work.fixed.end(), [](const DeviceRow& row) { return !row.pages.empty(); });
  const char* pages = any ? ctx.read<char>(kv_.device_buffer()) : nullptr;
  pool_.parallel_for(spans.size(), [&](std::size_t i) {
    const auto row = static_cast<std::uint32_t>(i / shape.kv_heads),
               head = static_cast<std::uint32_t>(i % shape.kv_heads);
    const std::vector<PageRun>& runs = work.fixed[row].pages;
    spans[i].row = row;
    spans[i].kv_head = head;
    spans[i].spans.reserve(spans[i].spans.size() + runs.size());
    for (const PageRun& run : runs) {
      const std::size_t at = run.first * vector_bytes;
      spans[i].spans.push_back({pages + kv_.k_offset(run.slot, head) + at, pages + kv_.v_offset(run.slot, head) + at,
                                run.tokens, run.head_mask});
    }
  });
  for (const DeviceTokens& t : work.tokens) {
    const char* from = ctx.read<char>(kv_.device_buffer());
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      const std::uint32_t* list = ctx.read<std::uint32_t>(t.tokens.lists) + g * t.tokens.stride;
      for (std::uint32_t i = 1; i <= list[0]; ++i) {
        const std::size_t at = list[i] % kPageTokens * vector_bytes;
        const std::uint32_t slot = t.slots[list[i] / kPageTokens];
        spans[t.row * shape.kv_heads + g].spans.push_back(
            {from + kv_.k_offset(slot, g) + at, from + kv_.v_offset(slot, g) + at, 1, ~0u});
      }
    }
  }
  add_packed(false);
  return spans;
}

/// Settles what data decides, and appends the chosen blocks to `spans` where there are any (a prediction needs sizes
/// only).
void DecodeAttention::settle_device(BodyContext& ctx, const ModelShape& shape, const DeviceWork& work,
                                    std::vector<HeadSpans>* spans) {
  if (!work.settles) return;
  Cost cost = work.cost;
  for (const DevicePacked& p : work.packed) {
    if (!p.packed.count && !p.packed.named) continue;
    const std::uint64_t tokens = packed_tokens_of_row(ctx, p.packed, shape.kv_heads);
    ctx.write<std::uint64_t>(device_attended_)[p.row] += attention_cost(tokens, cost);
  }
  std::vector<Access> access;
  if (ctx.lists_access()) access = work.own;
  for (const DeviceBlocks& b : work.blocks) resolve_blocks(ctx, shape, b, spans, access, cost);
  ctx.settle(cost, std::move(access));
}

}  // namespace tandem
