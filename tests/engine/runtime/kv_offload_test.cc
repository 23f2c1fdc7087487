// The offload manager under random operations and faults: full memory on either side, late copies, sequences that fork
// and go away. After each operation its rules are checked one by one against what the store shows: every page that is
// read holds what was written there, nothing pinned leaves, who left came first in the policy's order, counts agree.
//
// TANDEM_OFFLOAD_OPERATIONS sets how many operations each case runs (2,000 by default).
#include "engine/runtime/kv_offload.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "engine/common/error.h"
#include "engine/runtime/copy_op.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

constexpr KvShape kPages{.layers = 3, .kv_heads = 1, .head_dim = 4};
constexpr Range kOneHead{0, 1};
constexpr std::size_t kPageFloats = 2 * kPageTokens * 4;  // of a page
constexpr auto kNone = [](const auto&) { return false; };
constexpr std::uint32_t kStays = 16;  // tokens; the sink is one token

struct OffloadSetting {
  const char* name;
  Eviction eviction = Eviction::lru;
  std::uint32_t block = 16;
  std::size_t device_slots = 110, host_slots = 4000;
  bool real_time = false;
};

struct KvUnit {
  SequenceId sequence = 0;
  std::uint32_t layer = 0, number = 0;
  auto operator<=>(const KvUnit&) const = default;
};
struct SeenUnit {
  std::uint64_t came = 0, used = 0;  // operations, counted from 1
};

class OffloadWorld {
 public:
  OffloadWorld(const OffloadSetting& setting, unsigned seed)
      : random_(seed),
        setting_(setting),
        device_(setting.real_time ? make_emu_device({.host_worker_threads = 1}) : sim()),
        kv_(*device_, kPages, {kPages.slot_bytes() * setting.device_slots, kPages.slot_bytes() * setting.host_slots}),
        offload_(kv_, {.eviction = setting.eviction, .block = setting.block, .sinks = 1, .window = kStays},
                 [this](LaneKind lane, Op op) { return submit_late(lane, std::move(op)); }) {
    offload_.set_budget(setting.device_slots * 3 / 4);
  }

  void operation() {
    ++now_;
    const std::uint32_t what = pick(20);
    if (live_.empty() || (what < 2 && live_.size() < 3)) return create();
    const SequenceId id = live_[pick(static_cast<std::uint32_t>(live_.size()))];
    if (what < 5) return grow(id, 1 + pick(60));
    if (what < 6) return fork(id);
    if (what < 7) return destroy(id);
    if (what < 8) return hog();
    if (what < 10) return set_mass(id);
    if (what < 11) return cancel(id);
    if (what < 13) return prefetch(pick(kPages.layers));
    attend(pick(kPages.layers));
  }

  void finish() {
    device_->drain();
    EXPECT_EQ(wrong_, 0) << "pages held something else";
    while (!live_.empty()) destroy(live_.back());
    give_back_hog();
    EXPECT_EQ(kv_.bytes_in_use(Tier::device), 0u);
    EXPECT_EQ(kv_.bytes_in_use(Tier::host), 0u);
  }
  const OffloadCounters& counters() const { return offload_.counters(); }
  std::uint64_t refused() const { return refused_; }

 private:
  std::uint32_t pick(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }
  std::uint32_t unit_pages() const { return setting_.block / kPageTokens; }

  Event submit_late(LaneKind lane, Op op) {
    cancelled_bytes_ += op.cost.cancelled;
    if (pick(4) == 0) {  // the link is busy with something else first
      Op late("late");
      late.kind = Kind::copy;
      late.cost.fixed_ns = 50'000;
      if (setting_.real_time)
        late.body = [](BodyContext&) { std::this_thread::sleep_for(std::chrono::microseconds(20)); };
      device_->submit(device_->lane(lane), std::move(late));
    }
    return device_->submit(device_->lane(lane), std::move(op));
  }

