#include "engine/kv/kv_store.h"

#include <algorithm>

#include "engine/common/error.h"

namespace tandem {
namespace {

constexpr std::uint32_t kReserved = 1u << 24;  // slots

}  // namespace

KvStore::KvStore(Device& device, const KvShape& shape, const KvBudget& budget)
    : shape_(shape), is_gpu_(device.is_gpu()) {
  const std::size_t bytes[2] = {budget.device_bytes, budget.host_bytes};
  const char* options[2] = {"--device-kv", "--host-kv"};
  for (int tier = 0; tier < 2; ++tier) {
    Pool& p = pools_[tier];
    p.option = options[tier];
    p.budget_bytes = bytes[tier];
    p.capacity = static_cast<std::uint32_t>(std::min<std::size_t>(bytes[tier] / shape_.slot_bytes(), kNoSlot - 1));
    if (p.capacity < shape_.layers) {
      throw_input_error("{} is {} bytes, less than one block of {} tokens in every layer ({} bytes): give it more.",
                        p.option, bytes[tier], kPageTokens, shape_.slot_bytes() * shape_.layers);
    }
    // Address space alone: a simulated batch takes millions of slots, and copies of these lists took as long as a step.
    const std::uint32_t room = std::min(p.capacity, kReserved);
    p.references.reserve(room);
    p.filled.reserve(room);
    p.drained.reserve(room);
  }
  device_buffer_ = device.allocate_device(pools_[0].capacity * shape_.slot_bytes(), "device kv");
  host_buffer_ = device.allocate_host(pools_[1].capacity * shape_.slot_bytes(), "host kv");
}

KvStore::Sequence& KvStore::sequence(SequenceId id) {
  const auto found = sequences_.find(id);
  TANDEM_CHECK(found != sequences_.end(), "sequence {} does not exist", id);
  return found->second;
}

const KvStore::Sequence& KvStore::sequence(SequenceId id) const {
  return const_cast<KvStore*>(this)->sequence(id);
}

SequenceId KvStore::create() {
  const SequenceId id = next_id_++;
  sequences_[id].layers.resize(shape_.layers);
  return id;
}

SequenceId KvStore::fork(SequenceId from) {
  const SequenceId id = create();
  share(id, from, {0, tokens(from)});
  constexpr int host = static_cast<int>(Tier::host);
  const Sequence& source = sequence(from);
  Sequence& copy = sequence(id);
  copy.held[host] = source.held[host];
  for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
    copy.layers[layer].slots[host] = source.layers[layer].slots[host];
    copy.layers[layer].filled[host] = source.layers[layer].filled[host];
    for (const std::uint32_t slot : copy.layers[layer].slots[host])
      if (slot != kNoSlot) ++pool(Tier::host).references[slot];
  }
  return id;
}

void KvStore::share(SequenceId to, SequenceId from, Range tokens) {
  Sequence& target = sequence(to);
  const Sequence& source = sequence(from);
  TANDEM_CHECK(to != from && target.tokens % kPageTokens == 0 && tokens.begin % kPageTokens == 0 &&
                   tokens.begin <= tokens.end && tokens.end <= source.tokens,
               "tokens [{}, {}) of a sequence of {} behind {}", tokens.begin, tokens.end, source.tokens, target.tokens);
  constexpr int tier = static_cast<int>(Tier::device);
  const Range blocks{tokens.begin / kPageTokens, blocks_for(tokens.end)};
  const std::uint32_t have = blocks_for(target.tokens);
  for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
    const Table& there = source.layers[layer];
    Table& here = target.layers[layer];
    const auto first = there.slots[tier].begin() + blocks.begin, last = there.slots[tier].begin() + blocks.end;
    here.slots[tier].insert(here.slots[tier].end(), first, last);
    for (auto slot = first; slot != last; ++slot) {
      if (*slot == kNoSlot) continue;
      ++pool(Tier::device).references[*slot];
      ++target.held[tier];
    }
    const Range dropped{std::max(there.dropped.begin, blocks.begin), std::min(there.dropped.end, blocks.end)};
    if (dropped.begin < dropped.end) {
      const Range moved{have + dropped.begin - blocks.begin, have + dropped.end - blocks.begin};
      here.dropped = {here.dropped.begin < here.dropped.end ? here.dropped.begin : moved.begin, moved.end};
    }
    for (const Event& event : there.filled[tier]) wait_for(here.filled[tier], event);
  }
  target.tokens += tokens.end - tokens.begin;
}

