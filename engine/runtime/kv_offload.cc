#include "engine/runtime/kv_offload.h"

#include <algorithm>
#include <utility>

#include "engine/common/error.h"
#include "engine/runtime/copy_op.h"

namespace tandem {

KvOffload::KvOffload(KvStore& kv, const OffloadPolicy& policy, Submit submit)
    : kv_(kv), policy_(policy), submit_(std::move(submit)) {
  TANDEM_CHECK(policy.block % kPageTokens == 0 && policy.block > 0, "units of {} tokens are not whole pages",
               policy.block);
  policy_.look_ahead = std::min(policy.look_ahead, kv.shape().layers - 1);
}

std::size_t KvOffload::least_slots(std::uint32_t tokens) const {
  const std::uint32_t layers = kv_.shape().layers, together = std::min(1 + policy_.look_ahead, layers);
  return std::size_t{together} * blocks_for(tokens) + std::size_t{layers - together} * always_pages();
}

std::uint32_t KvOffload::always_pages() const {
  std::uint32_t units = 1;
  if (policy_.eviction == Eviction::attention)
    for (const std::uint32_t tokens : {policy_.sinks, policy_.window})
      units += (tokens + policy_.block - 1) / policy_.block;
  return units * unit_pages();
}

void KvOffload::add(SequenceId sequence) {
  Held held{.id = sequence, .layers = std::vector<Layer>(kv_.shape().layers), .mass = {}};
  for (Layer& layer : held.layers) layer.written = layer.settled = kv_.tokens(sequence);
  held_.push_back(std::move(held));
  grow(held_.back());
}

void KvOffload::remove(SequenceId sequence) {
  std::erase_if(held_, [&](const Held& held) { return held.id == sequence; });
  std::erase_if(wanted_, [&](const Wanted& wanted) { return wanted.sequence == sequence; });
}

void KvOffload::cancel(SequenceId sequence) {
  std::erase_if(wanted_, [&](const Wanted& wanted) { return wanted.sequence == sequence; });
  for (Layer& layer : held(sequence).layers) {
    if (!layer.coming) continue;
    layer.coming = false;
    --layer.pins;
  }
}

KvOffload::Held& KvOffload::held(SequenceId id) {
  const auto found = std::ranges::find(held_, id, &Held::id);
  TANDEM_CHECK(found != held_.end(), "sequence {} is not managed", id);
  return *found;
}

void KvOffload::grow(Held& held) {
  const std::size_t units = (blocks_for(kv_.tokens(held.id)) + unit_pages() - 1) / unit_pages();
  const std::uint64_t before = clock_;  // of one age in all layers, so that none loses more than another
  for (std::uint32_t layer = 0; layer < held.layers.size(); ++layer) {
    std::vector<Unit>& list = held.layers[layer].units;
    for (std::uint64_t age = before; list.size() < units;) {
      Unit unit;
      unit.came = unit.used = ++age;
      clock_ = std::max(clock_, age);
      const auto first = static_cast<std::uint32_t>(list.size()) * unit_pages();
      unit.on_device = kv_.slot(held.id, layer, first, Tier::device) != KvStore::kNoSlot;
      list.push_back(unit);
    }
    list.resize(units);  // after a prompt that failed
  }
}

Range KvOffload::pages_of(const Held& held, std::uint32_t unit) const {
  const std::uint32_t first = unit * unit_pages();
  return {first, std::min(first + unit_pages(), blocks_for(kv_.tokens(held.id)))};
}

std::size_t KvOffload::used_slots() const {
  std::size_t bytes = 0;
  for (const Held& held : held_) bytes += kv_.bytes(held.id, Tier::device);
  return bytes / kv_.shape().slot_bytes();
}

std::size_t KvOffload::room() const {
  const std::size_t used = used_slots();
  return std::min(limit() - std::min(used, limit()), kv_.free_slots(Tier::device));
}

std::vector<KvOffload::Place> KvOffload::missing(Held& held, std::uint32_t layer) {
  std::vector<Place> places;
  const std::vector<Unit>& units = held.layers[layer].units;
  for (std::uint32_t unit = 0; unit < units.size(); ++unit)
    if (!units[unit].on_device) places.push_back({&held, layer, unit});
  return places;
}

std::size_t KvOffload::pages(std::span<const Place> places) const {
  std::size_t sum = 0;
  for (const Place& place : places) {
    const Range pages = pages_of(*place.held, place.unit);
    sum += pages.end - pages.begin;
  }
  return sum;
}

void KvOffload::bring(std::span<const Place> places, bool ahead, std::size_t cancelled) {
  if (places.empty()) return;
  const Range heads{0, kv_.shape().kv_heads};
  Op op("restore kv", Cause::recall, places.front().layer);
  op.cost.ahead = ahead;
  op.cost.looked_up = pages(places) * kv_.shape().slot_bytes();
  op.cost.cancelled = cancelled * kv_.shape().slot_bytes();
  std::vector<SlotCopy> copies;
  for (const Place& place : places) {
    const Range pages = pages_of(*place.held, place.unit);
    kv_.append_filled(place.held->id, place.layer, pages, Tier::host, op.after);
    const std::vector<SlotCopy> more = kv_.add_device_blocks(place.held->id, place.layer, pages, op.after);
    for (const SlotCopy& copy : more) {
      op.access.push_back(kv_.slot_access(Tier::host, copy.from, 1, heads, false));
      op.access.push_back(kv_.slot_access(Tier::device, copy.to, 1, heads, true));
    }
    copies.insert(copies.end(), more.begin(), more.end());
  }
  set_copies(op, [&kv = kv_, copies](Copier& copier) {
    copier.between(kv.device_buffer(), kv.host_buffer()).add(copies, kv.shape().slot_bytes());
  });
  const Event arrived = submit_(LaneKind::h2d, std::move(op));
  ++clock_;
  for (const Place& place : places) {
    Unit& unit = place.held->layers[place.layer].units[place.unit];
    unit.on_device = true;
    unit.ahead = ahead;
    unit.came = clock_;
    unit.arrived = arrived;
    kv_.set_filled(place.held->id, place.layer, pages_of(*place.held, place.unit), Tier::device, arrived);
  }
}

void KvOffload::pin(const NeededKv& needed, std::uint32_t layer) {
  Held& own = held(needed.sequence);
  grow(own);
  Layer& wanted = own.layers[layer];
  TANDEM_CHECK(!wanted.in_part, "layer {} of sequence {} is needed twice", layer, needed.sequence);
  if (wanted.coming) --wanted.pins;
  wanted.coming = false;
  if (!needed.units) {
    ++wanted.pins;
    return;
  }
  wanted.in_part = true;
  for (const std::uint32_t unit : *needed.units) wanted.units.at(unit).pinned = true;
}

void KvOffload::unpin(Layer& layer) {
  if (layer.in_part) {
    for (Unit& unit : layer.units) unit.pinned = false;
    layer.in_part = false;
  } else {
    --layer.pins;
  }
}

std::vector<KvOffload::Place> KvOffload::needed_of(const NeededKv& needed, std::uint32_t layer) {
  Held& own = held(needed.sequence);
  std::vector<Place> places;
  for (std::uint32_t unit = 0; unit < own.layers[layer].units.size(); ++unit)
    if (!needed.units || own.layers[layer].units[unit].pinned) places.push_back({&own, layer, unit});
  return places;
}

Event KvOffload::need(std::span<const NeededKv> needed, std::uint32_t layer) {
  std::vector<Place> all, absent;
  std::size_t cancelled = 0;
  for (const NeededKv& one : needed) pin(one, layer);  // before anything leaves for one of them
  for (const NeededKv& one : needed) {
    const std::size_t before = absent.size();
    for (const Place& place : needed_of(one, layer)) {
      all.push_back(place);
      if (!place.held->layers[layer].units[place.unit].on_device) absent.push_back(place);
    }
    if (std::erase_if(wanted_, [&](const Wanted& w) { return w.sequence == one.sequence && w.layer == layer; }) > 0)
      cancelled += pages(std::span(absent).subspan(before));
    if (policy_.eviction != Eviction::lru_topk || absent.size() == before) continue;
    asking_ = Wanted{one.sequence, layer};
    evict(pages(absent));
    asking_.reset();
  }
  const std::size_t missing = pages(absent);
  if (missing > 0 && evict(missing) < missing) {
    for (const NeededKv& one : needed) unpin(held(one.sequence).layers[layer]);
    throw_input_error(
        "Layer {} needs {} pages of KV from host memory and the device has room for {} beside what cannot leave it: "
        "give the method more device memory, or raise --host-kv.",
        layer, missing, room());
  }
  bring(absent, false, cancelled);
  ++clock_;
  Event ready;
  for (const Place& place : all) {
    Unit& unit = place.held->layers[layer].units[place.unit];
    const Range pages = pages_of(*place.held, place.unit);
    counters_.needed += pages.end - pages.begin;
    (unit.ahead ? counters_.prefetched : counters_.hits) += pages.end - pages.begin;
    unit.ahead = false;
    unit.used = clock_;
    if (unit.arrived.value > ready.value) ready = unit.arrived;  // all come by one lane
  }
  counters_.cancelled += cancelled;
  counters_.misses += missing;
  counters_.hits -= missing;
  issue_wanted();
  return ready;
}

Event KvOffload::need(SequenceId sequence, std::uint32_t layer) {
  const NeededKv all[] = {{sequence}};
  const SequenceId one[] = {sequence};
  const Event ready = need(all, layer);
  for (std::uint32_t ahead = 1; ahead <= policy_.look_ahead; ++ahead)
    prefetch(one, (layer + ahead) % kv_.shape().layers);
  return ready;
}

void KvOffload::prefetch(std::span<const SequenceId> sequences, std::uint32_t layer) {
  for (const SequenceId id : sequences) {
    Held& own = held(id);
    grow(own);
    Layer& wanted = own.layers[layer];
    if (wanted.coming || wanted.pins > 0 || wanted.in_part) continue;
    wanted.coming = true;
    ++wanted.pins;
    wanted_.push_back({id, layer});
  }
  issue_wanted();
}

void KvOffload::issue_wanted() {
  std::vector<Place> coming;
  std::size_t claimed = 0;
  for (auto wanted = wanted_.begin(); wanted != wanted_.end();) {
    const std::vector<Place> places = missing(held(wanted->sequence), wanted->layer);
    const std::size_t have = places.empty() ? 0 : evict(claimed + pages(places));
    std::size_t taken = 0;
    for (const Place& place : places) {
      if (claimed + unit_pages() > have) break;
      claimed += unit_pages();
      coming.push_back(place);
      ++taken;
    }
    wanted = taken == places.size() ? wanted_.erase(wanted) : std::next(wanted);
  }
  bring(coming, true, 0);
}

void KvOffload::read(SequenceId sequence, std::uint32_t layer, Event reader) {
  Layer& own = held(sequence).layers[layer];
  TANDEM_CHECK(own.pins > 0 || own.in_part, "layer {} of sequence {} was read without need()", layer, sequence);
  unpin(own);
  own.read = reader;
  own.written = kv_.tokens(sequence);
}

void KvOffload::make_room(SequenceId sequence, std::uint32_t tokens) {
  make_room({&sequence, 1}, tokens);
}

void KvOffload::make_room(std::span<const SequenceId> sequences, std::uint32_t tokens) {
  growing_ = 0;
  for (const SequenceId id : sequences)
    growing_ += std::size_t{kv_.shape().layers} * (blocks_for(kv_.tokens(id) + tokens) - blocks_for(kv_.tokens(id)));
  evict(growing_);
}

void KvOffload::all_read(Event last) {
  for (Held& held : held_) {
    for (Layer& layer : held.layers) {
      layer.read = last;
      layer.settled = layer.written;
    }
  }
}

void KvOffload::set_mass(SequenceId sequence, std::span<const float> mass) {
  held(sequence).mass.assign(mass.begin(), mass.end());
}

void KvOffload::keep_page(SequenceId sequence, std::uint32_t page) {
  held(sequence).kept_page = page;
}

}  // namespace tandem
