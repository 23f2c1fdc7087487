// The part of KvOffload that decides who leaves the device, and lets them go.
#include <algorithm>
#include <tuple>

#include "engine/common/error.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/kv_offload.h"

namespace tandem {

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
    case Eviction::lru_topk:
      if (asks(a) != asks(b)) return asks(a);
      [[fallthrough]];
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
  kv_.reclaim(slots);
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
        if (units[unit].on_device && !units[unit].pinned && may_leave(held, layer, unit))
          order.push_back({&held, layer, unit});
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

void KvOffload::evict_all(SequenceId sequence) {
  Held& own = held(sequence);
  grow(own);
  cancel(sequence);
  std::vector<Place> places;
  std::size_t without_copy = 0;
  for (std::uint32_t layer = 0; layer < own.layers.size(); ++layer) {
    TANDEM_CHECK(own.layers[layer].pins == 0 && !own.layers[layer].in_part, "layer {} is being read", layer);
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

}  // namespace tandem