void KvStore::destroy(SequenceId id) {
  Sequence& s = sequence(id);
  for (const Table& table : s.layers) {
    for (const Tier tier : {Tier::device, Tier::host}) {
      for (const std::uint32_t slot : table.slots[static_cast<int>(tier)]) {
        if (slot != kNoSlot) give_back(tier, slot, {});
      }
    }
  }
  sequences_.erase(id);
}

bool KvStore::on_device(SequenceId id, std::uint32_t layer, Range blocks) const {
  const Table& table = sequence(id).layers[layer];
  const std::vector<std::uint32_t>& slots = table.slots[static_cast<int>(Tier::device)];
  if (blocks.begin >= blocks.end) return true;
  if (blocks.end > slots.size()) return false;
  const std::uint32_t begin = std::max(blocks.begin, table.dropped.begin),
                      end = std::min(blocks.end, table.dropped.end);
  return begin >= end || std::find(slots.begin() + begin, slots.begin() + end, kNoSlot) == slots.begin() + end;
}

void KvStore::require(Tier tier, std::size_t slots) {
  const Pool& p = pool(tier);
  if (tier == Tier::device) reclaim(slots);
  if (slots <= free_slots(tier)) return;
  throw_input_error(
      "The {} KV store is full: {} of {} bytes are in use and {} more are needed. Raise {}, or lower --batch, the "
      "context "
      "length or the method's budget.",
      tier == Tier::device ? "device" : "host", p.used * shape_.slot_bytes(), p.budget_bytes,
      slots * shape_.slot_bytes(), p.option);
}

std::uint32_t KvStore::take(Tier tier, std::vector<Event>& after) {
  Pool& p = pool(tier);
  std::uint32_t slot = 0;
  if (!p.free.empty()) {
    slot = p.free.take();
    for (const Event& event : p.lists[p.drained[slot]]) wait_for(after, event);
  } else {
    TANDEM_CHECK(p.high_water < p.capacity, "a slot was taken without room for it");
    slot = p.high_water++;
    p.references.push_back(0);
    p.filled.emplace_back();
    p.drained.push_back(0);
  }
  p.references[slot] = 1;
  p.filled[slot] = Event{};
  p.drained[slot] = 0;
  ++p.used;
  return slot;
}

void KvStore::give_back(Tier tier, std::uint32_t slot, const std::vector<Event>& after) {
  Pool& p = pool(tier);
  TANDEM_CHECK(p.references[slot] > 0, "slot {} is free already", slot);
  if (!after.empty()) add_drained(p, slot, after);
  if (--p.references[slot] > 0) return;
  p.free.put(slot);
  --p.used;
}

void KvStore::add_drained(Pool& p, std::uint32_t slot, const std::vector<Event>& after) {
  const bool first = p.drained[slot] == 0;
  if (!first || after != p.lists.back()) {  // neighbours are as a rule dropped together
    std::vector<Event> list = p.lists[p.drained[slot]];
    for (const Event& event : after) wait_for(list, event);
    if (list.empty()) return;
    if (list != p.lists.back()) p.lists.push_back(std::move(list));
  }
  if (first) p.has_drained.push_back(slot);
  p.drained[slot] = static_cast<std::uint32_t>(p.lists.size() - 1);
}

