// The parts of Ops that keep digests of blocks: those of a context, and of blocks that fill up later.
#include <algorithm>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/digest.h"
#include "engine/kv/link_pieces.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/mechanism.h"

namespace tandem {
namespace {

constexpr std::uint32_t kDigestBlocks = 64;  // of one thread at a time

std::uint32_t digest_parts(std::uint32_t blocks) {
  return (blocks + kDigestBlocks - 1) / kDigestBlocks;
}

/// Blocks of `finer` that make up those of `index`.
Range children_of(const DigestIndex& index, Range blocks, const DigestIndex& finer) {
  const std::uint32_t each = index.block / finer.block;
  return {blocks.begin * each, std::min(blocks.end * each, finer.room)};
}

/// Of one KV head's blocks: the union of the smaller ones that each is made of.
void merge_finer(BodyContext& ctx, const DigestIndex& index, const DigestIndex& finer, std::uint32_t layer,
                 std::uint32_t head, Range blocks) {
  const std::size_t bytes = index.shape.vector_bytes();
  const char* from = finer.values.read<char>(ctx);
  char* to = index.values.write<char>(ctx);
  for (std::uint32_t b = blocks.begin; b < blocks.end; ++b) {
    const Range children = children_of(index, {b, b + 1}, finer);
    const std::size_t at = b * bytes, child = children.begin * bytes;
    merge_digest(from + finer.min_offset(layer, head) + child, from + finer.max_offset(layer, head) + child,
                 index.shape.type, children.end - children.begin, index.shape.head_dim,
                 to + index.min_offset(layer, head) + at, to + index.max_offset(layer, head) + at);
  }
}

struct DigestWork {
  struct Page {
    std::uint32_t slot = 0;
    Tier tier = Tier::device;
  };
  DigestIndex index;  // by value: one that grows gets other memory while this is still at work
  Range blocks;
  std::vector<Page> pages;  // of these blocks, in order
  bool on_device = false, on_host = false;
  LinkPieces pieces;                 // of the keys that a device reads from host memory
  std::optional<DigestIndex> finer;  // read instead of pages

  /// each(keys, tokens) for every page of a block, in order. `tiers`: where the pages of the device and the host begin.
  template <class Each>
  void for_pages(const KvStore& kv, const char* const (&tiers)[2], std::uint32_t head, std::uint32_t block,
                 const Each& each) const {
    const Range range = index.block_tokens(block);
    const Page* page = &pages[std::size_t{block - blocks.begin} * (index.block / kPageTokens)];
    for (std::uint32_t token = range.begin; token < range.end; token += kPageTokens, ++page)
      each(tiers[static_cast<int>(page->tier)] + kv.k_offset(page->slot, head),
           std::min(kPageTokens, range.end - token));
  }

  void make_bounds(BodyContext& ctx, const KvStore& kv, const char* const (&tiers)[2], std::uint32_t layer,
                   std::uint32_t head, Range range) const {
    const KvShape& s = kv.shape();
    const std::size_t bytes = s.vector_bytes();
    char* const values = index.values.write<char>(ctx);
    std::vector<char> low(index.block / kPageTokens * bytes), high(low.size());  // [page][D]
    for (std::uint32_t b = range.begin; b < range.end; ++b) {
      std::uint32_t count = 0;
      for_pages(kv, tiers, head, b, [&](const char* keys, std::uint32_t tokens) {
        build_digest(keys, s.type, tokens, s.head_dim, low.data() + count * bytes, high.data() + count * bytes);
        ++count;
      });
      merge_digest(low.data(), high.data(), s.type, count, s.head_dim,
                   values + index.min_offset(layer, head) + b * bytes,
                   values + index.max_offset(layer, head) + b * bytes);
    }
  }

