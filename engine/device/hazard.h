// Finds pairs of operations that touch the same memory, at least one writing, with nothing that orders them. Works on
// the submitted graph alone (vector clocks per lane), so a race is found even where the timing of this run hid it.
//
// What orders two operations: an explicit edge, the order of one lane, and the control thread: whatever it waited for
// comes before everything it submits later, and whatever it wrote before a submission is visible to it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/types.h"

namespace tandem {

/// Two unordered accesses to the same memory. The text names both operations, their lanes and layers, the buffer and
/// the ranges that overlap.
class HazardError : public LogicError {
 public:
  using LogicError::LogicError;
};

/// One entry of a schedule: what the checker needs to know of a submission.
struct ScheduleOp {
  enum class Form : std::uint8_t {
    op,           // an operation of a lane other than control; takes the lane's next event value
    control_op,   // an operation of the control lane; takes the lane's next event value
    host_wait,    // the control thread waits for `after`
    host_access,  // the control thread touches memory
    drain,        // the control thread waits for everything
  };
  Form form = Form::op;
  const char* name = "";
  LaneId lane = 0;
  std::uint32_t layer = Op::kNoLayer;
  std::vector<Event> after;
  std::vector<Access> access;
};

/// Names for the sentences; a missing function or name falls back to "lane 3", "buffer 7".
struct ScheduleNames {
  std::vector<std::string> lanes;
  std::function<std::string(BufferId)> buffer;
};

/// Values of every lane that are known to have happened.
class VectorClock {
 public:
  static constexpr std::size_t kMaxLanes = 24;
  std::uint64_t operator[](LaneId lane) const { return values_[lane]; }
  std::uint64_t& operator[](LaneId lane) { return values_[lane]; }
  void join(const VectorClock& other) {
    for (std::size_t i = 0; i < kMaxLanes; ++i) values_[i] = std::max(values_[i], other.values_[i]);
  }
  bool covers(Event event) const { return values_[event.lane] >= event.value; }
  bool operator==(const VectorClock&) const = default;

 private:
  std::array<std::uint64_t, kMaxLanes> values_{};
};

/// Checks one schedule entry at a time. Copyable: a copy continues from the same state.
/// Memory is bounded by what the control thread has not waited for yet: accesses ordered before the control thread's
/// clock are ordered before every later submission and are dropped.
class HazardChecker {
 public:
  explicit HazardChecker(const ScheduleNames* names = nullptr) : names_(names) {}

  /// Appends an entry. HazardError on the first unordered pair; the entry is then not appended.
  void add(const ScheduleOp& op);

  /// The operations that would be ordered before `op` if it were appended now. Tests ask it which edges a schedule
  /// needs.
  VectorClock clock_before(const ScheduleOp& op) const;

  /// Number of accesses kept (for tests of the memory bound).
  std::size_t kept() const;

 private:
  struct Key {
    BufferId buffer;
    std::uint32_t sequence, layer;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  struct Entry {
    std::uint64_t value;
    LaneId lane;
    std::uint32_t layer;
    const char* name;
    Range heads, pages;  // of the whole access
    bool write;
    bool operator==(const Entry&) const = default;
  };
  // What was accessed in one stretch of pages, its end; the beginning is the key in Stretches. Stretches of a buffer do
  // not overlap: an access cuts them at its ends. So an entry that an access makes superfluous is superfluous in whole
  // stretches, and a store in which thousands of operations touch a few pages each is searched, not walked through.
  struct Stretch {
    std::uint32_t end;
    std::vector<Entry> entries;
  };
  typedef std::map<std::uint32_t, Stretch> Stretches;
  struct History {  // clocks of the operations (first, first + size] of one lane
    std::uint64_t first = 0;
    std::deque<VectorClock> clocks;
  };

  static Key key_of(const Access& access);
  void check(const ScheduleOp& op, const VectorClock& clock, const Access& access) const;
  void keep(const ScheduleOp& op, const VectorClock& before, std::uint64_t value, const Access& access);
  static void cut(Stretches& stretches, std::uint32_t at);
  static void join(Stretches& stretches, const Range& pages);
  [[noreturn]] void report(const ScheduleOp& op, const Access& access, const Entry& entry) const;
  void forget();
  std::string lane_name(LaneId lane) const;

  const ScheduleNames* names_;
  VectorClock control_;
  std::array<std::uint64_t, VectorClock::kMaxLanes> count_{};
  std::array<History, VectorClock::kMaxLanes> history_;
  std::array<VectorClock, VectorClock::kMaxLanes> last_{};
  std::unordered_map<Key, Stretches, KeyHash> entries_;
  std::uint64_t since_sweep_ = 0;
};

/// LogicError unless every settled access of an operation lies inside declared ones (a settled write in declared
/// writes).
void check_settled_inside(const char* op_name, const std::vector<Access>& declared, const std::vector<Access>& settled,
                          const ScheduleNames& names);

}  // namespace tandem
