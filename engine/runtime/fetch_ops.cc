// The parts of Ops that bring KV from host memory to the device for one attention.
#include <algorithm>
#include <cstring>

#include "engine/common/error.h"
#include "engine/kernels/paged_attention.h"
#include "engine/kv/link_pieces.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/launched_attention.h"
#include "engine/runtime/listed_fetch.h"
#include "engine/runtime/mechanism.h"
#include "engine/runtime/selection.h"

namespace tandem {
namespace {

struct FetchWork {
  Staging staging;  // by value: a renewed one gets other memory while this is still at work
  std::uint32_t part = 0;
  std::vector<std::uint32_t> slots;      // whole blocks in order
  std::shared_ptr<ChosenBlocks> chosen;  // in place of these
};

FetchWork fetch_work(const EngineParts& parts, const FetchRequest& request, std::uint32_t layer, Op& op) {
  const KvShape& shape = parts.kv.shape();
  const SequenceState& sequence = *request.sequence;
  Staging& staging = parts.stores.stagings.get(request.staging.id);
  FetchWork work;
  work.staging = staging;
  work.part = staging.next;
  staging.next = (staging.next + 1) % staging.parts();
  op.access.push_back(staging.values.writes(work.part, work.part + 1));
  wait_for(op.after, staging.read[work.part]);
  const auto add_blocks = [&](Range blocks) {
    parts.kv.append_filled(sequence.id, layer, blocks, Tier::host, op.after);
    return parts.kv.declare_reads(op, sequence.id, layer, blocks, Tier::host);
  };
  if (const auto* fixed = std::get_if<Ranges>(&request.tokens)) {
    for (const Range& r : fixed->positions) {
      TANDEM_CHECK(r.begin % kPageTokens == 0 && r.end % kPageTokens == 0, "tokens [{}, {}) are not whole pages",
                   r.begin, r.end);
      const std::vector<std::uint32_t> more = add_blocks({r.begin / kPageTokens, r.end / kPageTokens});
      work.slots.insert(work.slots.end(), more.begin(), more.end());
    }
    TANDEM_CHECK(work.slots.size() <= staging.pages_per_head, "{} blocks in room for {}", work.slots.size(),
                 staging.pages_per_head);
    LinkPieces pieces;
    for (const std::uint32_t slot : work.slots) pieces.add(parts.kv.k_offset(slot, 0), shape.slot_bytes());
    op.cost.pieces += pieces.count();
    op.cost.h2d += work.slots.size() * shape.slot_bytes();
    return work;
  }
  const auto& selection = std::get<Blocks>(request.tokens);
  TANDEM_CHECK(selection.digests.side == Side::device && selection.layer == layer,
               "a fetch of layer {} by a selection for layer {} that is not on the device", layer, selection.layer);
  work.chosen =
      std::make_shared<ChosenBlocks>(parts.stores.digests.get(selection.digests.id), selection, parts.forward.shape());
  ChosenBlocks& chosen = *work.chosen;
  chosen.slots = add_blocks(chosen.page_range());
  op.access.push_back(chosen.index.selection.reads());
  wait_for(op.after, selection.ready);
  TANDEM_CHECK(chosen.pages() <= staging.pages_per_head, "{} blocks of {} in room for {} pages", chosen.most,
               chosen.index.block, staging.pages_per_head);
  op.cost.h2d += std::uint64_t{chosen.most} * chosen.index.block * 2 * shape.vector_bytes() * shape.kv_heads;
  // Of a short page, the index's last tokens, K and V are apart.
  op.cost.pieces += (chosen.pages() + 1) * shape.kv_heads;
  op.cost.upper_bound = true;
  return work;
}

KvSource fetched(const EngineParts& parts, const FetchRequest& request, const FetchWork& work, Event ready) {
  Staging& staging = parts.stores.stagings.get(request.staging.id);
  const std::size_t page = staging.shape.page_bytes();
  KvMemory memory{
      TierBuffer(staging.values), staging.part_offset(work.part), page, staging.shape.slot_bytes(), kPageTokens,
      &staging.read[work.part]};
  const Access access = staging.values.reads(work.part, work.part + 1);
  if (const auto* chosen = std::get_if<Blocks>(&request.tokens)) {
    memory.head_bytes = staging.pages_per_head * page;
    memory.run_bytes = page;
    Blocks blocks = *chosen;
    blocks.side = Side::device;
    blocks.copy = {std::move(memory), access, ready};
    return blocks;
  }
  Packed kv;
  kv.sequence = staging.sequence;
  kv.positions = std::get<Ranges>(request.tokens).positions;
  kv.ready = ready;
  kv.memory = std::move(memory);
  kv.tokens = static_cast<std::uint32_t>(work.slots.size()) * kPageTokens;
  kv.access = {access};
  return kv;
}

/// Blocks that the host knows.
void copy_blocks(const KvStore& kv, Copier& copier, const FetchWork& w) {
  const std::size_t bytes = kv.shape().slot_bytes();
  Copier::Between pages = copier.between(w.staging.values, kv.host_buffer());
  for (std::uint32_t i = 0; i < w.slots.size(); ++i)
    pages.add(w.staging.block_offset(w.part, i, 0), w.slots[i] * bytes, bytes);
}

/// The device's own threads bring what it chose: the host does not know which pages these are. A page of a KV head
/// goes to the place that it has in the head's list (DeviceLaunch::list_chosen makes the same lists).
void launch_chosen_fetch(const EngineParts& parts, LaunchContext& ctx, std::span<const FetchWork* const> work,
                         const Cost& fixed) {
  const ModelShape shape = parts.forward.shape();
  const auto rows = static_cast<std::uint32_t>(work.size());
  std::vector<std::span<const std::uint32_t>> slots;
  slots.reserve(rows);
  for (const FetchWork* w : work) slots.emplace_back(w->chosen->slots);
  const std::vector<const std::uint32_t*> uploaded = ctx.upload_each(slots);
  std::vector<BlockSelection> selections;
  std::vector<void*> to;
  std::uint32_t capacity = 0;
  selections.reserve(rows);
  to.reserve(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    const FetchWork& w = *work[i];
    capacity = std::max(capacity, w.chosen->pages());
    selections.push_back(w.chosen->launched(ctx, uploaded[i]));
    to.push_back(ctx.write<char>(w.staging.values) + w.staging.part_offset(w.part));
  }
  const ListRoom lists = room_for_lists(ctx, std::size_t{rows} * shape.kv_heads, capacity, true);
  const FetchList list = make_fetch_list(ctx, rows, shape.kv_heads * capacity);
  pages_of_selection_cuda(ctx.pass(selections), rows, shape.kv_heads, shape.group(),
                          shape.q_heads / lists_of(work.front()->chosen->scope, shape), true, capacity, lists.entries,
                          lists.counts, ctx.stream());
  list_pages_cuda(lists.entries, lists.counts, rows, shape.kv_heads, capacity,
                  static_cast<std::uint32_t>(parts.kv.host_buffer().bytes() / parts.kv.shape().slot_bytes()), list,
                  ctx.stream());
  fetch_listed(ctx, list, parts.kv.shape().page_bytes(), ctx.read<char>(parts.kv.host_buffer()), to, fixed);
}

/// Adds to `cost` what copy_chosen() would, without going over the pages. With several KV heads two pages are adjacent
/// only where one head's last page and the next head's first are in the same slot (link_pieces.h).
void count_chosen(const EngineParts& parts, BodyContext& ctx, const ChosenBlocks& chosen, Cost& cost) {
  std::optional<std::uint32_t> last;  // block of the head before, where its last page is whole
  const std::uint32_t* const lists = chosen.lists(ctx);
  for (std::uint32_t g = 0; g < parts.kv.shape().kv_heads; ++g) {
    const BlockSet set = chosen.set(lists, parts.forward.shape(), g);
    const std::uint32_t tokens = chosen.index.tokens_of(set, chosen.blocks), part = tokens % kPageTokens;
    if (tokens == 0) continue;
    cost.h2d += std::uint64_t{2} * tokens * parts.kv.shape().vector_bytes();
    cost.pieces += blocks_for(tokens) + (part > 0 ? 1 : 0);  // K and V of a short page are apart
    if (chosen.index.block == kPageTokens && last == set.first()) --cost.pieces;
    last = part > 0 ? std::nullopt : std::optional(set.last());
  }
}

/// The chosen pages of each KV head, K and V; counts what it copies.
void copy_chosen(const EngineParts& parts, BodyContext& ctx, const Staging& staging, std::uint32_t part,
                 const ChosenBlocks& chosen, std::vector<Access>& access, Cost& cost) {
  const bool copies = ctx.computes();
  const KvShape& shape = parts.kv.shape();
  if (!copies && !ctx.lists_access() && shape.kv_heads > 1) return count_chosen(parts, ctx, chosen, cost);
  // Once: each look goes through what the operation declared, page by page.
  const std::uint32_t* const lists = chosen.lists(ctx);
  const char* const kv = copies ? ctx.read<char>(parts.kv.host_buffer()) : nullptr;
  char* const staged = copies ? ctx.write<char>(staging.values) : nullptr;
  LinkPieces pieces;
  for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
    const auto add = [&](std::uint32_t, std::uint32_t page, std::uint32_t place, std::uint32_t tokens) {
      const std::uint32_t slot = chosen.slots[page];
      const std::size_t bytes = tokens * shape.vector_bytes();
      cost.h2d += 2 * bytes;
      pieces.add(parts.kv.k_offset(slot, g), bytes);
      pieces.add(parts.kv.v_offset(slot, g), bytes);
      if (ctx.lists_access()) access.push_back(parts.kv.slot_access(Tier::host, slot, 1, Range{g, g + 1}, false));
      if (!copies) return;
      char* to = staged + staging.chosen_offset(part, g, place);
      std::memcpy(to, kv + parts.kv.k_offset(slot, g), bytes);
      std::memcpy(to + kPageTokens * shape.vector_bytes(), kv + parts.kv.v_offset(slot, g), bytes);
    };
    chosen.for_pages(lists, parts.forward.shape(), g, add);
  }
  cost.pieces += pieces.count();
}

}  // namespace

