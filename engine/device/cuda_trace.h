// The trace of `cuda`: what was submitted, and when the GPU did it by marks in its streams, on the control thread's
// clock. Records are appended by the control thread; host lanes fill in theirs.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/device/cuda/runtime.h"
#include "engine/device/trace.h"
#include "engine/device/types.h"

namespace tandem {

/// Marks live as long as their owner and are used again once it is told that nobody waits for any of them.
class CudaMarks {
 public:
  CudaMark* take() {
    if (taken_ == all_.size()) all_.emplace_back();
    return &all_[taken_++];
  }
  void all_free() { taken_ = 0; }

 private:
  std::deque<CudaMark> all_;
  std::size_t taken_ = 0;
};

class CudaTrace {
 public:
  /// Marks around an operation of a stream.
  struct Marks {
    const CudaMark* begin = nullptr;
    const CudaMark* end = nullptr;
  };
  /// How many of something an operation found on the GPU (read when all is done), and what each costs beside what was
  /// declared without them.
  struct Settled {
    Cost without, each;
    const std::uint32_t* counts = nullptr;  // [n] pinned
    std::uint32_t n = 0;
  };

  /// Both appends return the record's number. `previous`: of the lane.
  std::int64_t append(const TraceRecord& record, std::int64_t previous, std::vector<Event> after = {});
  std::int64_t append_operation(const Op& op, LaneId lane, std::int64_t previous, std::int64_t launch);
  void set_marks(std::int64_t record, const Marks& marks, std::vector<Settled> settled);
  /// Of a host lane's operation, by its thread.
  void set_times(std::int64_t record, Nanos start, Nanos end, const Cost* settled);
  void seen(std::int64_t record, Nanos time);  // the control thread knew at `time` that it was done

  /// A mark that everything of a step lies before, in a stream.
  void end_step(const StepMark& step, const CudaMark* anchor);
  /// Both clocks at a mark: at the beginning, and when all is done.
  struct Anchor {
    const CudaMark* mark = nullptr;
    Nanos time = 0;
  };
  void begin(const Anchor& anchor);

  /// What ran since begin(). Every lane is done. `number_of`: the record of an event, -1 where it is older.
  template <class NumberOf>
  Trace collect(const Anchor& end, const NumberOf& number_of) {
    place_marked(end);
    Trace trace;
    for (std::size_t i = 0; i < records_.size(); ++i)
      records_[i].critical = last_arrival(records_, links_[i].previous, links_[i].after, links_[i].launch, number_of);
    trace.records.assign(records_.begin(), records_.end());
    trace.steps = steps_;
    return trace;
  }
  void clear();

  const TraceRecord& record(std::int64_t number) const { return records_[static_cast<std::size_t>(number)]; }

 private:
  struct Links {
    std::int64_t previous = -1, launch = -1;
    std::vector<Event> after;
    Marks marks;
    std::size_t anchor = 0;  // the last one before it
    std::vector<Settled> settled;
    Nanos seen = 0;  // 0: never
  };
  void place_marked(const Anchor& end);

  std::mutex mutex_;  // of the records: host lanes fill in some while the control thread appends
  std::deque<TraceRecord> records_;
  std::deque<Links> links_;  // of each record
  std::vector<StepMark> steps_;
  std::vector<const CudaMark*> anchors_;  // at the beginning and behind every step
  Nanos begin_ = 0;                       // time of the first
};

/// A mark in the stream at which the clock `now` is known: half way between the two moments that the device must have
/// reached it between, the closest of some tries. Every stream is idle.
CudaTrace::Anchor find_anchor(CudaMarks& marks, CudaStream stream, const std::function<Nanos()>& now);

}  // namespace tandem
