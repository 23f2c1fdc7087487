#include "engine/device/hazard.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr std::uint64_t kSweepEvery = 4096;  // entries appended between two sweeps over all buffers

bool inside(const Range& a, const Range& b) {
  return a.begin >= b.begin && a.end <= b.end;
}
Range common(const Range& a, const Range& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

std::string show(const Range& range) {
  if (range == Range{}) return "all";
  if (range.end == Range{}.end) return fmt::format("{}..", range.begin);
  return fmt::format("{}..{}", range.begin, range.end);
}

std::string buffer_name(const ScheduleNames* names, BufferId buffer) {
  return names != nullptr && names->buffer ? names->buffer(buffer) : fmt::format("buffer {}", buffer);
}

std::string show_layer(std::uint32_t layer) {
  return layer == Op::kNoLayer ? std::string("no layer") : fmt::format("layer {}", layer);
}

}  // namespace

std::size_t HazardChecker::KeyHash::operator()(const Key& key) const {
  std::uint64_t h = (std::uint64_t{key.buffer} << 40) ^ (std::uint64_t{key.sequence} << 16) ^ key.layer;
  h *= 0x9E3779B97F4A7C15ULL;
  return static_cast<std::size_t>(h ^ (h >> 29));
}

HazardChecker::Key HazardChecker::key_of(const Access& access) {
  return {access.extent.buffer, access.extent.sequence, access.extent.layer};
}

VectorClock HazardChecker::clock_before(const ScheduleOp& op) const {
  VectorClock clock = control_;
  if (op.form == ScheduleOp::Form::op) clock.join(last_[op.lane]);
  if (op.form == ScheduleOp::Form::drain) {
    for (const VectorClock& last : last_) clock.join(last);
  }
  for (const Event& event : op.after) {
    if (!event.valid() || clock.covers(event)) continue;
    TANDEM_CHECK(event.lane < VectorClock::kMaxLanes && event.value <= count_[event.lane],
                 "'{}' waits for operation {} of lane {}, which has {}", op.name, event.value, event.lane,
                 event.lane < VectorClock::kMaxLanes ? count_[event.lane] : 0);
    const History& history = history_[event.lane];
    clock.join(history.clocks[event.value - history.first - 1]);
  }
  return clock;
}

void HazardChecker::add(const ScheduleOp& op) {
  TANDEM_CHECK(op.lane < VectorClock::kMaxLanes, "lane {} of '{}': at most {} lanes are supported", op.lane, op.name,
               VectorClock::kMaxLanes);
  VectorClock clock = clock_before(op);

  for (const Access& access : op.access) check(op, clock, access);

  if (op.form == ScheduleOp::Form::op) {
    const VectorClock before = clock;
    const std::uint64_t value = ++count_[op.lane];
    clock[op.lane] = value;
    last_[op.lane] = clock;
    history_[op.lane].clocks.push_back(clock);
    for (const Access& access : op.access) keep(op, before, value, access);
  } else {
    // Accesses of the control thread need no entry: everything submitted later comes after them.
    if (op.form == ScheduleOp::Form::control_op) clock[op.lane] = ++count_[op.lane];
    control_ = clock;
    for (LaneId lane = 0; lane < VectorClock::kMaxLanes; ++lane) {
      History& history = history_[lane];
      while (!history.clocks.empty() && history.first < control_[lane]) {
        history.clocks.pop_front();
        ++history.first;
      }
      history.first = std::max(history.first, control_[lane]);
    }
  }
  if (++since_sweep_ >= kSweepEvery) forget();
}

void HazardChecker::check(const ScheduleOp& op, const VectorClock& clock, const Access& access) const {
  const auto found = entries_.find(key_of(access));
  if (found == entries_.end()) return;
  const Range& pages = access.extent.pages;
  auto at = found->second.upper_bound(pages.begin);
  if (at != found->second.begin() && std::prev(at)->second.end > pages.begin) --at;
  for (; at != found->second.end() && at->first < pages.end; ++at)
    for (const Entry& entry : at->second.entries)
      if ((access.write || entry.write) && clock[entry.lane] < entry.value && overlap(access.extent.heads, entry.heads))
        report(op, access, entry);
}

void HazardChecker::cut(Stretches& stretches, std::uint32_t at) {
  auto after = stretches.upper_bound(at);
  if (after == stretches.begin()) return;
  const auto across = std::prev(after);
  if (across->first == at || across->second.end <= at) return;
  stretches.emplace_hint(after, at, across->second);
  across->second.end = at;
}

// Makes one of neighbours with the same entries, in and beside `pages`.
void HazardChecker::join(Stretches& stretches, const Range& pages) {
  auto at = stretches.lower_bound(pages.begin);
  if (at != stretches.begin()) --at;
  while (at != stretches.end() && at->first < pages.end) {
    const auto next = std::next(at);
    if (next == stretches.end()) return;
    if (at->second.end == next->first && at->second.entries == next->second.entries) {
      at->second.end = next->second.end;
      stretches.erase(next);
    } else {
      at = next;
    }
  }
}