  void make_means(BodyContext& ctx, const KvStore& kv, const char* const (&tiers)[2], std::uint32_t layer,
                  std::uint32_t head, Range range) const {
    const KvShape& s = kv.shape();
    char* const values = index.values.write<char>(ctx) + index.min_offset(layer, head);
    std::vector<float> sums(s.head_dim);
    for (std::uint32_t b = range.begin; b < range.end; ++b) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for_pages(kv, tiers, head, b, [&](const char* keys, std::uint32_t tokens) {
        add_keys(keys, s.type, tokens, s.head_dim, sums.data());
      });
      const Range tokens = index.block_tokens(b);
      mean_digest(sums.data(), tokens.end - tokens.begin, s.type, s.head_dim, values + b * s.vector_bytes());
    }
  }
};

DigestWork digest_work(const EngineParts& parts, const SequenceState& sequence, std::uint32_t id, std::uint32_t layer,
                       Range blocks, Op& op) {
  const KvShape& shape = parts.kv.shape();
  DigestWork work;
  work.index = parts.stores.digests.get(id);
  work.blocks = blocks;
  const DigestIndex& index = work.index;
  TANDEM_CHECK(blocks.end <= index.room, "digests of {} blocks in room for {}", blocks.end, index.room);
  const bool device = index.tier() == Tier::device;
  (device ? op.cost.hbm : op.cost.dram) += index.digest_bytes(blocks.end - blocks.begin);
  op.access.push_back(index.values.writes(layer, layer + 1));
  wait_for(op.after, index.read[layer]);
  if (!device) op.cost.tasks += shape.kv_heads * digest_parts(blocks.end - blocks.begin);
  if (index.finer) {  // built on the same lane, before
    const DigestIndex& finer = work.finer.emplace(parts.stores.digests.get(*index.finer));
    const Range children = children_of(index, blocks, finer);
    TANDEM_CHECK(children.end <= finer.digests[layer], "digests of {} blocks from those of {} smaller ones", blocks.end,
                 finer.digests[layer]);
    (device ? op.cost.hbm : op.cost.dram) += finer.digest_bytes(children.end - children.begin);
    op.access.push_back(finer.values.reads(layer, layer + 1));
    return work;
  }
  const Range tokens{index.block_tokens(blocks.begin).begin, index.block_tokens(blocks.end - 1).end};
  const std::uint64_t key_bytes = std::uint64_t{shape.kv_heads} * shape.vector_bytes();
  for (std::uint32_t token = tokens.begin; token < tokens.end; token += kPageTokens) {
    const std::uint32_t page = token / kPageTokens;
    std::uint32_t slot = parts.kv.slot(sequence.id, layer, page, index.tier());
    Tier tier = index.tier();
    if (slot == KvStore::kNoSlot && device) {
      tier = Tier::host;
      slot = parts.kv.slot(sequence.id, layer, page, tier);
    }
    TANDEM_CHECK(slot != KvStore::kNoSlot, "digests over block {} of layer {}, which is not there", page, layer);
    (tier == Tier::device ? work.on_device : work.on_host) = true;
    work.pages.push_back({slot, tier});
    const std::uint64_t bytes = std::min(kPageTokens, tokens.end - token) * key_bytes;
    if (!device) {
      op.cost.dram += bytes;
    } else if (tier == Tier::device) {
      op.cost.hbm += bytes;
    } else {
      op.cost.h2d += bytes;
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head)
        work.pieces.add(parts.kv.k_offset(slot, head), bytes / shape.kv_heads);
    }
    parts.kv.append_filled(sequence.id, layer, {page, page + 1}, tier, op.after);
    parts.kv.append_access(sequence.id, layer, {page, page + 1}, tier, Range{0, shape.kv_heads}, false, op.access);
  }
  return work;
}

