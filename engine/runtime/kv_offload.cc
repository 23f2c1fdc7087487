#include "engine/runtime/kv_offload.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/common/error.h"
#include "engine/runtime/copy_op.h"

namespace tandem {

KvOffload::KvOffload(KvStore& kv, const OffloadPolicy& policy, Submit submit)
    : kv_(kv), policy_(policy), submit_(std::move(submit)) {
  TANDEM_CHECK(policy.block % kPageTokens == 0 && policy.block > 0, "units of {} tokens are not whole pages",
               policy.block);
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
  for (std::uint32_t layer = 0; layer < held.layers.size(); ++layer) {
    std::vector<Unit>& list = held.layers[layer].units;
    while (list.size() < units) {
      Unit unit;
      unit.came = unit.used = ++clock_;
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

bool KvOffload::may_leave(const Held& held, std::uint32_t layer, std::uint32_t unit) const {
  const std::uint32_t tokens = kv_.tokens(held.id);
  const Range pages = pages_of(held, unit);
  const std::uint32_t written = std::min(tokens, held.layers[layer].written);
  if (pages.begin + unit_pages() != pages.end || pages.end * kPageTokens > written) return false;
  if (held.kept_page >= pages.begin && held.kept_page < pages.end) return false;
  if (policy_.eviction != Eviction::attention) return true;
  return pages.begin * kPageTokens >= policy_.sinks && pages.end * kPageTokens + policy_.window <= tokens;
}

bool KvOffload::leaves_before(const Place& a, const Place& b) const {
  const auto mass_of = [](const Place& place) {
    return place.unit < place.held->mass.size() ? place.held->mass[place.unit] : 0.0f;
  };
  const Unit &first = a.held->layers[a.layer].units[a.unit], &second = b.held->layers[b.layer].units[b.unit];
  switch (policy_.eviction) {
    case Eviction::fixed:
      if (first.came != second.came) return first.came < second.came;
      break;
    case Eviction::lru:
      if (first.used != second.used) return first.used < second.used;
      break;
    case Eviction::attention:
      if (const float x = mass_of(a), y = mass_of(b); x != y) return x < y;
      // The same units stay in every layer, so that no layer has more to bring than another.
      if (a.unit != b.unit) return a.unit > b.unit;
      if (first.used != second.used) return first.used > second.used;
      break;
  }
  return std::tie(a.held->id, a.layer, a.unit) < std::tie(b.held->id, b.layer, b.unit);
}

std::size_t KvOffload::evict(std::size_t slots) {
  while (room() < slots || used_slots() > limit()) {
    const std::vector<Place> leaving = first_to_leave(slots);
    if (leaving.empty()) break;
    leave(leaving);  // slots that another sequence shares stay in use: look again
  }
  return room();
}

std::vector<KvOffload::Place> KvOffload::first_to_leave(std::size_t slots) {
  std::vector<Place> order, leaving;
  for (Held& held : held_) {
    for (std::uint32_t layer = 0; layer < held.layers.size(); ++layer) {
      if (held.layers[layer].pins > 0) continue;
      const std::vector<Unit>& units = held.layers[layer].units;
      for (std::uint32_t unit = 0; unit < units.size(); ++unit)
        if (units[unit].on_device && may_leave(held, layer, unit)) order.push_back({&held, layer, unit});
    }
  }
  // A heap gives the first few in order without sorting all.
  const auto later = [&](const Place& a, const Place& b) { return leaves_before(b, a); };
  std::ranges::make_heap(order, later);
  const std::size_t have = room(), used = used_slots();
  std::size_t freed = 0, host_room = kv_.free_slots(Tier::host);
  while (!order.empty() && (have + freed < slots || used > limit() + freed)) {
    std::ranges::pop_heap(order, later);
    const Place place = order.back();
    order.pop_back();
    const std::size_t without_copy = pages_without_copy(place);
    if (without_copy > host_room) continue;  // it stays: the host cannot take it
    host_room -= without_copy;
    freed += unit_pages();
    leaving.push_back(place);
  }
  // Side by side in host memory, so that they come back in long pieces.
  std::ranges::sort(leaving, {}, [](const Place& p) { return std::tuple(p.held->id, p.layer, p.unit); });
  return leaving;
}

std::size_t KvOffload::pages_without_copy(const Place& place) const {
  const Range pages = pages_of(*place.held, place.unit);
  std::size_t count = 0;
  for (std::uint32_t page = pages.begin; page < pages.end; ++page)
    if (kv_.slot(place.held->id, place.layer, page, Tier::host) == KvStore::kNoSlot) ++count;
  return count;
}

void KvOffload::leave(std::span<const Place> places) {
  if (places.empty()) return;
  const KvShape& shape = kv_.shape();
  const Range heads{0, shape.kv_heads};
  Op op("offload kv", Cause::offload);
  std::vector<SlotCopy> copies;
  std::vector<bool> copied(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    const Range pages = pages_of(*place.held, place.unit);
    const std::vector<SlotCopy> more = kv_.add_host_blocks(place.held->id, place.layer, pages, op.after);
    copied[i] = !more.empty();
    if (!copied[i]) continue;
    const Layer& layer = place.held->layers[place.layer];
    if (pages.end * kPageTokens > layer.settled) wait_for(op.after, layer.read);  // the layer wrote it before
    for (const SlotCopy& copy : more) {
      op.access.push_back(kv_.slot_access(Tier::device, copy.from, 1, heads, false));
      op.access.push_back(kv_.slot_access(Tier::host, copy.to, 1, heads, true));
    }
    copies.insert(copies.end(), more.begin(), more.end());
  }
  Event written;
  if (!copies.empty()) {
    counters_.written_back += copies.size();
    set_copies(op, [&kv = kv_, copies](Copier& copier) {
      copier.between(kv.host_buffer(), kv.device_buffer()).add(copies, kv.shape().slot_bytes());
    });
    written = submit_(LaneKind::d2h, std::move(op));
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    Layer& layer = place.held->layers[place.layer];
    Unit& unit = layer.units[place.unit];
    const Range pages = pages_of(*place.held, place.unit);
    std::vector<Event> after;
    wait_for(after, layer.read);
    wait_for(after, unit.arrived);
    if (copied[i]) {
      wait_for(after, written);
      kv_.set_filled(place.held->id, place.layer, pages, Tier::host, written);
    }
    kv_.drop(place.held->id, place.layer, pages, Tier::device, after);
    unit.on_device = unit.ahead = false;
    counters_.evicted += pages.end - pages.begin;
  }
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

void KvOffload::bring(std::span<const Place> places, bool ahead) {
  if (places.empty()) return;
  const Range heads{0, kv_.shape().kv_heads};
  Op op("restore kv", Cause::recall, places.front().layer);
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

Event KvOffload::need(std::span<const SequenceId> sequences, std::uint32_t layer) {
  std::vector<Place> absent;
  for (const SequenceId id : sequences) {
    Held& own = held(id);
    grow(own);
    Layer& wanted = own.layers[layer];
    if (!wanted.coming) ++wanted.pins;
    wanted.coming = false;
    const auto queued =
        std::ranges::find_if(wanted_, [&](const Wanted& w) { return w.sequence == id && w.layer == layer; });
    const std::vector<Place> more = missing(own, layer);
    if (queued != wanted_.end()) {
      counters_.cancelled += pages(more);
      wanted_.erase(queued);
    }
    absent.insert(absent.end(), more.begin(), more.end());
  }
  const std::size_t needed = pages(absent);
  if (needed > 0 && evict(needed) < needed) {
    for (const SequenceId id : sequences) --held(id).layers[layer].pins;
    throw_input_error(
        "Layer {} needs {} pages of KV from host memory and the device has room for {} beside what cannot leave it: "
        "give the method more device memory, or raise --host-kv.",
        layer, needed, room());
  }
  bring(absent, false);
  ++clock_;
  Event ready;
  for (const SequenceId id : sequences) {
    Held& own = held(id);
    for (std::uint32_t unit = 0; unit < own.layers[layer].units.size(); ++unit) {
      Unit& u = own.layers[layer].units[unit];
      const Range pages = pages_of(own, unit);
      counters_.needed += pages.end - pages.begin;
      (u.ahead ? counters_.prefetched : counters_.hits) += pages.end - pages.begin;
      u.ahead = false;
      u.used = clock_;
      if (u.arrived.value > ready.value) ready = u.arrived;  // all come by one lane
    }
  }
  counters_.misses += needed;
  counters_.hits -= needed;
  issue_wanted();
  return ready;
}

Event KvOffload::need(SequenceId sequence, std::uint32_t layer) {
  const SequenceId one[] = {sequence};
  const Event ready = need(one, layer);
  for (std::uint32_t ahead = 1; ahead <= policy_.look_ahead; ++ahead)
    prefetch(one, (layer + ahead) % kv_.shape().layers);
  return ready;
}

void KvOffload::prefetch(std::span<const SequenceId> sequences, std::uint32_t layer) {
  for (const SequenceId id : sequences) {
    Held& own = held(id);
    grow(own);
    Layer& wanted = own.layers[layer];
    if (wanted.coming || wanted.pins > 0) continue;
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
  bring(coming, true);
}

void KvOffload::read(SequenceId sequence, std::uint32_t layer, Event reader) {
  Layer& own = held(sequence).layers[layer];
  TANDEM_CHECK(own.pins > 0, "layer {} of sequence {} was read without need()", layer, sequence);
  --own.pins;
  own.read = reader;
  own.written = kv_.tokens(sequence);
}

void KvOffload::make_room(SequenceId sequence, std::uint32_t tokens) {
  const std::uint32_t have = kv_.tokens(sequence);
  const std::size_t slots = std::size_t{kv_.shape().layers} * (blocks_for(have + tokens) - blocks_for(have));
  growing_ = slots;
  evict(slots);
}

void KvOffload::evict_all(SequenceId sequence) {
  Held& own = held(sequence);
  grow(own);
  cancel(sequence);
  std::vector<Place> places;
  std::size_t without_copy = 0;
  for (std::uint32_t layer = 0; layer < own.layers.size(); ++layer) {
    TANDEM_CHECK(own.layers[layer].pins == 0, "layer {} is being read", layer);
    for (std::uint32_t unit = 0; unit < own.layers[layer].units.size(); ++unit) {
      if (!own.layers[layer].units[unit].on_device || !may_leave(own, layer, unit)) continue;
      places.push_back({&own, layer, unit});
      without_copy += pages_without_copy(places.back());
    }
  }
  if (without_copy > kv_.free_slots(Tier::host))
    throw_input_error("Host memory has room for {} more pages of KV and {} must move there: raise --host-kv.",
                      kv_.free_slots(Tier::host), without_copy);
  leave(places);
}

void KvOffload::all_read() {
  for (Held& held : held_) {
    for (Layer& layer : held.layers) {
      layer.read = {};
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
