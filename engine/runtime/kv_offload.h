// The offload manager: KV of some sequences under a device budget, the rest in host memory (article on long-context
// serving, "KV offload manager", "Eviction policies", "Prefetching strategy").
//
// A *unit* is a run of adjacent pages of one layer that moves together. It is in one of three states, which are read
// off the KV store: on the device only (never evicted yet), in both tiers, in host memory only. KV does not change
// once its page is full, so a unit is copied to host memory when it is first evicted, and later evictions only drop it.
// The newest unit never leaves while it grows, nor any before its layer has read it: until then it may be unwritten.
// Methods that attend to all tokens need whole layers, others the units that a step's choice names.
//
// Full pool: need() evicts units that are not pinned, in the policy's order, and throws InputError where these are too
// few. A prefetch that finds no room waits, and is cancelled when its layer is needed. Full host memory:
// a unit without a copy there stays on the device, and the next one in order goes. Forks: a sequence gives up its own
// references; slots that a prefix shares stay until the prefix lets go of them. A sequence may be removed at any time;
// its pages go back to the store (KvStore::destroy) when its copies are done, which a session waits for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/kv/kv_store.h"
#include "engine/runtime/layer_keeper.h"

namespace tandem {

/// Order in which units leave the device.
enum class Eviction : std::uint8_t {
  fixed,      // the one that has been there longest
  lru,        // the least recently used
  lru_topk,   // the least recently used of the layer and sequence that needs room; others only where these are too few
  attention,  // least attention mass (set_mass); of equal ones the last by position. Sinks and window never leave.
};

struct OffloadPolicy {
  Eviction eviction = Eviction::attention;
  std::uint32_t block = 32;      // tokens of a unit, whole pages
  std::uint32_t sinks = 4;       // first and most recent tokens that never leave, under `attention`
  std::uint32_t window = 32;     //
  std::uint32_t look_ahead = 1;  // layers whose KV is on its way while a layer computes, at most all others; they wrap
                                 // into the next step
};

/// Pages of all KV heads, in one layer each.
struct OffloadCounters {
  std::uint64_t needed = 0;      // asked for by need()
  std::uint64_t hits = 0;        // of these: had stayed on the device
  std::uint64_t prefetched = 0;  // of these: brought ahead
  std::uint64_t misses = 0;      // of these: brought when they were needed
  std::uint64_t cancelled = 0;   // prefetches that found no room in time
  std::uint64_t evicted = 0, written_back = 0;
};

/// Units of a layer that a sequence needs, ascending; without a list, all of them.
struct NeededKv {
  SequenceId sequence = 0;
  std::optional<std::vector<std::uint32_t>> units = {};
};

/// Slots that a fork under a budget needs beside those that it shares with a prefix, with default units: two whole
/// layers, and of each layer what never leaves and what grows.
constexpr std::size_t fork_slots(const KvShape& shape, std::uint32_t tokens) {
  return std::size_t{2} * blocks_for(tokens) + std::size_t{8} * shape.layers;
}

class KvOffload : public LayerKeeper {
 public:
  using Submit = std::function<Event(LaneKind, Op)>;
  /// `submit`: Device::submit on the first lane of a kind, or a wrapper of it.
  KvOffload(KvStore& kv, const OffloadPolicy& policy, Submit submit);

  /// Most device slots that the sequences refer to, beside what has grown since the last make_room().
  void set_budget(std::size_t slots) { budget_ = slots; }
  std::size_t budget() const { return budget_; }
  /// Least budget with which need() works for one sequence of so many tokens: as many layers at a time as look_ahead
  /// asks for, and of the others what never leaves.
  std::size_t least_slots(std::uint32_t tokens) const;

  /// Pages of a layer that never leave, at most.
  std::uint32_t always_pages() const;

  /// Manages a sequence from now on; it keeps what it has until room is made.
  void add(SequenceId sequence);
  void remove(SequenceId sequence);
  /// Forgets what was prefetched for it; what has come stays until it is evicted.
  void cancel(SequenceId sequence);
  /// Evicts until the budget holds.
  void fit() { evict(0); }
  /// Evicts all of a sequence that may leave. InputError where host memory has no room.
  void evict_all(SequenceId sequence);
  /// Every reader so far is done, or is when `last` is.
  void all_read(Event last = {});
  /// Decayed attention mass by unit, counted from position 0; units without an entry have none.
  void set_mass(SequenceId sequence, std::span<const float> mass);
  /// A page that stays on the device whatever the policy, until the next call: the one that a prompt continues, which
  /// truncate() leaves there if the rest fails.
  void keep_page(SequenceId sequence, std::uint32_t page);
  void keep_no_page(SequenceId sequence) { keep_page(sequence, ~0u); }