  // Units as the store shows them.
  bool there(const KvUnit& unit, Tier tier) const {
    return kv_.slot(unit.sequence, unit.layer, unit.number * unit_pages(), tier) != KvStore::kNoSlot;
  }
  std::uint32_t units(SequenceId id) const { return (kv_.tokens(id) + setting_.block - 1) / setting_.block; }
  bool may_leave(const KvUnit& unit) const {
    const std::uint32_t end = (unit.number + 1) * setting_.block, tokens = kv_.tokens(unit.sequence);
    if (end > written_.at(unit.sequence)[unit.layer]) return false;
    return setting_.eviction != Eviction::attention || (unit.number > 0 && end + kStays <= tokens);
  }
  template <class Call>
  void each_unit(const Call& call) const {
    for (const SequenceId id : live_) {
      for (std::uint32_t layer = 0; layer < kPages.layers; ++layer)
        for (std::uint32_t u = 0; u < units(id); ++u) call(KvUnit{id, layer, u});
    }
  }
  std::vector<KvUnit> on_device() const {
    std::vector<KvUnit> all;
    each_unit([&](const KvUnit& unit) {
      if (there(unit, Tier::device)) all.push_back(unit);
    });
    return all;
  }
  bool asks(const KvUnit& unit) const { return unit.layer == asked_layer_ && asked_.contains(unit.sequence); }
  /// Before: leaves the device before `b` by the policy, as far as operations tell.
  bool certainly_before(const KvUnit& a, const KvUnit& b) const {
    const SeenUnit &x = seen_.at(a), &y = seen_.at(b);
    switch (setting_.eviction) {
      case Eviction::lru_topk:  // sequences that ask make room one by one, each of its own units first
        if (asks(a) && asks(b)) return a.sequence == b.sequence && x.used < y.used;
        if (asks(a) && asked_.size() == 1) return true;
        return !asks(b) && x.used < y.used;
      case Eviction::fixed:
        return x.came < y.came;
      case Eviction::lru:
        return x.used < y.used;
      case Eviction::attention: {
        const float m = mass_of(a), n = mass_of(b);
        return m != n ? m < n : a.number > b.number;
      }
    }
    return false;
  }
  float mass_of(const KvUnit& unit) const {
    const auto found = mass_.find(unit.sequence);
    return found != mass_.end() && unit.number < found->second.size() ? found->second[unit.number] : 0;
  }

  /// Runs `call`, which may evict, and checks who left. `pinned`: may not.
  template <class Pinned, class Call>
  void evicting(const Pinned& pinned, const Call& call) {
    const std::vector<KvUnit> before = on_device();
    call();
    std::vector<KvUnit> left, stayed;
    const bool host_has_room = kv_.free_slots(Tier::host) >= unit_pages();
    for (const KvUnit& unit : before) {
      if (there(unit, Tier::device)) {
        if (may_leave(unit) && !pinned(unit) && !coming_.contains({unit.sequence, unit.layer}) &&
            (host_has_room || there(unit, Tier::host)))
          stayed.push_back(unit);
        continue;
      }
      ASSERT_TRUE(may_leave(unit)) << "unit " << unit.number << " of " << kv_.tokens(unit.sequence) << " tokens left";
      ASSERT_FALSE(pinned(unit)) << "a unit that is needed left";
      ASSERT_FALSE(coming_.contains({unit.sequence, unit.layer})) << "a layer that was prefetched lost a unit";
      ASSERT_TRUE(there(unit, Tier::host)) << "lost";
      left.push_back(unit);
    }
    for (const KvUnit& a : left) {
      for (const KvUnit& b : stayed) {
        ASSERT_FALSE(certainly_before(b, a)) << "the wrong one left";
      }
    }
    each_unit([&](const KvUnit& unit) {
      ASSERT_TRUE(there(unit, Tier::device) || there(unit, Tier::host)) << "lost";
      if (there(unit, Tier::device) && seen_.contains(unit) && !std::ranges::binary_search(before, unit))
        seen_[unit].came = now_;
    });
    anything_could_leave_ = !stayed.empty();
  }
  std::size_t used_slots() const {
    std::size_t bytes = 0;
    for (const SequenceId id : live_) bytes += kv_.bytes(id, Tier::device);
    return bytes / kPages.slot_bytes();
  }

  void create() {
    const SequenceId id = kv_.create();
    offload_.add(id);
    live_.push_back(id);
    std::ranges::sort(live_);
    held_[id].resize(kPages.layers);
    written_[id].resize(kPages.layers);
    grow(id, 1 + pick(60));
  }