StagingRef Ops::make_staging(SequenceState& sequence, std::uint32_t tokens, std::uint32_t parts) {
  return {
      parts_.stores.stagings.add(tandem::make_staging(parts_.device, sequence.id, parts_.kv.shape(), tokens, parts))};
}

void Ops::renew_staging(const SequenceState& sequence, StagingRef ref, std::uint32_t tokens) {
  Staging& staging = parts_.stores.stagings.get(ref.id);
  staging = tandem::make_staging(parts_.device, sequence.id, parts_.kv.shape(), tokens, staging.parts());
}

std::vector<KvSource> Ops::fetch(std::uint32_t layer, std::span<const FetchRequest> requests) {
  Op op("fetch kv", Cause::recall, layer);
  op.kind = Kind::copy;
  op.cost.pieces = 0;
  std::vector<FetchWork> work;
  std::vector<Access> fixed;  // what is touched whatever was chosen
  Cost fixed_cost;
  work.reserve(requests.size());
  for (const FetchRequest& request : requests) {
    const std::size_t before = op.access.size();
    const Cost cost = op.cost;
    work.push_back(fetch_work(parts_, request, layer, op));
    const FetchWork& w = work.back();
    if (!w.chosen) {
      fixed.insert(fixed.end(), op.access.begin() + static_cast<std::ptrdiff_t>(before), op.access.end());
      fixed_cost.h2d += op.cost.h2d - cost.h2d;
      fixed_cost.pieces += op.cost.pieces - cost.pieces;
    } else {
      op.cost.gathered = true;
      fixed.push_back(w.staging.values.writes(w.part, w.part + 1));
      fixed.push_back(w.chosen->index.selection.reads());
    }
  }
  std::vector<const FetchWork*> chosen;
  std::uint32_t pages = 0;
  for (const FetchWork& w : work) {
    if (!w.chosen) continue;
    chosen.push_back(&w);
    TANDEM_CHECK(w.chosen->scope == chosen.front()->chosen->scope, "the rows of a batch choose alike");
    pages = std::max(pages, w.chosen->pages());
  }
  // Pages, pieces, gathers; what is known on the host comes along as one copy.
  if (!chosen.empty()) op.cost.kernels = 2 + gathers_of(chosen.size(), pages * parts_.kv.shape().slot_bytes());
  fixed_cost.pieces -= 1;  // a Cost starts with one
  op.launch = [&](LaunchContext& ctx) {
    CopyList list;
    Copier copier(ctx, list);
    for (const FetchWork& w : work)
      if (!w.chosen) copy_blocks(parts_.kv, copier, w);
    list.copy(CopyWay::over_link, ctx.stream());
    if (!chosen.empty()) launch_chosen_fetch(parts_, ctx, chosen, fixed_cost);
  };
  op.has_cost_only_part = op.cost.upper_bound;
  op.body = [this, work, fixed = std::move(fixed), fixed_cost](BodyContext& ctx) {
    Copier copier(ctx);
    std::vector<Access> access;
    if (ctx.lists_access()) access = fixed;
    Cost cost = fixed_cost;
    for (const FetchWork& w : work) {
      if (w.chosen)
        copy_chosen(parts_, ctx, w.staging, w.part, *w.chosen, access, cost);
      else if (ctx.computes())
        copy_blocks(parts_.kv, copier, w);
    }
    cost.pieces = std::max(cost.pieces, 1u);
    ctx.settle(cost, std::move(access));
  };
  op.cost.pieces = std::max(op.cost.pieces, 1u);
  const Event done = parts_.ask(LaneKind::h2d, std::move(op));
  std::vector<KvSource> sources;
  sources.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) sources.push_back(fetched(parts_, requests[i], work[i], done));
  return sources;
}

}  // namespace tandem
