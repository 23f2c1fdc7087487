// Attention of a decode step on a GPU: page lists of what is known when it is submitted, lists that a kernel makes of
// what another one chose, and a partial result of each kind, merged.
#include <algorithm>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/fetch_list.h"
#include "engine/kernels/merge.h"
#include "engine/kernels/paged_attention.h"
#include "engine/kernels/residency.h"
#include "engine/runtime/device_work.h"

namespace tandem {
/// Lists of every row and KV head; of rows that are not among `chosen`, empty ones. `most`: upper bounds of their
/// lengths. What was fetched lies in the order of the lists.
PageLists DecodeAttention::launch_chosen_lists(LaunchContext& ctx, const ModelShape& shape, std::uint32_t rows,
                                               std::span<const DeviceChosen* const> chosen,
                                               std::vector<std::uint32_t>& most) {
  const DeviceChosen& first = *chosen.front();
  std::vector<BlockSelection> selections(rows);
  PageLists lists;
  lists.per_kv_head = true;
  most.assign(std::size_t{rows} * shape.kv_heads, 0);
  for (const DeviceChosen* c : chosen) {
    TANDEM_CHECK(c->heads == (Range{0, shape.kv_heads}) && c->scope == first.scope && c->own_only == first.own_only,
                 "the rows of a batch choose alike");
    TANDEM_CHECK(selections[c->row].chosen == nullptr, "a row attends two selections");
    const std::uint32_t pages_per_block = c->index.block / kPageTokens;
    const Range digested = c->index.digested(c->layer);
    const std::uint32_t tokens = digested.end - digested.begin;
    const std::uint32_t* slots = nullptr;
    if (!c->staging) {
      const std::uint32_t before = c->index.tokens.begin / kPageTokens;
      page_tables_.check(c->sequence, c->layer, {before, blocks_for(digested.end)});
      slots = page_tables_.slots(ctx, c->sequence, c->layer) + before;
    }
    selections[c->row] = {
        c->index.selection.read<std::uint32_t>(ctx), slots, c->blocks, pages_per_block, tokens, c->index.room};
    const std::uint32_t entries = c->most * pages_per_block;
    std::fill_n(most.data() + std::size_t{c->row} * shape.kv_heads, shape.kv_heads, entries);
    lists.capacity = std::max(lists.capacity, entries);
  }
  auto* const entries = ctx.scratch<PageEntry>(most.size() * lists.capacity);
  auto* const counts = ctx.scratch<std::uint32_t>(most.size());
  const std::uint32_t together = first.scope == Scope::query_head ? 1
                                 : first.scope == Scope::kv_head  ? shape.group()
                                                                  : shape.q_heads;
  pages_of_selection_cuda(ctx.pass(selections), rows, shape.kv_heads, shape.group(), together, first.own_only,
                          lists.capacity, entries, counts, ctx.stream());
  lists.entries = entries;
  lists.counts = counts;
  for (const DeviceChosen* c : chosen) {
    if (!c->staging) continue;
    const std::size_t list = std::size_t{c->row} * shape.kv_heads,
                      pieces = std::size_t{shape.kv_heads} * lists.capacity;
    list_pages_cuda(
        entries + list * lists.capacity, counts + list, 1, shape.kv_heads, lists.capacity, lists.capacity,
        {ctx.scratch<std::uint32_t>(pieces), ctx.scratch<std::uint32_t>(pieces), ctx.scratch<std::uint32_t>(1)},
        ctx.stream());
  }
  return lists;
}

/// Lists of every row, so that those with nothing get the empty partial; `most`: their lengths.
PageLists DecodeAttention::launch_fixed_lists(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer,
                                              const DeviceWork& work, std::vector<std::uint32_t>& most) {
  PageLists lists;
  lists.per_kv_head = std::any_of(work.fixed.begin(), work.fixed.end(),
                                  [](const DeviceRow& row) { return !row.tokens.by_head.empty(); });
  const std::uint32_t of_row = lists.per_kv_head ? shape.kv_heads : 1;
  std::vector<PageRanges> pages;
  std::vector<TokenRange> ranges;
  pages.reserve(work.fixed.size() * of_row);
  most.clear();
  for (const DeviceRow& row : work.fixed) {
    const auto* const slots = page_tables_.slots(ctx, row.sequence, layer);
    for (std::uint32_t list = 0; list < of_row; ++list) {
      const std::vector<Range>& tokens = row.tokens.runs(list);
      pages.push_back({slots, static_cast<std::uint32_t>(ranges.size()), static_cast<std::uint32_t>(tokens.size())});
      std::uint32_t length = 0;
      for (const Range& range : tokens) {
        const Range blocks{range.begin / kPageTokens, blocks_for(range.end)};
        page_tables_.check(row.sequence, layer, blocks);
        ranges.push_back({range.begin, range.end});
        if (range.begin < range.end) length += blocks.end - blocks.begin;
      }
      most.push_back(length);
      lists.capacity = std::max(lists.capacity, length);
    }
  }
  auto* const entries = ctx.scratch<PageEntry>(pages.size() * lists.capacity);
  auto* const counts = ctx.scratch<std::uint32_t>(pages.size());
  pages_of_ranges_cuda(ctx.pass(pages), ctx.pass(ranges), static_cast<std::uint32_t>(pages.size()), lists.capacity,
                       entries, counts, ctx.stream());
  lists.entries = entries;
  lists.counts = counts;
  return lists;
}

void DecodeAttention::launch_device(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer,
                                    const DeviceWork& work, const std::vector<Emitted>& emitted,
                                    const DeviceBuffer& out, const DeviceBuffer& lse) {
  const auto rows = static_cast<std::uint32_t>(work.fixed.size());
  const std::size_t heads = std::size_t{rows} * shape.q_heads;
  const auto* const q = ctx.read<float>(forward_.q());
  const KvPages store{ctx.read<char>(kv_.device_buffer()), kv_.shape().type, shape.kv_heads, shape.head_dim};
  std::vector<PartialOut> parts;
  const auto new_part = [&] {
    parts.push_back({ctx.scratch<float>(heads * shape.head_dim), ctx.scratch<float>(heads)});
    return parts.back();
  };
  const bool settled = work.chosen.empty() && work.fetched.empty() && work.residents.empty() && work.tokens.empty() &&
                       work.ahead.empty() && work.speculated.empty() && work.heavy.empty();
  std::vector<std::uint32_t> most;

  {  // pages of the store
    const PageLists fixed = launch_fixed_lists(ctx, shape, layer, work, most);
    PartialOut to{ctx.write<float>(out), lse ? ctx.write<float>(lse) : nullptr};
    if (!settled) {
      to = new_part();
    } else if (!lse) {
      to.lse = ctx.scratch<float>(heads);
    }
    launched_fixed_[out.id()].run(ctx, q, rows, shape.group(), store, fixed, most, to);
    if (!emitted.empty()) {
      // Of sets of survivors that is the step's own token.
      const std::size_t stride = emitted.front().heavy == nullptr ? emitted.front().stride : kPageTokens;
      TANDEM_CHECK(!fixed.per_kv_head && fixed.capacity * kPageTokens == stride, "scores of {} pages in rows of {}",
                   fixed.capacity, stride);
      paged_token_scores_cuda(q, rows, shape.group(), store, fixed, ctx.write<float>(scores_), ctx.stream());
    }
  }
  if (settled) return;

  // Memory of each row's own.
  const auto in_own_memory = [&](std::vector<RowPages> bases) {
    for (RowPages& base : bases)
      if (base.pages == nullptr) base.pages = store.pages;
    KvPages own = store;
    own.of_rows = ctx.upload(bases);
    return own;
  };
  if (!work.fetched.empty()) {
    std::vector<std::uint32_t> blocks(rows);
    std::vector<RowPages> bases(rows);
    for (const DeviceFetched& f : work.fetched) {
      TANDEM_CHECK(f.heads == (Range{0, shape.kv_heads}) && bases[f.row].pages == nullptr,
                   "fetched blocks are attended by all heads, once in a row");
      bases[f.row].pages = ctx.read<char>(f.staging.values) + f.staging.part_offset(f.part);
      blocks[f.row] = f.blocks;
    }
    std::vector<WholePages> whole(rows);
    for (std::uint32_t row = 0; row < rows; ++row) whole[row].tokens = blocks[row] * kPageTokens;
    const PageLists lists = list_whole_pages(ctx, whole, false, *std::max_element(blocks.begin(), blocks.end()));
    launched_fetched_.run(ctx, q, rows, shape.group(), in_own_memory(bases), lists, blocks, new_part());
  }

  if (!work.residents.empty()) {
    std::vector<ResidentPages> residents(std::size_t{rows} * shape.kv_heads);
    std::vector<RowPages> bases(rows);
    PageLists lists;
    lists.per_kv_head = true;
    most.assign(residents.size(), 0);
    for (const DeviceResident& r : work.residents) {
      const ResidentSet& set = r.set;
      TANDEM_CHECK(bases[r.row].pages == nullptr, "a row attends two sets of residents");
      bases[r.row].pages = ctx.read<char>(set.pages) + set.page_offset(r.layer, 0, 0, 0);
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
        const std::uint32_t list = set.list_of(head);
        const std::size_t at = std::size_t{r.row} * shape.kv_heads + head;
        ResidentPages& own = residents[at];
        own.residents = set.residents(r.layer);
        own.pages_per_block = set.pages_per_block();
        if (r.chosen_only) {
          own.table = ctx.read<std::uint32_t>(set.table) + set.table_offset(r.layer, list);
          own.chosen = ctx.read<std::uint32_t>(set.chosen) + set.choice_offset(r.layer, list);
        }
        most[at] = own.residents * own.pages_per_block;
        lists.capacity = std::max(lists.capacity, most[at]);
      }
    }
    auto* const entries = ctx.scratch<PageEntry>(most.size() * lists.capacity);
    auto* const counts = ctx.scratch<std::uint32_t>(most.size());
    pages_of_residents_cuda(ctx.pass(residents), static_cast<std::uint32_t>(residents.size()), lists.capacity, entries,
                            counts, ctx.stream());
    lists.entries = entries;
    lists.counts = counts;
    launched_resident_.run(ctx, q, rows, shape.group(), in_own_memory(bases), lists, most, new_part());
    count_tokens_cuda(lists, rows, shape.kv_heads, ctx.write<std::uint64_t>(device_attended_), ctx.stream());
  }