  void grow(SequenceId id, std::uint32_t tokens) {
    const std::uint32_t before = kv_.tokens(id);
    const OffloadCounters was = offload_.counters();
    // A layer that a fork's newest, shared page is copied in needs a slot more.
    evicting(kNone, [&] { offload_.make_room(id, tokens + kPageTokens); });
    ASSERT_EQ(offload_.counters().needed, was.needed);
    grown_ = std::size_t{kPages.layers} * (blocks_for(before + tokens + kPageTokens) - blocks_for(before));
    const std::size_t slots = std::size_t{kPages.layers} * (blocks_for(before + tokens) - blocks_for(before));
    ASSERT_TRUE((used_slots() <= offload_.budget() && kv_.free_slots(Tier::device) >= slots) || !anything_could_leave_)
        << used_slots() << " slots, and something could leave";
    std::vector<Event> after;
    try {
      copy_shared_tail(*device_, kv_, id);
      kv_.grow(id, tokens, after);
    } catch (const InputError&) {
      ++refused_;
      return;
    }
    Op op("write");
    op.after = after;
    std::vector<std::pair<std::uint32_t, float>> writes;
    for (std::uint32_t layer = 0; layer < kPages.layers; ++layer) {
      std::vector<float>& own = held_[id][layer];
      own.resize(blocks_for(before + tokens));
      for (std::uint32_t block = before / kPageTokens; block < own.size(); ++block) {
        own[block] = static_cast<float>(++stamp_);
        const std::uint32_t slot = kv_.slot(id, layer, block, Tier::device);
        writes.emplace_back(slot, own[block]);
        op.access.push_back(kv_.slot_access(Tier::device, slot, 1, kOneHead, true));
      }
    }
    op.body = [this, writes](BodyContext& ctx) {
      for (const auto& [slot, value] : writes)
        std::fill_n(ctx.write<float>(kv_.device_buffer()) + slot * kPageFloats, kPageFloats, value);
    };
    const Event written = device_->submit(device_->lane(LaneKind::device_compute), std::move(op));
    for (std::uint32_t layer = 0; layer < kPages.layers; ++layer)
      kv_.set_filled(id, layer, {before / kPageTokens, blocks_for(before + tokens)}, Tier::device, written);
  }
  /// The manager takes in what has grown when it is next asked for a layer.
  void take_in(SequenceId id) {
    each_unit([&](const KvUnit& unit) {
      if (unit.sequence == id) seen_.try_emplace(unit, now_, now_);
    });
  }

  void fork(SequenceId from) {
    if (live_.size() >= 4) return;
    device_->drain();  // as a prefix is that sequences are made of
    kv_.all_done();
    const SequenceId id = kv_.fork(from);
    held_[id] = held_[from];
    written_[id].assign(kPages.layers, kv_.tokens(id));
    offload_.add(id);
    live_.push_back(id);
    std::ranges::sort(live_);
    for (std::uint32_t layer = 0; layer < kPages.layers; ++layer)
      for (std::uint32_t u = 0; u < units(id); ++u) seen_[{id, layer, u}] = {now_, now_};
  }

  /// As a session does it: what was asked for is done before the pages go back. The manager lets go earlier.
  void destroy(SequenceId id) {
    offload_.remove(id);
    device_->drain();
    kv_.all_done();
    kv_.destroy(id);
    std::erase(live_, id);
    held_.erase(id);
    written_.erase(id);
    mass_.erase(id);
    std::erase_if(coming_, [&](const auto& c) { return c.first == id; });
    std::erase_if(seen_, [&](const auto& s) { return s.first.sequence == id; });
  }

  /// Another user of host memory, who takes what is free there, or gives it back.
  void hog() {
    if (hog_ != 0) return give_back_hog();
    const std::size_t free = std::min(kv_.free_slots(Tier::device), kv_.free_slots(Tier::host));
    const auto pages = static_cast<std::uint32_t>(free / kPages.layers);
    if (pages == 0) return;
    hog_ = kv_.create();
    std::vector<Event> after;
    kv_.grow(hog_, pages * kPageTokens, after);
    for (std::uint32_t layer = 0; layer < kPages.layers; ++layer) {
      kv_.add_host_blocks(hog_, layer, {0, pages}, after);
      kv_.drop(hog_, layer, {0, pages}, Tier::device, after);
    }
  }
  void give_back_hog() {
    if (hog_ == 0) return;
    kv_.destroy(hog_);
    hog_ = 0;
  }