void KvStore::grow(SequenceId id, std::uint32_t count, std::vector<Event>& after) {
  Sequence& s = sequence(id);
  constexpr int tier = static_cast<int>(Tier::device);
  const std::uint32_t have = blocks_for(s.tokens), want = blocks_for(s.tokens + count);
  if (s.tokens % kPageTokens != 0) {
    const std::uint32_t tail = s.layers[0].slots[tier][have - 1];
    TANDEM_CHECK(tail != kNoSlot && pool(Tier::device).references[tail] == 1,
                 "the last page of sequence {} is shared or absent", id);
  }
  require(Tier::device, std::size_t{shape_.layers} * (want - have));
  for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
    std::vector<std::uint32_t>& slots = s.layers[layer].slots[tier];
    slots.resize(want, kNoSlot);
    for (std::uint32_t block = have; block < want; ++block) {
      slots[block] = take(Tier::device, after);
      ++s.held[tier];
    }
  }
  s.tokens += count;
}

void KvStore::truncate(SequenceId id, std::uint32_t tokens) {
  Sequence& s = sequence(id);
  TANDEM_CHECK(tokens <= s.tokens, "{} tokens of {}", tokens, s.tokens);
  ++s.rewrites;
  for (Table& table : s.layers) {
    for (const Tier tier : {Tier::device, Tier::host}) {
      std::vector<std::uint32_t>& slots = table.slots[static_cast<int>(tier)];
      // A copy in host memory of a page that is not full any more would be out of date.
      const std::uint32_t left = tier == Tier::device ? blocks_for(tokens) : tokens / kPageTokens;
      for (std::size_t block = left; block < slots.size(); ++block) {
        if (slots[block] == kNoSlot) continue;
        give_back(tier, slots[block], {});
        --s.held[static_cast<int>(tier)];
      }
      slots.resize(std::min<std::size_t>(slots.size(), left));
    }
  }
  s.tokens = tokens;
}

std::vector<SlotCopy> KvStore::privatise_tail(SequenceId id, std::vector<Event>& after) {
  Sequence& s = sequence(id);
  std::vector<SlotCopy> copies;
  if (s.tokens % kPageTokens == 0) return copies;
  const auto shared = [&](const Table& table) {
    return pool(Tier::device).references[table.slots[static_cast<int>(Tier::device)].back()] != 1;
  };
  require(Tier::device, static_cast<std::size_t>(std::count_if(s.layers.begin(), s.layers.end(), shared)));
  ++s.rewrites;
  for (Table& table : s.layers) {
    std::uint32_t& tail = table.slots[static_cast<int>(Tier::device)].back();
    if (pool(Tier::device).references[tail] == 1) continue;
    const std::uint32_t own = take(Tier::device, after);
    copies.push_back({tail, own});
    --pool(Tier::device).references[tail];
    tail = own;
  }
  return copies;
}

void KvStore::set_copied(std::span<const SlotCopy> copies, Event event) {
  if (!event.valid()) return;
  for (const SlotCopy& copy : copies) add_drained(pool(Tier::device), copy.from, {event});
}

std::vector<SlotCopy> KvStore::add_host_blocks(SequenceId id, std::uint32_t layer, Range blocks,
                                               std::vector<Event>& after) {
  Sequence& s = sequence(id);
  Table& table = s.layers[layer];
  std::vector<std::uint32_t>& host = table.slots[static_cast<int>(Tier::host)];
  const std::vector<std::uint32_t>& device = table.slots[static_cast<int>(Tier::device)];
  TANDEM_CHECK(blocks.end <= device.size(), "blocks [{}, {}) of a sequence of {}", blocks.begin, blocks.end,
               device.size());
  if (host.size() < blocks.end) host.resize(blocks.end, kNoSlot);
  require(Tier::host,
          static_cast<std::size_t>(std::count(host.begin() + blocks.begin, host.begin() + blocks.end, kNoSlot)));
  std::vector<SlotCopy> copies;
  for (std::uint32_t block = blocks.begin; block < blocks.end; ++block) {
    if (host[block] != kNoSlot) continue;
    TANDEM_CHECK(device[block] != kNoSlot, "block {} is not on the device", block);
    host[block] = take(Tier::host, after);
    ++s.held[static_cast<int>(Tier::host)];
    copies.push_back({device[block], host[block]});
  }
  return copies;
}