void HazardChecker::keep(const ScheduleOp& op, const VectorClock& before, std::uint64_t value, const Access& access) {
  const Range& pages = access.extent.pages;
  if (pages.begin >= pages.end) return;
  Stretches& stretches = entries_[key_of(access)];
  cut(stretches, pages.begin);
  cut(stretches, pages.end);
  const Entry mine{value, op.lane, op.layer, op.name, access.extent.heads, pages, access.write};
  // An entry that is ordered before this operation and inside its extent is represented by it from now on: whoever
  // conflicts with the entry later conflicts with this operation too. (Not so for a read over a write: a later read
  // conflicts with the write alone.)
  const auto superfluous = [&](const Entry& entry) {
    if (control_[entry.lane] >= entry.value) return true;
    return before[entry.lane] >= entry.value && (mine.write || !entry.write) && inside(entry.heads, mine.heads);
  };
  std::uint32_t covered = pages.begin;
  for (auto at = stretches.lower_bound(pages.begin); covered < pages.end;) {
    if (at == stretches.end() || at->first > covered) {
      const std::uint32_t end = at == stretches.end() ? pages.end : std::min(at->first, pages.end);
      at = stretches.emplace_hint(at, covered, Stretch{end, {}});
    }
    std::erase_if(at->second.entries, superfluous);
    at->second.entries.push_back(mine);
    covered = at->second.end;
    ++at;
  }
  join(stretches, pages);
}

void HazardChecker::report(const ScheduleOp& op, const Access& access, const Entry& entry) const {
  const Extent& extent = access.extent;
  const char* what = !entry.write ? "write after read" : access.write ? "write after write" : "read after write";
  throw HazardError(fmt::format(
      "Hazard ({}) on '{}', sequence {}, layer {}: '{}' ({}, operation {} of lane {}) {} heads {} pages {}, and '{}' "
      "({}, "
      "lane {}) {} heads {} pages {}, but no event orders them. They meet in heads {} pages {}.",
      what, buffer_name(names_, extent.buffer), extent.sequence, extent.layer, entry.name, show_layer(entry.layer),
      entry.value, lane_name(entry.lane), entry.write ? "writes" : "reads", show(entry.heads), show(entry.pages),
      op.name, show_layer(op.layer), lane_name(op.lane), access.write ? "writes" : "reads", show(extent.heads),
      show(extent.pages), show(common(entry.heads, extent.heads)), show(common(entry.pages, extent.pages))));
}

void HazardChecker::forget() {
  since_sweep_ = 0;
  for (auto item = entries_.begin(); item != entries_.end();) {
    Stretches& stretches = item->second;
    for (auto at = stretches.begin(); at != stretches.end();) {
      std::erase_if(at->second.entries, [&](const Entry& entry) { return control_[entry.lane] >= entry.value; });
      at = at->second.entries.empty() ? stretches.erase(at) : std::next(at);
    }
    item = item->second.empty() ? entries_.erase(item) : std::next(item);
  }
}

std::size_t HazardChecker::kept() const {
  std::size_t sum = 0;
  for (const auto& [key, stretches] : entries_)
    for (const auto& [begin, stretch] : stretches) sum += stretch.entries.size();
  return sum;
}

std::string HazardChecker::lane_name(LaneId lane) const {
  return names_ != nullptr && lane < names_->lanes.size() ? names_->lanes[lane] : fmt::format("{}", lane);
}

namespace {

/// Whether declared accesses that lie next to each other cover the pages of a settled one together.
bool covered(const std::vector<Access>& declared, const Access& access) {
  const Extent& extent = access.extent;
  const auto matches = [&](const Access& allowed) {
    const Extent& outer = allowed.extent;
    return outer.buffer == extent.buffer && outer.sequence == extent.sequence && outer.layer == extent.layer &&
           (allowed.write || !access.write) && inside(extent.heads, outer.heads);
  };
  std::uint32_t at = extent.pages.begin;
  do {  // once for no pages, too: they are of a buffer that is declared
    std::uint32_t end = at;
    bool found = false;
    for (const Access& allowed : declared) {
      const Range& pages = allowed.extent.pages;
      if (!matches(allowed) || pages.begin > at || pages.end < at) continue;
      found = true;
      end = std::max(end, pages.end);
    }
    if (!found || (end == at && at < extent.pages.end)) return false;
    at = end;
  } while (at < extent.pages.end);
  return true;
}

}  // namespace

void check_settled_inside(const char* op_name, const std::vector<Access>& declared, const std::vector<Access>& settled,
                          const ScheduleNames& names) {
  for (const Access& access : settled) {
    const Extent& extent = access.extent;
    TANDEM_CHECK(covered(declared, access),
                 "'{}' settled a {} of '{}', sequence {}, layer {}, heads {}, pages {} that it had not declared",
                 op_name, access.write ? "write" : "read", buffer_name(&names, extent.buffer), extent.sequence,
                 extent.layer, show(extent.heads), show(extent.pages));
  }
}

}  // namespace tandem