  void set_mass(SequenceId id) {
    std::vector<float>& mass = mass_[id];
    mass.resize(kv_.tokens(id) / setting_.block);
    for (float& m : mass) m = static_cast<float>(pick(5));
    offload_.set_mass(id, mass);
  }

  void cancel(SequenceId id) {
    offload_.cancel(id);
    std::erase_if(coming_, [&](const auto& c) { return c.first == id; });
  }

  void prefetch(std::uint32_t layer) {
    for (const SequenceId id : live_) {
      take_in(id);
      coming_.insert({id, layer});
    }
    evicting(kNone, [&] { offload_.prefetch(live_, layer); });
  }

  /// All units of some sequences, or some, which differ.
  std::vector<NeededKv> choose() {
    std::vector<NeededKv> chosen;
    const bool in_part = pick(2) == 0;
    for (const SequenceId id : live_) {
      if (pick(8) == 0) continue;
      NeededKv& one = chosen.emplace_back(NeededKv{id, {}});
      if (!in_part) continue;
      one.units.emplace();
      for (std::uint32_t u = 0; u < units(id); ++u)
        if (pick(3) == 0) one.units->push_back(u);
    }
    return chosen;
  }

  void attend(std::uint32_t layer) {
    const std::vector<NeededKv> chosen = choose();
    std::set<KvUnit> needed;
    std::vector<std::pair<SequenceId, std::uint32_t>> blocks;
    asked_.clear();
    asked_layer_ = layer;
    for (const NeededKv& one : chosen) {
      asked_.insert(one.sequence);
      take_in(one.sequence);
      for (std::uint32_t u = 0; u < units(one.sequence); ++u)
        if (!one.units || std::ranges::binary_search(*one.units, u)) needed.insert({one.sequence, layer, u});
      std::erase_if(coming_, [&](const auto& c) { return c.first == one.sequence && c.second == layer; });
    }
    std::uint64_t absent = 0;
    for (const KvUnit& unit : needed) {
      const std::uint32_t end = std::min((unit.number + 1) * unit_pages(), blocks_for(kv_.tokens(unit.sequence)));
      for (std::uint32_t block = unit.number * unit_pages(); block < end; ++block) {
        blocks.emplace_back(unit.sequence, block);
        absent += kv_.slot(unit.sequence, layer, block, Tier::device) == KvStore::kNoSlot ? 1 : 0;
      }
    }
    const std::uint64_t pages = blocks.size();
    const OffloadCounters was = offload_.counters();
    Event ready;
    bool refused = false;
    evicting([&](const KvUnit& unit) { return needed.contains(unit); },
             [&] {
               try {
                 ready = offload_.need(chosen, layer);
               } catch (const InputError&) {
                 refused = true;
               }
             });
    const std::set<SequenceId> asked_before = std::exchange(asked_, {});
    if (refused) {
      ++refused_;
      ASSERT_FALSE(anything_could_leave_) << "refused, and something could leave";
      return;
    }
    ASSERT_TRUE(absent == 0 || used_slots() <= offload_.budget() + grown_ || !anything_could_leave_)
        << used_slots() << " slots behind need(), and something could leave";
    const OffloadCounters& c = offload_.counters();
    ASSERT_EQ(cancelled_bytes_, c.cancelled * kPages.slot_bytes());
    ASSERT_EQ(c.needed - was.needed, pages);
    ASSERT_EQ(c.misses - was.misses, absent);
    ASSERT_EQ(c.needed, c.hits + c.prefetched + c.misses);
    Op op("attend", Cause::none, layer);
    wait_for(op.after, ready);
    std::vector<std::pair<std::uint32_t, float>> expected;
    for (const auto& [id, block] : blocks) {
      const std::uint32_t slot = kv_.slot(id, layer, block, Tier::device);
      ASSERT_NE(slot, KvStore::kNoSlot) << "sequence " << id << " layer " << layer << " block " << block;
      expected.emplace_back(slot, held_[id][layer][block]);
      op.access.push_back(kv_.slot_access(Tier::device, slot, 1, kOneHead, false));
    }
    for (const KvUnit& unit : needed) seen_[unit].used = now_;
    op.body = [this, expected](BodyContext& ctx) {
      for (const auto& [slot, value] : expected) {
        const float* const page = ctx.read<float>(kv_.device_buffer()) + slot * kPageFloats;
        if (std::any_of(page, page + kPageFloats, [&](float x) { return x != value; })) ++wrong_;
      }
    };
    const Event read = device_->submit(device_->lane(LaneKind::device_compute), std::move(op));
    for (const SequenceId id : asked_before) {
      if (pick(40) == 0) {  // ends between the two
        destroy(id);
        continue;
      }
      offload_.read(id, layer, read);
      written_[id][layer] = kv_.tokens(id);
    }
  }