std::vector<SlotCopy> KvStore::add_device_blocks(SequenceId id, std::uint32_t layer, Range blocks,
                                                 std::vector<Event>& after) {
  Sequence& s = sequence(id);
  Table& table = s.layers[layer];
  std::vector<std::uint32_t>& device = table.slots[static_cast<int>(Tier::device)];
  const std::vector<std::uint32_t>& host = table.slots[static_cast<int>(Tier::host)];
  TANDEM_CHECK(blocks.end <= device.size(), "blocks [{}, {}) of a sequence of {}", blocks.begin, blocks.end,
               device.size());
  require(Tier::device,
          static_cast<std::size_t>(std::count(device.begin() + blocks.begin, device.begin() + blocks.end, kNoSlot)));
  std::vector<SlotCopy> copies;
  for (std::uint32_t block = blocks.begin; block < blocks.end; ++block) {
    if (device[block] != kNoSlot) continue;
    TANDEM_CHECK(block < host.size() && host[block] != kNoSlot, "block {} is in neither tier", block);
    device[block] = take(Tier::device, after);
    ++s.held[static_cast<int>(Tier::device)];
    copies.push_back({host[block], device[block]});
  }
  if (!copies.empty()) ++table.restores;
  return copies;
}

void KvStore::set_filled(SequenceId id, std::uint32_t layer, Range blocks, Tier tier, Event event) {
  if (is_gpu_) return wait_for(sequence(id).layers[layer].filled[static_cast<int>(tier)], event);
  const std::vector<std::uint32_t>& slots = sequence(id).layers[layer].slots[static_cast<int>(tier)];
  const auto end = static_cast<std::uint32_t>(std::min<std::size_t>(blocks.end, slots.size()));
  Pool& p = pool(tier);
  for (std::uint32_t block = blocks.begin; block < end; ++block) {
    if (slots[block] == kNoSlot) continue;
    Event& filled = p.filled[slots[block]];
    if (!filled.valid()) p.has_filled.push_back(slots[block]);
    filled = event;
  }
}

void KvStore::append_filled(SequenceId id, std::uint32_t layer, Range blocks, Tier tier,
                            std::vector<Event>& after) const {
  for (const Event& event : sequence(id).layers[layer].filled[static_cast<int>(tier)]) wait_for(after, event);
  if (is_gpu_) return;
  const std::vector<std::uint32_t>& slots = sequence(id).layers[layer].slots[static_cast<int>(tier)];
  const std::vector<Event>& filled = pool(tier).filled;
  const auto end = static_cast<std::uint32_t>(std::min<std::size_t>(blocks.end, slots.size()));
  Event last;  // neighbours were as a rule filled by one operation
  for (std::uint32_t block = blocks.begin; block < end; ++block) {
    if (slots[block] == kNoSlot || filled[slots[block]] == last) continue;
    last = filled[slots[block]];
    wait_for(after, last);
  }
}

void KvStore::drop(SequenceId id, std::uint32_t layer, Range blocks, Tier tier, const std::vector<Event>& after) {
  Sequence& s = sequence(id);
  std::vector<std::uint32_t>& slots = s.layers[layer].slots[static_cast<int>(tier)];
  for (std::uint32_t block = blocks.begin; block < std::min<std::size_t>(blocks.end, slots.size()); ++block) {
    if (slots[block] == kNoSlot) continue;
    give_back(tier, slots[block], after);
    slots[block] = kNoSlot;
    --s.held[static_cast<int>(tier)];
    if (tier != Tier::device) continue;
    Range& dropped = s.layers[layer].dropped;
    if (dropped.begin >= dropped.end) dropped = {block, block};
    dropped = {std::min(dropped.begin, block), std::max(dropped.end, block + 1)};
  }
}

