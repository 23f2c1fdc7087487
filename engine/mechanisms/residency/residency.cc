#include "engine/mechanisms/residency/residency.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/topk.h"
#include "engine/kv/link_pieces.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/listed_fetch.h"
#include "engine/runtime/selection.h"

namespace tandem {
namespace {

constexpr std::uint32_t kBeforeTheFirstStep = 0xFFFFFFFFu;  // of the synthetic score process

}  // namespace

ResidentRef Residency::keep(SequenceState& sequence, const ResidentRequest& request) {
  TANDEM_CHECK(request.block > 0 && request.sinks % request.block == 0, "{} sinks, blocks of {}", request.sinks,
               request.block);
  TANDEM_CHECK(request.window % request.block == 0, "a window of {} tokens, blocks of {}", request.window,
               request.block);
  TANDEM_CHECK(request.block % kPageTokens == 0, "resident blocks of {} tokens from {}", request.block, request.sinks);
  const KvShape& shape = kv_.shape();
  ResidentSet set;
  set.sequence = sequence.id;
  set.shape = shape;
  set.block = request.block;
  set.begin = request.sinks;
  set.per_head = request.per_kv_head;
  set.lists = set.per_head ? shape.kv_heads : 1;
  set.candidates.resize(shape.layers);
  set.changed.resize(shape.layers);
  set.read.resize(shape.layers);
  set.host_pages = std::make_shared<HostPages>(shape.layers);
  set.choice = request.slots;
  set.recent = request.recent.has_value();
  const RecentBlocks recent = request.recent.value_or(RecentBlocks{request.slots});
  TANDEM_CHECK(recent.slots >= request.slots, "{} slots, of which a step chooses {}", recent.slots, request.slots);
  make_resident_slots(device_, set, recent.slots);
  set.window = request.window;
  set.first_layer = request.first_layer;
  set.reduce = request.reduce.value_or(request.per_kv_head ? Reduce::max : Reduce::mean);
  set.digests = parts_.ops
                    .build_digests(sequence, {.tokens = {request.sinks, set.filled(sequence.tokens)},
                                              .block = request.block,
                                              .side = Side::device,
                                              .grows = true,
                                              .first_layer = request.first_layer,
                                              .kind = request.digests})
                    .id;
  if (set.recent) empty_slots(set);
  const bool fits = set.filled(sequence.tokens) <= set.begin + set.slots * set.block;
  const ResidentRef ref{kept_.add(std::move(set))};
  take_in(sequence, ref, fits || recent.filled);
  return ref;
}

void Residency::renew(SequenceState& sequence, ResidentRef ref, std::uint32_t slots) {
  ResidentSet& set = kept_.get(ref.id);
  if (slots != set.slots) make_resident_slots(device_, set, slots);
  const DigestExtension extension{&sequence, {set.digests, Side::device}, set.filled(sequence.tokens)};
  for (std::uint32_t layer = set.first_layer; layer < kv_.shape().layers; ++layer)
    parts_.ops.extend_digests(layer, {&extension, 1});
  take_in(sequence, ref, true);
}

/// Chooses the residents anew by the prompt's last query, and moves new blocks to host memory: first, if older blocks
/// are there already, since residents are gathered from one side. Recent blocks are not chosen: with `fills`, new ones
/// take the slots of their numbers.
void Residency::take_in(SequenceState& sequence, ResidentRef ref, bool fills) {
  ResidentSet& set = kept_.get(ref.id);
  const std::uint32_t filled = set.filled(sequence.tokens);
  for (std::uint32_t layer = set.first_layer; layer < kv_.shape().layers; ++layer) {
    const Range added{set.begin + set.candidates[layer] * set.block, filled};
    const std::uint32_t before = set.candidates[layer];
    set.candidates[layer] = (filled - set.begin) / set.block;
    if (set.recent) {
      if (fills && before < set.residents(layer)) keep_filled(sequence, set, layer, {before, set.residents(layer)});
      if (added.end > added.begin) parts_.ops.move_to_host(sequence, added, layer, nullptr);
      continue;
    }
    set.changed[layer] = set.read[layer] = Event{};
    if (set.candidates[layer] == 0) continue;
    const bool goes = added.end > added.begin, others_there = added.begin > set.begin;
    if (goes && others_there) parts_.ops.move_to_host(sequence, added, layer, nullptr);
    place_residents(sequence, set, layer);
    if (goes && !others_there) parts_.ops.move_to_host(sequence, added, layer, nullptr);
  }
}

void Residency::place_residents(const SequenceState& sequence, const ResidentSet& set, std::uint32_t layer) {
  const KvShape& shape = kv_.shape();
  const ModelShape model = forward_.shape();
  const std::uint32_t q_heads = model.q_heads;
  const PromptQueries& queries = parts_.queries_of(sequence.id);
  const DigestIndex& index = parts_.stores.digests.get(set.digests);
  Op op("place residents", Cause::recall, layer);
  const Range range = set.page_range(layer);
  const Tier tier = kv_.on_device(sequence.id, layer, {range.begin, range.begin + 1}) ? Tier::device : Tier::host;
  const bool from_host = tier == Tier::host;
  const std::vector<std::uint32_t> store_slots = kv_.declare_reads(op, sequence.id, layer, range, tier);
  if (from_host) kv_.append_filled(sequence.id, layer, range, tier, op.after);
  Choice choice;
  choice.blocks = set.candidates[layer];
  choice.keep = set.residents(layer);
  choice.scope = set.scope();
  choice.reduce = set.reduce;
  // Scores, what heads share, top-k, slots, gathers.
  op.cost.kernels = (choice.reduce == Reduce::softmax_mean ? 5 : 4) +
                    gathers_of(set.lists, choice.keep * set.block_bytes() / set.lists);
  op.access.insert(op.access.end(), {set.table.writes(layer, layer + 1), set.pages.writes(layer, layer + 1),
                                     queries.values.reads(layer, layer + 1), index.values.reads(layer, layer + 1)});
  op.cost.hbm = index.digest_bytes(choice.blocks) + std::uint64_t{q_heads} * shape.head_dim * sizeof(float) +
                2 * choice.keep * set.block_bytes();
  op.cost.h2d = from_host ? choice.keep * set.block_bytes() : 0;
  op.cost.pieces = choice.keep * set.pages_per_block() * set.lists;
  op.cost.flops = std::uint64_t{4} * q_heads * choice.blocks * shape.head_dim;
  op.cost.gathered = op.cost.upper_bound = from_host;
  // Scores and choice as in a step. The chosen blocks then take the slots as a recall would give them, in order: from a
  // table that holds none of them.
  op.launch = [&](LaunchContext& ctx) {
    const std::size_t at = std::size_t{layer} * queries.kept + (sequence.tokens - 1) % queries.kept;
    const float* query = ctx.read<float>(queries.values) + at * q_heads * shape.head_dim;
    const std::uint32_t blocks = choice.blocks, keep = choice.keep;
    auto* const scores = ctx.scratch<float>(std::size_t{model.q_heads} * blocks);
    auto* const reduced = ctx.scratch<float>(std::size_t{set.lists} * blocks);
    const std::vector<BlockScores> row = {
        {query, index.values.read<char>(ctx) + index.min_offset(layer, 0), blocks, scores, index.room}};
    score_blocks_cuda(ctx.upload(row), 1, blocks, shape.kv_heads, {model.group(), shape.head_dim, shape.type},
                      ctx.stream(), index.kind);
    launch_reduction(ctx, model, choice, {{scores, reduced, blocks}}, blocks);
    std::vector<TopKRow> lists;
    std::vector<ResidentSwap> swaps;
    std::vector<Pieces> moves;
    const std::uint32_t* all_pages = ctx.upload(store_slots);
    const std::vector<std::uint32_t> nothing = {0};
    const std::uint32_t* none = ctx.upload(nothing);
    for (std::uint32_t list = 0; list < set.lists; ++list) {
      auto* const chosen = ctx.scratch<std::uint32_t>(1 + std::size_t{keep});
      lists.push_back({reduced + std::size_t{list} * blocks, blocks, keep, chosen, choice.always_first});
      swaps.push_back({.chosen = none,
                       .missing = chosen,
                       .slots = keep,
                       .pages = all_pages,
                       .moves = ctx.scratch<std::uint32_t>(1)});
      moves.push_back(listed_moves(ctx, set, layer, list, memory_of(ctx, tier), swaps.back()));
    }
    top_k_cuda(ctx.pass(lists), set.lists, 1, ctx.stream());
    swap_residents_cuda(ctx.pass(swaps), set.lists, ctx.stream());
    gather_lists(ctx, moves);  // as many as there are slots
  };
  op.has_cost_only_part = true;
  op.body = [this, set, model, layer, index, choice, queries, store_slots, tier, from_host, cost = op.cost,
             token = sequence.tokens - 1, request = sequence.request](BodyContext& ctx) {
    std::vector<std::uint32_t> lists(set.lists * (1 + std::size_t{choice.keep}));
    if (ctx.computes()) {
      const std::size_t at = std::size_t{layer} * queries.kept + token % queries.kept;
      const float* query = ctx.read<float>(queries.values) + at * model.q_heads * model.head_dim;
      std::vector<float> scores(std::size_t{model.q_heads} * choice.blocks);
      score_index(pool_, model, ctx, index, layer, choice.blocks, query, scores.data(), {0, model.kv_heads});
      choose_blocks(pool_, model, choice, scores.data(), lists.data(), choice.keep);
    } else {
      lists = draws_->chosen_blocks(draws_->place(request, layer, kBeforeTheFirstStep, BatchDraws::by(choice.scope)),
                                    choice);
    }
    Cost exact = cost;
    exact.h2d = 0;
    LinkPieces crossing;
    const std::uint32_t none = 0;
    for (std::uint32_t list = 0; list < set.lists; ++list) {
      const std::uint64_t moved = move_residents(ctx, set, layer, list, tier, crossing,
                                                 {.chosen = &none,
                                                  .missing = lists.data() + list * (1 + std::size_t{choice.keep}),
                                                  .slots = choice.keep,
                                                  .pages = store_slots.data()});
      exact.hbm -= moved;  // read over the link, not from the device
      exact.h2d += moved;
    }
    exact.pieces = std::max(crossing.count(), 1u);
    if (from_host) ctx.settle(exact);
  };
  op.cost.pieces = from_host ? op.cost.pieces : 1;
  ask(LaneKind::device_compute, std::move(op));
}

const char* Residency::memory_of(const BodyContext& ctx, Tier tier) const {
  return tier == Tier::host ? ctx.read<char>(kv_.host_buffer()) : ctx.read<char>(kv_.device_buffer());
}

std::uint64_t Residency::move_residents(BodyContext& ctx, const ResidentSet& set, std::uint32_t layer,
                                        std::uint32_t list, Tier tier, LinkPieces& crossing, ResidentSwap swap) const {
  std::uint32_t moves = 0;
  const std::uint32_t pages = swap.pages_per_block = set.pages_per_block();
  std::vector<std::uint32_t> from(std::size_t{std::min(swap.slots, set.choice)} * pages), to(from.size());
  swap.table = ctx.write<std::uint32_t>(set.table) + set.table_offset(layer, list);
  if (set.recent) swap.order = ctx.write<std::uint32_t>(set.order) + set.table_offset(layer, list);
  swap.from = from.data();
  swap.to = to.data();
  swap.moves = &moves;
  swap_residents(swap);
  const std::size_t bytes = set.moved_bytes();
  const char* const kv = ctx.computes() ? memory_of(ctx, tier) : nullptr;
  char* const residents = ctx.computes() ? ctx.write<char>(set.pages) : nullptr;
  for (std::uint32_t i = 0; i < moves; ++i) {
    crossing.add(kv_.k_offset(from[i], list), bytes);
    if (!ctx.computes()) continue;
    std::memcpy(residents + set.page_offset(layer, to[i] / pages, to[i] % pages, list),
                kv + kv_.k_offset(from[i], list), bytes);
  }
  return moves * bytes;
}

Pieces Residency::listed_moves(LaunchContext& ctx, const ResidentSet& set, std::uint32_t layer, std::uint32_t list,
                               const char* from, ResidentSwap& swap) const {
  swap.table = ctx.write<std::uint32_t>(set.table) + set.table_offset(layer, list);
  if (set.recent) {
    swap.order = ctx.write<std::uint32_t>(set.order) + set.table_offset(layer, list);
    swap.next = ctx.scratch<std::uint32_t>(swap.slots);
  }
  swap.pages_per_block = set.pages_per_block();
  const std::uint32_t most = std::min(swap.slots, set.choice) * swap.pages_per_block;
  swap.from = ctx.scratch<std::uint32_t>(most);
  swap.to = ctx.scratch<std::uint32_t>(most);
  return {.from = from + kv_.k_offset(0, list),
          .from_stride = set.shape.slot_bytes(),
          .to = ctx.write<char>(set.pages) + set.page_offset(layer, 0, 0, list),
          .to_stride = set.shape.slot_bytes(),
          .bytes = set.moved_bytes(),
          .from_slots = swap.from,
          .to_slots = swap.to,
          .count = most,
          .slots_on_host = false,
          .device_count = swap.moves};
}

void Residency::extend(SequenceState&, ResidentRef ref, std::uint32_t slots) {
  ResidentSet& set = kept_.get(ref.id);
  if (slots <= set.slots) return;
  TANDEM_CHECK(std::ranges::max(set.candidates) <= set.slots, "of {} blocks {} were resident: new slots would be empty",
               std::ranges::max(set.candidates), set.slots);
  const ResidentSet old = set;
  make_resident_slots(device_, set, slots);
  Op op("extend residents", Cause::offload);
  op.access = {old.table.reads(), old.pages.reads(), set.table.writes(), set.pages.writes()};
  op.has_cost_only_part = true;
  set_copies(op, [old, to = set](Copier& copier) {
    Copier::Between tables = copier.between(to.table, old.table), pages = copier.between(to.pages, old.pages);
    for (std::uint32_t layer = 0; layer < old.shape.layers; ++layer) {
      const std::uint32_t held = old.residents(layer);
      for (std::uint32_t l = 0; l < old.lists; ++l)
        tables.add(to.table_offset(layer, l) * sizeof(held), old.table_offset(layer, l) * sizeof(held),
                   held * sizeof(held));
      if (copier.computes())
        pages.add(to.page_offset(layer, 0, 0, 0), old.page_offset(layer, 0, 0, 0), held * old.block_bytes());
    }
  });
  ask(LaneKind::device_compute, std::move(op));
}

void Residency::block_filled(SequenceState& sequence, ResidentRef ref, std::uint32_t layer) {
  ResidentSet& set = kept_.get(ref.id);
  const std::uint32_t begin = set.begin + set.candidates[layer] * set.block, end = begin + set.block;
  TANDEM_CHECK(end <= sequence.tokens, "the block of tokens [{}, {}) is not filled", begin, end);
  const DigestExtension extension{&sequence, {set.digests, Side::device}, end};
  parts_.ops.extend_digests(layer, {&extension, 1});
  const std::uint32_t block = set.candidates[layer];
  if (block < set.slots) keep_filled(sequence, set, layer, {block, block + 1});
  ++set.candidates[layer];
  parts_.ops.move_to_host(sequence, {begin, end}, layer, nullptr);
}

/// No slot holds a block, and the order begins with slot 0.
void Residency::empty_slots(const ResidentSet& set) {
  Op op("empty slots", Cause::offload);
  op.access = {set.table.writes(), set.order.writes()};
  std::vector<std::uint32_t> numbers(set.slots);
  std::iota(numbers.begin(), numbers.end(), 0u);
  const std::vector<std::uint32_t> nothing(set.slots, kNoBlock);
  op.has_cost_only_part = true;
  set_copies(op, [set, numbers, nothing](Copier& copier) {
    Copier::Between blocks = copier.from_values(set.table, std::as_bytes(std::span(nothing)));
    Copier::Between order = copier.from_values(set.order, std::as_bytes(std::span(numbers)));
    const std::size_t bytes = set.slots * sizeof(std::uint32_t);
    for (std::size_t list = 0; list < std::size_t{set.shape.layers} * set.lists; ++list) {
      blocks.add(list * bytes, 0, bytes);
      order.add(list * bytes, 0, bytes);
    }
  });
  ask(LaneKind::device_compute, std::move(op));
}

/// While slots are free every block is resident, and its candidate number is its slot.
void Residency::keep_filled(const SequenceState& sequence, const ResidentSet& set, std::uint32_t layer, Range blocks) {
  Op op("keep filled block", Cause::offload, layer);  // it leaves the KV store's device tier; no link is crossed
  const std::uint32_t first = set.begin / kPageTokens, of_block = set.pages_per_block();
  const Range pages{first + blocks.begin * of_block, first + blocks.end * of_block};
  const std::vector<std::uint32_t> slots = kv_.declare_reads(op, sequence.id, layer, pages, Tier::device);
  op.access.insert(op.access.end(), {set.table.writes(layer, layer + 1), set.pages.writes(layer, layer + 1)});
  op.has_cost_only_part = true;
  std::vector<std::uint32_t> numbers(blocks.end - blocks.begin);
  std::iota(numbers.begin(), numbers.end(), blocks.begin);
  set_copies(op, [this, set, layer, slots, numbers](Copier& copier) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(numbers));
    Copier::Between entries = copier.from_values(set.table, bytes);
    for (std::uint32_t list = 0; list < set.lists; ++list)
      entries.add((set.table_offset(layer, list) + numbers[0]) * sizeof(numbers[0]), 0, bytes.size());
    if (!copier.computes()) return;
    Copier::Between filled = copier.between(set.pages, kv_.device_buffer());
    for (std::uint32_t page = 0; page < slots.size(); ++page)
      filled.add(set.page_offset(layer, numbers[0], page, 0), kv_.k_offset(slots[page], 0), set.shape.slot_bytes());
  });
  op.cost.hbm = 2 * numbers.size() * set.block_bytes();
  op.cost.pieces = static_cast<std::uint32_t>(slots.size());
  ask(LaneKind::device_compute, std::move(op));
}