  std::mt19937 random_;
  OffloadSetting setting_;
  std::unique_ptr<Device> device_;
  KvStore kv_;
  KvOffload offload_;
  std::vector<SequenceId> live_;                                // ascending
  std::map<SequenceId, std::vector<std::vector<float>>> held_;  // [layer][block] what the page holds
  std::map<SequenceId, std::vector<std::uint32_t>> written_;    // [layer] tokens whose pages the layer has read
  std::map<SequenceId, std::vector<float>> mass_;
  std::map<KvUnit, SeenUnit> seen_;
  std::set<std::pair<SequenceId, std::uint32_t>> coming_;  // layers that were prefetched and not needed since
  std::set<SequenceId> asked_;                             // inside need()
  std::uint32_t asked_layer_ = 0;
  SequenceId hog_ = 0;
  std::uint64_t now_ = 0, stamp_ = 0, refused_ = 0, cancelled_bytes_ = 0;
  std::size_t grown_ = 0;  // slots that the last make_room() was for
  bool anything_could_leave_ = false;
  std::atomic<int> wrong_ = 0;
};

unsigned offload_operations() {
  const char* const given = std::getenv("TANDEM_OFFLOAD_OPERATIONS");
  return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : 2'000;
}

class RandomOffload : public ::testing::TestWithParam<OffloadSetting> {};
INSTANTIATE_TEST_SUITE_P(
    Policies, RandomOffload,
    ::testing::Values(OffloadSetting{.name = "fixed", .eviction = Eviction::fixed}, OffloadSetting{.name = "lru"},
                      OffloadSetting{.name = "lru_topk", .eviction = Eviction::lru_topk},
                      OffloadSetting{.name = "attention", .eviction = Eviction::attention},
                      OffloadSetting{.name = "long_units", .eviction = Eviction::attention, .block = 64},
                      OffloadSetting{.name = "full_host", .eviction = Eviction::lru, .host_slots = 60},
                      OffloadSetting{.name = "threads", .eviction = Eviction::attention, .real_time = true}),
    [](const auto& one) { return one.param.name; });

TEST_P(RandomOffload, KeepsItsRules) {
  const unsigned all = offload_operations(), history = 200;
  OffloadCounters sum;
  std::uint64_t refused = 0;
  for (unsigned done = 0; done < all; done += history) {
    OffloadWorld world(GetParam(), done);
    for (unsigned i = 0; i < history; ++i) {
      world.operation();
      if (HasFatalFailure()) FAIL() << "in history " << done << ", operation " << i;
    }
    world.finish();
    if (HasFailure()) FAIL() << "in history " << done;
    const OffloadCounters& c = world.counters();
    sum.hits += c.hits, sum.misses += c.misses, sum.prefetched += c.prefetched, sum.cancelled += c.cancelled;
    sum.evicted += c.evicted, sum.written_back += c.written_back;
    refused += world.refused();
  }
  // Everything that can happen did.
  EXPECT_GT(sum.hits, 0u);
  EXPECT_GT(sum.misses, 0u);
  EXPECT_GT(sum.prefetched, 0u);
  EXPECT_GT(sum.evicted, sum.written_back) << "no copy was used twice";
  EXPECT_GT(sum.written_back, 0u);
  EXPECT_GT(sum.cancelled, 0u);
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace tandem::testing
