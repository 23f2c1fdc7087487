// What orders two streams, and memory that two of them touch though nothing does: accesses of kernels, of copies and of
// products, one of them a write. Found whatever the streams' threads happened to do first.
//
// A stream is in order with itself, and behind
//   * a mark that it holds for: what was in the other stream before the mark;
//   * a count that it awaits: whatever the host, or a stream, knew when the count got there;
//   * what the host had waited for, or seen a count of, when it put the work into the stream. All threads of the host
//     are one here, since how they tell each other is not seen: what only one of them knew counts for all.
// Nothing is known of the host's own reads and writes, of the default stream, which does everything at once, and of
// memory that was not allocated as the device's or pinned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tandem::cuda_emulator {

/// Of each stream by its number: how many of its works are known to be done.
class Clock {
 public:
  void join(const Clock& other);
  void set(std::uint32_t stream, std::uint64_t works);
  std::uint64_t operator[](std::uint32_t stream) const { return stream < works_.size() ? works_[stream] : 0; }

 private:
  std::vector<std::uint64_t> works_;
};

/// A stream's side of it.
class StreamOrder {
 public:
  StreamOrder();
  /// Nobody learns by that alone that its works are done: on a GPU they go on.
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  /// A work begins: on the thread that does it until end_work(), where `host` is what was known when it was enqueued.
  void begin_work(const Clock& host);
  void end_work();
  /// Of the stream's thread.
  const Clock& clock() const { return clock_; }
  void join(const Clock& other) { clock_.join(other); }
  std::uint32_t number() const { return number_; }

 private:
  std::uint32_t number_;
  Clock clock_;
};

/// What is known to be done, by the stream whose work this thread is doing, or else by the host; and that it knows
/// more.
Clock known_here();
void learn_here(const Clock& clock);

/// Counts in pinned memory: about to be raised to that value by the stream at work or by the host, seen by either to be
/// that or more (in the sense of cuda_await_count).
void count_raised(const std::uint32_t* count, std::uint32_t value);
void count_seen(const std::uint32_t* count, std::uint32_t value);

/// The work of this thread touches memory. `kernel`: its address, nullptr for what is none. Throws Error where another
/// stream's work did, and nothing orders the two. Nothing, where this thread is at no stream's work.
struct Touched {
  const void* at;
  std::size_t bytes;
  bool write;
};
void touch(std::span<const Touched> touched, const void* kernel);

/// Memory that streams share: nobody has touched it yet, and nobody looks at it any more. What is in no such memory is
/// not looked at: parameters of launches, and what the host gave to copies.
void begin_touches(const void* at, std::size_t bytes);
void end_touches(const void* at);

/// " (addr2line -ife PROGRAM 0x...)", by which a place in a program is found.
std::string place_of_code(const void* code);

}  // namespace tandem::cuda_emulator