Packed Residency::kv(ResidentRef ref, std::uint32_t layer, bool chosen_only) {
  ResidentSet& set = kept_.get(ref.id);
  Packed kv;
  kv.sequence = set.sequence;
  kv.memory = {TierBuffer(set.pages),
               set.page_offset(layer, 0, 0, 0),
               set.shape.page_bytes(),
               set.shape.slot_bytes(),
               kPageTokens,
               &set.read[layer]};
  kv.tokens = set.residents(layer) * set.block;
  kv.block_runs = set.pages_per_block();
  kv.counted = true;
  kv.access = {set.pages.reads(layer, layer + 1)};
  if (!chosen_only || !set.chooses(layer)) return kv;
  const std::size_t next_list = set.per_head ? 1 : 0;
  Packed::Named named;
  named.table = set.table;
  named.table_offset = set.table_offset(layer, 0);
  named.table_stride = next_list * set.slots;
  named.numbers = set.candidates[layer];
  kv.access.push_back(set.table.reads(layer, layer + 1));
  if (set.open(layer)) {
    named.chosen = set.chosen;
    named.chosen_offset = set.choice_offset(layer, 0);
    named.chosen_stride = next_list * (1 + std::size_t{set.choice});
    kv.access.push_back(set.chosen.reads(layer, layer + 1));
  } else {  // all candidates are resident: the choice was not split, and lies where it was made
    const DigestIndex& index = parts_.stores.digests.get(set.digests);
    named.chosen = index.selection;
    named.chosen_stride = next_list * (1 + std::size_t{index.room});
    kv.access.push_back(index.selection.reads());
  }
  kv.named = std::move(named);
  return kv;
}