/// One launch for what lies on the device and one for what lies on the host.
void launch_digests(LaunchContext& ctx, const KvStore& kv, std::uint32_t layer, std::span<const DigestWork> work) {
  const KvShape& s = kv.shape();
  const std::uint32_t pages_per_block = work.front().index.block / kPageTokens;
  const DigestKind kind = work.front().index.kind;
  struct Launched {
    std::vector<DigestRun> runs;
    std::vector<std::uint32_t> slots;
    std::vector<std::size_t> first_slots;
    std::uint32_t most = 0;
  };
  Launched of_tiers[2];
  for (const DigestWork& w : work) {
    if (w.finer) throw_not_on_gpu("Digests of blocks from those of smaller ones have");
    const DigestIndex& index = w.index;
    TANDEM_CHECK(index.kind == kind, "digests of two kinds at once");
    char* const values = index.values.write<char>(ctx) + index.min_offset(layer, 0);
    const DigestWork::Page* page = w.pages.data();
    std::optional<Tier> before;  // of the block before
    for (std::uint32_t block = w.blocks.begin; block < w.blocks.end; ++block) {
      const Range tokens = index.block_tokens(block);
      const Tier tier = page->tier;
      Launched& launched = of_tiers[static_cast<int>(tier)];
      if (before != tier) {
        launched.first_slots.push_back(launched.slots.size());
        launched.runs.push_back({nullptr, values + block * s.vector_bytes(), 0, index.room});
      }
      before = tier;
      for (std::uint32_t token = tokens.begin; token < tokens.end; token += kPageTokens, ++page) {
        if (page->tier != tier) throw_not_on_gpu("A digest of pages on both sides has");
        launched.slots.push_back(page->slot);
      }
      launched.runs.back().tokens += tokens.end - tokens.begin;
      launched.most = std::max(launched.most, launched.runs.back().tokens);
    }
  }
  for (const Tier tier : {Tier::device, Tier::host}) {
    Launched& launched = of_tiers[static_cast<int>(tier)];
    if (launched.runs.empty()) continue;
    const std::uint32_t* const slots = ctx.upload(launched.slots);
    for (std::size_t i = 0; i < launched.runs.size(); ++i) launched.runs[i].slots = slots + launched.first_slots[i];
    const char* pages = tier == Tier::device ? ctx.read<char>(kv.device_buffer()) : ctx.read<char>(kv.host_buffer());
    build_digests_cuda({pages, s.type, s.kv_heads, s.head_dim}, ctx.pass(launched.runs),
                       static_cast<std::uint32_t>(launched.runs.size()), launched.most, pages_per_block, ctx.stream(),
                       kind);
  }
}

Event submit_digests(EngineParts& parts, Tier tier, std::uint32_t layer, std::vector<DigestWork> work, Op op) {
  op.name = "build digests";
  op.cost.context = op.cost.hbm + op.cost.dram + op.cost.h2d;
  op.cause = Cause::selection;
  op.layer = layer;
  std::uint32_t pieces = 0;
  for (const DigestWork& w : work) pieces += w.pieces.count();
  op.cost.pieces = std::max(pieces, 1u);
  bool on_device = false, on_host = false;
  std::uint32_t block = 0;  // of digests that the device makes of keys
  for (const DigestWork& w : work) {
    if (tier == Tier::device && !w.finer) {
      TANDEM_CHECK(block == 0 || block == w.index.block, "digests of {} and of {} tokens at once", block,
                   w.index.block);
      block = w.index.block;
    }
    on_device = on_device || w.on_device;
    on_host = on_host || w.on_host;
  }
  op.cost.kernels = on_device && on_host ? 2 : 1;
  op.cost.gathered = on_host;
  op.launch = [&](LaunchContext& ctx) { launch_digests(ctx, parts.kv, layer, work); };
  op.body = [&kv = parts.kv, &pool = parts.pool, layer, work](BodyContext& ctx) {
    for (const DigestWork& w : work) {
      const char* tiers[2] = {w.on_device ? ctx.read<char>(kv.device_buffer()) : nullptr,
                              w.on_host ? ctx.read<char>(kv.host_buffer()) : nullptr};
      const std::uint32_t tasks = digest_parts(w.blocks.end - w.blocks.begin);
      pool.parallel_for(std::size_t{kv.shape().kv_heads} * tasks, [&](std::size_t task) {
        const auto head = static_cast<std::uint32_t>(task / tasks);
        const std::uint32_t first = w.blocks.begin + static_cast<std::uint32_t>(task % tasks) * kDigestBlocks;
        const Range blocks{first, std::min(first + kDigestBlocks, w.blocks.end)};
        if (w.finer) {
          merge_finer(ctx, w.index, *w.finer, layer, head, blocks);
        } else if (w.index.kind == DigestKind::mean) {
          w.make_means(ctx, kv, tiers, layer, head, blocks);
        } else {
          w.make_bounds(ctx, kv, tiers, layer, head, blocks);
        }
      });
    }
  };
  return parts.ask(tier == Tier::device ? LaneKind::device_compute : LaneKind::host_workers, std::move(op));
}

