// Attention of a decode step on a GPU: a partial result for each kind of tokens that a batch's rows attend, merged.
// Kernels make the lists of pages: of what a plan says, of what others chose, of what lies packed.
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/fetch_list.h"
#include "engine/kernels/paged_attention.h"
#include "engine/runtime/device_work.h"

namespace tandem {

class DecodeAttention::DeviceLaunch {
 public:
  DeviceLaunch(DecodeAttention& owner, LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer,
               std::uint32_t rows)
      : owner_(owner),
        ctx_(ctx),
        shape_(shape),
        layer_(layer),
        rows_(rows),
        q_(ctx.read<float>(owner.forward_.q())),
        store_{ctx.read<char>(owner.kv_.device_buffer()), owner.kv_.shape().type, shape.kv_heads, shape.head_dim} {}

  /// Room for the result of a kind, which merge() takes in.
  PartialOut new_part() {
    parts_.push_back({ctx_.scratch<float>(heads() * shape_.head_dim), ctx_.scratch<float>(heads())});
    return parts_.back();
  }
  void merge(const DeviceBuffer& out, const DeviceBuffer& lse) {
    std::vector<const float*> values, sums;
    for (const PartialOut& part : parts_) {
      values.push_back(part.o);
      sums.push_back(part.lse);
    }
    merge_partials_cuda(ctx_.pass(values), ctx_.pass(sums), static_cast<std::uint32_t>(parts_.size()),
                        rows_ * shape_.q_heads, shape_.head_dim, ctx_.write<float>(out),
                        lse ? ctx_.write<float>(lse) : nullptr, ctx_.stream());
  }

  /// Tokens of the store that the plan names, and their scores where something is made of them. Every row has lists, so
  /// that one with nothing gets the empty partial.
  void fixed(const DeviceWork& work, const Emission& emitted, LaunchedAttention& with, const PartialOut& to) {
    const PageLists lists = list_fixed(work.fixed);
    with.run(ctx_, q_, rows_, shape_.group(), store_, lists, most_, to);
    if (emitted.empty()) return;
    // Beside packed tokens that is the step's own token.
    const std::size_t stride = emitted.packed ? kPageTokens : emitted.rows.front().stride;
    TANDEM_CHECK(lists.capacity * kPageTokens == stride, "scores of {} pages in rows of {}", lists.capacity, stride);
    paged_token_scores_cuda(q_, rows_, shape_.group(), store_, lists, ctx_.write<float>(owner_.scores_), ctx_.stream());
  }

  /// What was chosen of the store, blocks or single tokens, and what the plan names behind it, in one list for each KV
  /// head: both lie in the same pages, and an attention of their own each, with the merge of the two, would be four
  /// kernels more.
  void chosen_and_fixed(const DeviceWork& work, const PartialOut& to) {
    std::vector<const DeviceBlocks*> blocks = chosen_of(work.blocks, false);
    take_lengths(work.fixed, true);
    const ListRoom lists = blocks.empty() ? list_tokens(work.tokens) : list_chosen(blocks);
    if (!blocks.empty()) count(lists);
    const RangesOfLists fixed = ranges_of(work.fixed, true);
    pages_of_ranges_cuda(ctx_.pass(fixed.lists), ctx_.pass(fixed.ranges),
                         static_cast<std::uint32_t>(fixed.lists.size()), true, lists.capacity, lists.entries,
                         lists.counts, ctx_.stream());
    owner_.launched_chosen_.run(ctx_, q_, rows_, shape_.group(), store_, lists, most_, to);
  }

  /// Tokens in memory of their own that lies in pages as the store's does: all of them, or blocks that a choice names.
  void pages(const DeviceWork& work) {
    const std::vector<const DevicePacked*> own = packed_of(work.packed, true);
    if (own.empty()) return;
    const bool counts = work.counts_packed(true);
    std::vector<ResidentPages> blocks(lists_of_heads());
    std::vector<WholePages> whole(rows_);
    std::vector<std::uint32_t> most(rows_);
    std::vector<RowPages> bases(rows_);
    for (const DevicePacked* p : own) {
      const Packed& packed = p->packed;
      bases[p->row].pages = packed.memory.kv.read<char>(ctx_) + packed.memory.offset;
      whole[p->row].tokens = packed.tokens;
      most[p->row] = blocks_for(packed.tokens);
      for (std::uint32_t head = 0; counts && head < shape_.kv_heads; ++head) {
        const std::size_t at = std::size_t{p->row} * shape_.kv_heads + head;
        ResidentPages& list = blocks[at];
        list.pages_per_block = packed.block_runs;
        list.residents = most[p->row] / packed.block_runs;
        if (const Packed::Named* named = packed.names()) {
          list.table = ctx_.read<std::uint32_t>(named->table) + named->table_offset + head * named->table_stride;
          list.chosen = named->chosen.read<std::uint32_t>(ctx_) + named->chosen_offset + head * named->chosen_stride;
        }
        most_[at] = most[p->row];
      }
    }
    if (!counts) {
      const PageLists lists = list_whole_pages(ctx_, whole, false, *std::max_element(most.begin(), most.end()));
      owner_.launched_pages_.run(ctx_, q_, rows_, shape_.group(), in_own_memory(bases), lists, most, new_part());
      return;
    }
    const ListRoom lists = room_for_heads();
    pages_of_residents_cuda(ctx_.pass(blocks), static_cast<std::uint32_t>(blocks.size()), lists.capacity, lists.entries,
                            lists.counts, ctx_.stream());
    attend(owner_.launched_pages_, in_own_memory(bases), lists);
    count(lists);
  }