SplitRef Residency::split(const LayerContext& context, const QueryRef& query, std::span<const ResidentRef> sets) {
  SplitRef split;
  split.query = query;
  std::vector<ScoreRequest> requests;
  std::vector<std::size_t> open;  // requests of the split's rows
  for (std::uint32_t row = 0; row < context.batch.size(); ++row) {
    const ResidentSet& set = kept_.get(sets[row].id);
    if (!set.chooses(query.layer)) continue;
    if (set.open(query.layer)) {
      split.rows.push_back(row);
      split.sets.push_back(sets[row]);
      open.push_back(requests.size());
    }
    requests.push_back({.sequence = context.batch[row],
                        .digests = {set.digests, Side::device},
                        .blocks = set.choice,
                        .scope = set.scope(),
                        .reduce = set.reduce});
  }
  if (requests.empty()) return split;
  LayerContext ahead = context;
  ahead.layer = query.layer;
  const std::vector<Blocks> selections =
      attention_.select_on_device(ahead, requests, attention_.query_values(query), query.ready);
  std::vector<Blocks> of_rows;
  of_rows.reserve(open.size());
  for (const std::size_t request : open) of_rows.push_back(selections[request]);
  split.ready = of_rows.empty() ? selections.front().ready : submit_split(split, of_rows);
  return split;
}

}  // namespace tandem