  // Tokens that lie packed, as many for each KV head of a row.
  struct Packed {
    std::uint32_t row = 0;
    RowPages memory;
    std::uint32_t most = 0, each = 0;      // tokens: at most; times the count
    const std::uint32_t* count = nullptr;  // of the first KV head, and
    std::size_t count_stride = 0;          // from one to the next
  };
  const auto attend_packed = [&](std::span<const Packed> packed, bool count) {
    std::vector<RowPages> bases(rows);
    std::vector<WholePages> tokens(std::size_t{rows} * shape.kv_heads);
    most.assign(tokens.size(), 0);
    std::uint32_t pages = 0;
    for (const Packed& p : packed) {
      TANDEM_CHECK(bases[p.row].pages == nullptr, "a row attends two sets of packed tokens");
      bases[p.row] = p.memory;
      pages = std::max(pages, blocks_for(p.most));
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
        const std::size_t list = std::size_t{p.row} * shape.kv_heads + head;
        tokens[list] = {p.each, p.count == nullptr ? nullptr : p.count + head * p.count_stride};
        most[list] = blocks_for(p.most);
      }
    }
    const PageLists lists = list_whole_pages(ctx, tokens, true, pages);
    const KvPages memory = in_own_memory(std::move(bases));
    launched_tokens_.run(ctx, q, rows, shape.group(), memory, lists, most, new_part());
    if (count) count_tokens_cuda(lists, rows, shape.kv_heads, ctx.write<std::uint64_t>(device_attended_), ctx.stream());
    return std::pair(memory, lists);
  };
  if (!work.heavy.empty()) {
    std::vector<Packed> packed;
    packed.reserve(work.heavy.size());
    for (const DeviceHeavy& h : work.heavy) {
      if (h.held == 0) continue;  // of a prompt of one token, in its first step
      packed.push_back({h.row, {ctx.read<char>(h.set.kv) + h.set.kv_offset(h.layer, 0), h.set.room}, h.held, h.held});
    }
    const auto [memory, lists] = attend_packed(packed, false);
    if (lists.capacity > 0) {  // behind the own tokens' scores
      paged_token_scores_cuda(q, rows, shape.group(), memory, lists, ctx.write<float>(scores_) + heads * kPageTokens,
                              ctx.stream());
    }
  }
  if (!work.ahead.empty()) {
    std::vector<Packed> packed;
    packed.reserve(work.ahead.size());
    for (const DeviceAhead& a : work.ahead) {
      const std::uint32_t tokens = a.rank.tokens[a.layer];
      packed.push_back(
          {a.row, {ctx.read<char>(a.rank.packed) + a.rank.packed_offset(a.layer, 0), a.rank.most}, tokens, tokens});
    }
    attend_packed(packed, false);
  }
  if (!work.speculated.empty()) {
    std::vector<Packed> packed;
    packed.reserve(work.speculated.size());
    for (const DeviceSpeculated& s : work.speculated) {
      const SkewedIndex& index = s.index;
      packed.push_back({s.row,
                        {ctx.read<char>(index.staged) + index.staged_offset(s.layer, 0), index.most * index.unit},
                        index.most * index.unit,
                        index.unit,
                        ctx.read<std::uint32_t>(index.chosen) + index.chosen_offset(s.layer, 0),
                        1 + std::size_t{index.most}});
    }
    attend_packed(packed, true);
  }

  if (!work.tokens.empty()) {
    std::vector<SingleTokens> tokens(std::size_t{rows} * shape.kv_heads);
    PageLists lists;
    lists.per_kv_head = true;
    most.assign(tokens.size(), 0);
    for (const DeviceTokens& t : work.tokens) {
      const auto* const slots = page_tables_.slots(ctx, t.sequence, layer);
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
        const std::size_t list = std::size_t{t.row} * shape.kv_heads + head;
        tokens[list] = {ctx.read<std::uint32_t>(t.choice.lists) + t.choice.list(head), slots};
        most[list] = t.keep;
      }
      lists.capacity = std::max(lists.capacity, t.keep);
    }
    auto* const entries = ctx.scratch<PageEntry>(tokens.size() * lists.capacity);
    auto* const counts = ctx.scratch<std::uint32_t>(tokens.size());
    pages_of_tokens_cuda(ctx.pass(tokens), static_cast<std::uint32_t>(tokens.size()), lists.capacity, entries, counts,
                         ctx.stream());
    lists.entries = entries;
    lists.counts = counts;
    launched_tokens_.run(ctx, q, rows, shape.group(), store, lists, most, new_part());
  }

  for (const bool staged : {false, true}) {
    std::vector<const DeviceChosen*> chosen;
    for (const DeviceChosen& c : work.chosen)
      if (c.staging.has_value() == staged) chosen.push_back(&c);
    if (chosen.empty()) continue;
    const PageLists lists = launch_chosen_lists(ctx, shape, rows, chosen, most);
    KvPages from = store;
    if (staged) {
      std::vector<RowPages> bases(rows);
      for (const DeviceChosen* c : chosen)
        if (c->staging) bases[c->row].pages = ctx.read<char>(c->staging->values) + c->staging->part_offset(c->part);
      from = in_own_memory(std::move(bases));
    }
    launched_chosen_.run(ctx, q, rows, shape.group(), from, lists, most, new_part());
    count_tokens_cuda(lists, rows, shape.kv_heads, ctx.write<std::uint64_t>(device_attended_), ctx.stream());
  }

  std::vector<const float*> values, sums;
  for (const PartialOut& part : parts) {
    values.push_back(part.o);
    sums.push_back(part.lse);
  }
  merge_partials_cuda(ctx.pass(values), ctx.pass(sums), static_cast<std::uint32_t>(parts.size()), rows * shape.q_heads,
                      shape.head_dim, ctx.write<float>(out), lse ? ctx.write<float>(lse) : nullptr, ctx.stream());
}