  /// Tokens that lie one after another for each KV head, and their scores where something is made of them.
  void packed(const DeviceWork& work) {
    const std::vector<const DevicePacked*> own = packed_of(work.packed, false);
    if (own.empty()) return;
    std::vector<RowPages> bases(rows_);
    std::vector<WholePages> tokens(lists_of_heads());
    std::uint32_t pages = 0;
    bool scored = false;
    for (const DevicePacked* p : own) {
      const Packed& packed = p->packed;
      bases[p->row] = {packed.memory.kv.read<char>(ctx_) + packed.memory.offset, packed.memory.run_tokens};
      pages = std::max(pages, blocks_for(packed.tokens));
      scored |= p->scored;
      for (std::uint32_t head = 0; head < shape_.kv_heads; ++head) {
        const std::size_t list = std::size_t{p->row} * shape_.kv_heads + head;
        if (const Packed::Count* count = packed.counter()) {
          tokens[list] = {count->unit, count->values.read<std::uint32_t>(ctx_) + count->offset + head * count->stride};
        } else {
          tokens[list] = {packed.tokens};
        }
        most_[list] = blocks_for(packed.tokens);
      }
    }
    const PageLists lists = list_whole_pages(ctx_, tokens, true, pages);
    const KvPages memory = in_own_memory(std::move(bases));
    attend(owner_.launched_packed_, memory, lists);
    if (work.counts_packed(false)) count(lists);
    if (scored)
      paged_token_scores_cuda(q_, rows_, shape_.group(), memory, lists,  // behind the own tokens' scores
                              ctx_.write<float>(owner_.scores_) + heads() * kPageTokens, ctx_.stream());
  }

  /// Chosen blocks that were copied, which lie in the order of the lists.
  void copied(std::span<const DeviceBlocks> work) {
    const std::vector<const DeviceBlocks*> own = chosen_of(work, true);
    if (own.empty()) return;
    lists_of_heads();
    for (const DeviceBlocks* b : own)
      std::fill_n(most_.data() + std::size_t{b->row} * shape_.kv_heads, shape_.kv_heads, b->chosen.pages());
    const ListRoom lists = list_chosen(own);
    number_pages_cuda(lists.entries, lists.counts, static_cast<std::uint32_t>(most_.size()), lists.capacity,
                      ctx_.stream());
    std::vector<RowPages> bases(rows_);
    for (const DeviceBlocks* b : own) {
      if (b->copy) bases[b->row].pages = b->copy->memory.kv.read<char>(ctx_) + b->copy->memory.offset;
    }
    attend(owner_.launched_copied_, in_own_memory(std::move(bases)), lists);
    count(lists);
  }

 private:
  std::size_t heads() const { return std::size_t{rows_} * shape_.q_heads; }
  /// Of every row; all are empty until most_ says otherwise.
  std::size_t lists_of_heads() {
    most_.assign(std::size_t{rows_} * shape_.kv_heads, 0);
    return most_.size();
  }
  ListRoom room_for_heads() {
    return room_for_lists(ctx_, most_.size(), *std::max_element(most_.begin(), most_.end()), true);
  }
  void attend(LaunchedAttention& with, const KvPages& kv, const PageLists& lists) {
    with.run(ctx_, q_, rows_, shape_.group(), kv, lists, most_, new_part());
  }
  void count(const PageLists& lists) {
    count_tokens_cuda(lists, rows_, shape_.kv_heads, ctx_.write<std::uint64_t>(owner_.device_attended_), ctx_.stream());
  }
  static std::vector<const DeviceBlocks*> chosen_of(std::span<const DeviceBlocks> work, bool copied) {
    std::vector<const DeviceBlocks*> own;
    for (const DeviceBlocks& b : work)
      if (b.copy.has_value() == copied) own.push_back(&b);
    return own;
  }
  static std::vector<const DevicePacked*> packed_of(std::span<const DevicePacked> work, bool in_pages) {
    std::vector<const DevicePacked*> own;
    for (const DevicePacked& p : work)
      if (p.in_pages() == in_pages) own.push_back(&p);
    return own;
  }
  /// Memory of each row's own.
  KvPages in_own_memory(std::vector<RowPages> bases) {
    for (RowPages& base : bases)
      if (base.pages == nullptr) base.pages = store_.pages;
    KvPages own = store_;
    own.of_rows = ctx_.upload(bases);
    return own;
  }