/// A session goes on: room for the digests of `tokens`; those there are get copied.
void grow_digests(EngineParts& parts, DigestIndex& index, std::uint32_t tokens) {
  const DigestIndex old = index;
  const std::uint32_t blocks = (tokens - old.tokens.begin) / old.block;
  index = make_digest_index(parts.device, old.tier(), old.sequence,
                            {old.tokens.begin, old.tokens.begin + blocks * old.block}, old.block, old.shape,
                            old.q_heads, old.first_layer, old.kind);
  index.digests = old.digests;
  index.finer = old.finer;
  Op op("extend digests", Cause::selection);
  op.access = {old.values.reads(), index.values.writes()};
  set_copies(op, [old, to = index](Copier& copier) {
    Copier::Between copies = copier.between(to.values, old.values);
    for (std::uint32_t layer = old.first_layer; layer < old.shape.layers; ++layer) {
      const std::size_t bytes = old.digests[layer] * old.shape.vector_bytes();
      for (std::uint32_t head = 0; head < old.shape.kv_heads; ++head) {
        copies.add(to.min_offset(layer, head), old.min_offset(layer, head), bytes);
        if (old.kind == DigestKind::bounds) copies.add(to.max_offset(layer, head), old.max_offset(layer, head), bytes);
      }
    }
  });
  const Event copied =
      parts.ask(old.tier() == Tier::device ? LaneKind::device_compute : LaneKind::host_workers, std::move(op));
  index.built.assign(old.shape.layers, copied);
}

}  // namespace

DigestRef Ops::build_digests(SequenceState& sequence, const DigestRequest& request) {
  const KvShape& shape = parts_.kv.shape();
  Range covered = request.tokens;
  if (request.grows) {
    const std::uint32_t most = std::max(sequence.max_tokens, covered.end) - covered.begin;
    covered.end = covered.begin + most / request.block * request.block;
  }
  DigestRef ref;
  ref.side = request.side;
  ref.id = parts_.stores.digests.add(make_digest_index(parts_.device, request.side, sequence.id, covered, request.block,
                                                       shape, parts_.forward.shape().q_heads, request.first_layer,
                                                       request.kind));
  DigestIndex& index = parts_.stores.digests.get(ref.id);
  if (request.finer) {
    const DigestIndex& finer = parts_.stores.digests.get(request.finer->id);
    TANDEM_CHECK(finer.kind == DigestKind::bounds && request.kind == DigestKind::bounds,
                 "means of blocks are not made from those of smaller ones");
    TANDEM_CHECK(finer.tier() == request.side && finer.sequence == sequence.id &&
                     finer.first_layer <= request.first_layer && finer.tokens.begin == covered.begin &&
                     finer.tokens.end >= covered.end && request.block % finer.block == 0,
                 "digests of {} tokens over [{}, {}) from those of {} over [{}, {})", request.block, covered.begin,
                 covered.end, finer.block, finer.tokens.begin, finer.tokens.end);
    index.finer = request.finer->id;
  }
  const std::uint32_t tokens = request.tokens.end - request.tokens.begin;
  const std::uint32_t blocks = request.grows ? tokens / request.block : index.room;
  if (blocks == 0) return ref;
  for (std::uint32_t layer = request.first_layer; layer < shape.layers; ++layer) {
    Op op;
    std::vector<DigestWork> work = {digest_work(parts_, sequence, ref.id, layer, {0, blocks}, op)};
    index.built[layer] = submit_digests(parts_, request.side, layer, std::move(work), std::move(op));
    index.digests[layer] = blocks;
  }
  return ref;
}

void Ops::extend_digests(std::uint32_t layer, std::span<const DigestExtension> extensions) {
  Op ops[2];  // by tier
  std::vector<DigestWork> work[2];
  std::vector<DigestIndex*> extended[2];
  for (const DigestExtension& extension : extensions) {
    DigestIndex& index = parts_.stores.digests.get(extension.digests.id);
    TANDEM_CHECK(layer >= index.first_layer, "digests of layer {}, which are kept from {} on", layer,
                 index.first_layer);
    const std::uint32_t blocks = (std::max(extension.end, index.tokens.begin) - index.tokens.begin) / index.block;
    if (blocks <= index.digests[layer]) continue;
    if (blocks > index.room) grow_digests(parts_, index, std::max(extension.sequence->max_tokens, extension.end));
    const auto tier = static_cast<std::size_t>(index.tier());
    work[tier].push_back(digest_work(parts_, *extension.sequence, extension.digests.id, layer,
                                     {index.digests[layer], blocks}, ops[tier]));
    index.digests[layer] = blocks;
    extended[tier].push_back(&index);
  }
  for (const Tier tier : {Tier::device, Tier::host}) {
    const auto i = static_cast<std::size_t>(tier);
    if (work[i].empty()) continue;
    const Event built = submit_digests(parts_, tier, layer, std::move(work[i]), std::move(ops[i]));
    for (DigestIndex* index : extended[i]) index->built[layer] = built;
  }
}

}  // namespace tandem