std::uint32_t KvStore::slot(SequenceId id, std::uint32_t layer, std::uint32_t block, Tier tier) const {
  const std::vector<std::uint32_t>& slots = sequence(id).layers[layer].slots[static_cast<int>(tier)];
  return block < slots.size() ? slots[block] : kNoSlot;
}

void KvStore::append_slots(SequenceId id, std::uint32_t layer, Range blocks, Tier tier,
                           std::vector<std::uint32_t>& out) const {
  const auto before = static_cast<std::ptrdiff_t>(out.size());
  append_slots_or_none(id, layer, blocks, tier, out);
  const bool all_there = std::find(out.begin() + before, out.end(), kNoSlot) == out.end();
  if (!all_there) out.resize(static_cast<std::size_t>(before));
  TANDEM_CHECK(all_there, "blocks {} to {} of layer {} are not all on the {}", blocks.begin, blocks.end - 1, layer,
               tier == Tier::device ? "device" : "host");
}

void KvStore::append_slots_or_none(SequenceId id, std::uint32_t layer, Range blocks, Tier tier,
                                   std::vector<std::uint32_t>& out) const {
  if (blocks.begin >= blocks.end) return;
  const std::vector<std::uint32_t>& slots = sequence(id).layers[layer].slots[static_cast<int>(tier)];
  const std::size_t all = out.size() + blocks.end - blocks.begin, end = std::min<std::size_t>(blocks.end, slots.size());
  if (blocks.begin < end)
    out.insert(out.end(), slots.begin() + blocks.begin, slots.begin() + static_cast<std::ptrdiff_t>(end));
  out.resize(all, kNoSlot);
}

Access KvStore::slot_access(Tier tier, std::uint32_t first_slot, std::uint32_t slots, Range heads, bool write) const {
  // Slots are physical, so the sequence and layer of an extent stay 0: a recycled slot keeps its history.
  Access access;
  access.extent.buffer = tier == Tier::device ? device_buffer_.id() : host_buffer_.id();
  access.extent.heads = heads;
  access.extent.pages = {first_slot, first_slot + slots};
  access.write = write;
  return access;
}

std::vector<std::uint32_t> KvStore::declare_reads(Op& op, SequenceId id, std::uint32_t layer, Range blocks,
                                                  Tier tier) const {
  std::vector<std::uint32_t> slots;
  append_slots(id, layer, blocks, tier, slots);
  append_access(id, layer, blocks, tier, Range{0, shape_.kv_heads}, false, op.access);
  return slots;
}

void KvStore::append_access(SequenceId id, std::uint32_t layer, Range blocks, Tier tier, Range heads, bool write,
                            std::vector<Access>& out) const {
  if (is_gpu_) return out.push_back(slot_access(tier, 0, 1, heads, write));
  const std::vector<std::uint32_t>& slots = sequence(id).layers[layer].slots[static_cast<int>(tier)];
  const auto end = static_cast<std::uint32_t>(std::min<std::size_t>(blocks.end, slots.size()));
  for (std::uint32_t block = blocks.begin; block < end;) {
    if (slots[block] == kNoSlot) {
      ++block;
      continue;
    }
    std::uint32_t run = 1;
    while (block + run < end && slots[block + run] == slots[block] + run) ++run;
    out.push_back(slot_access(tier, slots[block], run, heads, write));
    block += run;
  }
}

void KvStore::all_done() {
  for (Pool& p : pools_) {
    for (const std::uint32_t slot : p.has_filled) p.filled[slot] = Event{};
    for (const std::uint32_t slot : p.has_drained) p.drained[slot] = 0;
    p.has_filled.clear();
    p.has_drained.clear();
    p.lists.resize(1);
  }
  for (auto& [id, sequence] : sequences_) {
    for (Table& table : sequence.layers) {
      for (std::vector<Event>& filled : table.filled) filled.clear();
    }
  }
}

}  // namespace tandem
