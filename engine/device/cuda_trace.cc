#include "engine/device/cuda_trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace tandem {
namespace {

double nanos_between(const CudaMark& from, const CudaMark& to) {
  return to.seconds_after(from) * 1e9;
}

}  // namespace

std::int64_t CudaTrace::append(const TraceRecord& record, std::int64_t previous, std::vector<Event> after) {
  const std::lock_guard lock(mutex_);
  records_.push_back(record);
  Links& links = links_.emplace_back();
  links.previous = previous;
  links.after = std::move(after);
  links.anchor = anchors_.size() - 1;
  return static_cast<std::int64_t>(records_.size()) - 1;
}

std::int64_t CudaTrace::append_operation(const Op& op, LaneId lane, std::int64_t previous, std::int64_t launch) {
  const std::int64_t number = append(trace_record(op, lane, op.cost), previous, op.after);
  links_.back().launch = launch;
  return number;
}

void CudaTrace::set_marks(std::int64_t record, const Marks& marks, std::vector<Settled> settled) {
  Links& links = links_[static_cast<std::size_t>(record)];
  links.marks = marks;
  links.settled = std::move(settled);
}

void CudaTrace::set_times(std::int64_t record, Nanos start, Nanos end, const Cost* settled) {
  const std::lock_guard lock(mutex_);
  TraceRecord& own = records_[static_cast<std::size_t>(record)];
  own.start = start;
  own.end = end;
  if (settled != nullptr) own.cost = *settled;
}

void CudaTrace::seen(std::int64_t record, Nanos time) {
  Links& links = links_[static_cast<std::size_t>(record)];
  if (links.seen == 0) links.seen = time;
}

void CudaTrace::end_step(const StepMark& step, const CudaMark* anchor) {
  steps_.push_back(step);
  anchors_.push_back(anchor);
}

void CudaTrace::begin(const Anchor& anchor) {
  anchors_ = {anchor.mark};
  begin_ = anchor.time;
}

/// Between neighbouring anchors the GPU's clock counts: times of marks that are far apart have too few digits. From the
/// first to the last the control thread's clock corrects its rate.
void CudaTrace::place_marked(const Anchor& end) {
  std::vector<double> times = {0};
  for (std::size_t i = 1; i < anchors_.size(); ++i)
    times.push_back(times.back() + nanos_between(*anchors_[i - 1], *anchors_[i]));
  const double all = times.back() + nanos_between(*anchors_.back(), *end.mark);
  constexpr double kLongEnough = 1e7;  // the anchors' own error is microseconds
  const double rate = all > kLongEnough ? static_cast<double>(end.time - begin_) / all : 1;
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const Links& links = links_[i];
    if (links.marks.begin == nullptr) continue;
    const CudaMark& anchor = *anchors_[links.anchor];
    const auto time = [&](const CudaMark& mark) {
      return begin_ + static_cast<Nanos>(std::llround((times[links.anchor] + nanos_between(anchor, mark)) * rate));
    };
    // Nothing ends after the host has seen its end, nor starts before it was submitted.
    TraceRecord& record = records_[i];
    const Nanos submitted = records_[static_cast<std::size_t>(links.launch)].start;
    const Nanos seen = links.seen == 0 ? std::numeric_limits<Nanos>::max() : links.seen;
    record.end = std::max(std::min(time(*links.marks.end), seen), submitted);
    record.start = std::clamp(time(*links.marks.begin), submitted, record.end);
    if (links.settled.empty()) continue;
    Cost cost = links.settled.front().without;
    for (const Settled& settled : links.settled) {
      const std::uint64_t count = std::accumulate(settled.counts, settled.counts + settled.n, std::uint64_t{0});
      for (const auto amount : {&Cost::h2d, &Cost::d2h, &Cost::hbm, &Cost::context, &Cost::flops})
        cost.*amount += count * settled.each.*amount;
      cost.pieces += static_cast<std::uint32_t>(count * settled.each.pieces);
    }
    cost.pieces = std::max(cost.pieces, 1u);
    cost.upper_bound = false;
    cost.launched_as(record.cost);
    record.cost = cost;
  }
}

void CudaTrace::clear() {
  records_.clear();
  links_.clear();
  steps_.clear();
}

CudaTrace::Anchor find_anchor(CudaMarks& marks, CudaStream stream, const std::function<Nanos()>& now) {
  constexpr int kTries = 8;
  CudaMark* const best = marks.take();
  CudaTrace::Anchor anchor{best, 0};
  Nanos shortest = std::numeric_limits<Nanos>::max();
  for (int i = 0; i < kTries; ++i) {
    CudaMark mark;
    const Nanos before = now();
    mark.record(stream);
    mark.wait();
    const Nanos after = now();
    if (after - before >= shortest) continue;
    shortest = after - before;
    anchor.time = before + shortest / 2;
    *best = std::move(mark);
  }
  return anchor;
}

}  // namespace tandem