  /// Ranges of tokens by list.
  struct RangesOfLists {
    std::vector<PageRanges> lists;
    std::vector<TokenRange> ranges;
  };
  RangesOfLists ranges_of(const std::vector<DeviceRow>& work, bool per_kv_head) {
    const std::uint32_t of_row = per_kv_head ? shape_.kv_heads : 1;
    RangesOfLists all;
    all.lists.reserve(work.size() * of_row);
    for (const DeviceRow& row : work) {
      const auto* const slots = owner_.page_tables_.slots(ctx_, row.sequence, layer_);
      all.lists.insert(
          all.lists.end(), of_row,
          {slots, static_cast<std::uint32_t>(all.ranges.size()), static_cast<std::uint32_t>(row.tokens.size())});
      for (const Range& range : row.tokens) all.ranges.push_back({range.begin, range.end});
    }
    return all;
  }
  /// Of what is attended in the store, into most_.
  void take_lengths(const std::vector<DeviceRow>& work, bool per_kv_head) {
    most_.clear();
    for (const DeviceRow& row : work) most_.insert(most_.end(), per_kv_head ? shape_.kv_heads : 1, row.entries);
  }

  PageLists list_fixed(const std::vector<DeviceRow>& work) {
    take_lengths(work, false);
    const RangesOfLists fixed = ranges_of(work, false);
    const ListRoom lists = room_for_lists(ctx_, most_.size(), *std::max_element(most_.begin(), most_.end()), false);
    pages_of_ranges_cuda(ctx_.pass(fixed.lists), ctx_.pass(fixed.ranges),
                         static_cast<std::uint32_t>(fixed.lists.size()), false, lists.capacity, lists.entries,
                         lists.counts, ctx_.stream());
    return lists;
  }

  /// With room for as many entries as most_ says.
  ListRoom list_chosen(std::span<const DeviceBlocks* const> work) {
    const DeviceBlocks& first = *work.front();
    std::vector<BlockSelection> selections(rows_);
    for (const DeviceBlocks* b : work) {
      const std::uint32_t* slots = nullptr;
      if (!b->copy) {
        const Range pages = b->chosen.page_range();
        // Pages that were not chosen may be elsewhere.
        slots = owner_.page_tables_.slots(ctx_, b->sequence, layer_) + pages.begin;
      }
      selections[b->row] = b->chosen.launched(ctx_, slots);
    }
    const ListRoom lists = room_for_heads();
    pages_of_selection_cuda(ctx_.pass(selections), rows_, shape_.kv_heads, shape_.group(),
                            shape_.q_heads / lists_of(first.chosen.scope, shape_), first.own_only, lists.capacity,
                            lists.entries, lists.counts, ctx_.stream());
    return lists;
  }

  ListRoom list_tokens(std::span<const DeviceTokens> work) {
    std::vector<SingleTokens> tokens(most_.size());
    for (const DeviceTokens& t : work) {
      const auto* const slots = owner_.page_tables_.slots(ctx_, t.sequence, layer_);  // checked where they were scored
      for (std::uint32_t head = 0; head < shape_.kv_heads; ++head) {
        const std::size_t list = std::size_t{t.row} * shape_.kv_heads + head;
        tokens[list] = {ctx_.read<std::uint32_t>(t.tokens.lists) + head * t.tokens.stride, slots};
      }
    }
    const ListRoom lists = room_for_heads();
    pages_of_tokens_cuda(ctx_.pass(tokens), static_cast<std::uint32_t>(tokens.size()), lists.capacity, lists.entries,
                         lists.counts, ctx_.stream());
    return lists;
  }

  DecodeAttention& owner_;
  LaunchContext& ctx_;
  const ModelShape& shape_;
  std::uint32_t layer_, rows_;
  const float* q_;  // [rows][Hq][D]
  KvPages store_;
  std::vector<PartialOut> parts_;
  std::vector<std::uint32_t> most_;  // upper bounds of the lengths of the lists that are being made
};

void DecodeAttention::launch_device(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer,
                                    const DeviceWork& work, const Emission& emitted, const DeviceBuffer& out,
                                    const DeviceBuffer& lse) {
  const auto rows = static_cast<std::uint32_t>(work.fixed.size());
  LaunchedAttention& with = launched_fixed_[out.id()];
  DeviceLaunch launch(*this, ctx, shape, layer, rows);
  const auto store = [&](const PartialOut& to) {
    if (work.chooses_of_store())
      launch.chosen_and_fixed(work, to);
    else
      launch.fixed(work, emitted, with, to);
  };
  if (work.only_store()) {  // no other part to merge it with
    float* const sums = lse ? ctx.write<float>(lse) : ctx.scratch<float>(std::size_t{rows} * shape.q_heads);
    return store({ctx.write<float>(out), sums});
  }
  store(launch.new_part());
  launch.pages(work);
  launch.packed(work);
  launch.copied(work.blocks);
  launch.merge(out, lse);
}

}  // namespace tandem