/// Rows that share what they merge are one launch: as a rule all of them.
void DecodeAttention::launch_merge(LaunchContext& ctx, const ModelShape& shape, const HostPart& host, bool device_too,
                                   const std::vector<bool>& on_host) const {
  const std::size_t width = std::size_t{shape.q_heads} * shape.head_dim;
  const auto rows = static_cast<std::uint32_t>(on_host.size());
  for (std::uint32_t first = 0; first < rows;) {
    std::uint32_t end = first + 1;
    while (end < rows && on_host[end] == on_host[first]) ++end;
    std::vector<const float*> values, sums;
    const auto add = [&](const DeviceBuffer& part, const DeviceBuffer& lse) {
      values.push_back(ctx.read<float>(part) + first * width);
      sums.push_back(ctx.read<float>(lse) + std::size_t{first} * shape.q_heads);
    };
    if (device_too) add(device_part_, device_lse_);
    if (on_host[first]) add(host.landed_part, host.landed_lse);
    merge_partials_cuda(ctx.pass(values), ctx.pass(sums), static_cast<std::uint32_t>(values.size()),
                        (end - first) * shape.q_heads, shape.head_dim,
                        ctx.write<float>(forward_.attention()) + first * width, nullptr, ctx.stream());
    first = end;
  }
}

}  // namespace tandem