  void make_room(SequenceId sequence, std::uint32_t tokens) override;
  /// The same for all that grow before the next call.
  void make_room(std::span<const SequenceId> sequences, std::uint32_t tokens);
  Event need(SequenceId sequence, std::uint32_t layer) override;
  void read(SequenceId sequence, std::uint32_t layer, Event reader) override;
  /// The same for a batch, one copy for all. What is needed stays until read(); of a layer that is needed in part the
  /// rest may leave.
  Event need(std::span<const NeededKv> needed, std::uint32_t layer);
  /// Begins to bring a layer that is needed soon, as far as there is room now or at later calls before need().
  void prefetch(std::span<const SequenceId> sequences, std::uint32_t layer);

  const OffloadPolicy& policy() const { return policy_; }
  const OffloadCounters& counters() const { return counters_; }
  std::uint32_t unit_pages() const { return policy_.block / kPageTokens; }

 private:
  struct Unit {
    std::uint64_t came = 0, used = 0;  // clock_ when it came to the device, and when it was last needed
    bool on_device = true;
    bool pinned = false;
    bool ahead = false;  // brought by prefetch() and not needed since
    Event arrived;       // the copy that brought it
  };
  struct Layer {
    std::vector<Unit> units;
    std::uint32_t pins = 0;     // nothing leaves while there is one
    bool in_part = false;       // units are pinned instead
    bool coming = false;        // holds the pin of prefetch()
    Event read;                 // the last reader that is known
    std::uint32_t written = 0;  // tokens whose KV that reader has seen written: others do not leave
    std::uint32_t settled = 0;  // of these, tokens that were written before all_read()
  };
  struct Held {
    SequenceId id = 0;
    std::vector<Layer> layers;
    std::vector<float> mass;  // [unit]
    std::uint32_t kept_page = ~0u;
  };
  struct Place {  // of a unit
    Held* held = nullptr;
    std::uint32_t layer = 0, unit = 0;
  };
  struct Wanted {
    SequenceId sequence = 0;
    std::uint32_t layer = 0;
  };

  Held& held(SequenceId id);
  /// Takes in what the sequence has grown by.
  void grow(Held& held);
  std::size_t used_slots() const;
  std::size_t limit() const { return budget_ + growing_; }
  Range pages_of(const Held& held, std::uint32_t unit) const;
  bool may_leave(const Held& held, std::uint32_t layer, std::uint32_t unit) const;
  bool leaves_before(const Place& a, const Place& b) const;
  bool asks(const Place& place) const {
    return asking_ && place.held->id == asking_->sequence && place.layer == asking_->layer;
  }
  /// Evicts until `slots` more fit the budget, or nothing else may leave. Returns how many fit.
  std::size_t evict(std::size_t slots);
  /// Slots that the budget and the device have left.
  std::size_t room() const;
  /// Units in order whose slots make up what is missing, if nobody shares them.
  std::vector<Place> first_to_leave(std::size_t slots);
  std::size_t pages_without_copy(const Place& place) const;
  void leave(std::span<const Place> places);
  /// Brings units for which there is room; the copies are one operation.
  void bring(std::span<const Place> places, bool ahead, std::size_t cancelled);
  std::vector<Place> missing(Held& held, std::uint32_t layer);
  /// Pins what is needed, in place of what prefetch() had pinned.
  void pin(const NeededKv& needed, std::uint32_t layer);
  void unpin(Layer& layer);
  std::vector<Place> needed_of(const NeededKv& needed, std::uint32_t layer);
  std::size_t pages(std::span<const Place> places) const;
  void issue_wanted();

  KvStore& kv_;
  OffloadPolicy policy_;
  Submit submit_;
  std::size_t budget_ = 0, growing_ = 0;
  std::uint64_t clock_ = 0;
  std::vector<Held> held_;
  std::vector<Wanted> wanted_;
  std::optional<Wanted> asking_;  // for whom need() evicts
  OffloadCounters counters_;
};

}  // namespace tandem
