// Data races of one launch, by what happens before what: accesses of two threads to the same bytes, one of them a
// write, that nothing orders. Accesses of device code are looked at, in shared memory and outside it, because the
// compiler calls for each one (-fsanitize=thread, whose runtime compiler_calls.cc is in the place of), but for operands
// of 16 bytes or less that a function which was not inlined takes or gives back by value.
//
// What orders two threads, by the CUDA Programming Guide:
//   * of one block, __syncthreads() and its counting kin;
//   * of one warp, __syncwarp() of both. Shuffles, votes, reductions, ldmatrix and mma order nothing: they say so;
//   * of two blocks, nothing: no kernel of ours waits for another block.
// Atomics do not race with each other; with plain reads and writes they do. Memory that was read past the coherent
// caches (__ldg, load_stream) may not be written by anybody in the same launch, in whatever order.
// Barriers of parts of a warp may be judged too strictly: lanes that touched the same bytes at different times are
// taken for the latest of them. The order in which the emulator happens to run threads does not matter, so that one run
// judges all of them; but only what this run's data make the threads touch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/engine/kernels/cuda_emulator/shadow.h"
#include "tests/engine/kernels/cuda_emulator/stream_order.h"

namespace tandem::cuda_emulator {

class Races {
 public:
  enum class Kind : std::uint8_t { read, constant_read, write, atomic };

  using Bytes = std::span<const unsigned char>;
  /// `stacks`: the threads' own, which are not looked at. `judges`: whether races are looked for; else only touched()
  /// is kept.
  explicit Races(Bytes stacks, bool judges = true) : stacks_(stacks), judges_(judges) {}

  /// A block begins, of so many threads, with shared memory at `shared`: whatever was there is another block's.
  void begin_block(std::uint32_t index, unsigned threads, Bytes shared);
  /// What comes is done by that thread of the block.
  void resume(unsigned thread) { thread_ = thread; }
  /// Every thread of the block has arrived.
  void block_barrier() { ++epoch_; }
  /// So have these lanes of that warp.
  void warp_barrier(unsigned warp, std::uint32_t lanes);

  /// At `code`. Only the first race is kept. Most accesses are to the threads' own stacks, and end here.
  [[gnu::no_sanitize("thread")]] void access(const void* at, std::size_t bytes, Kind kind, const void* code) {
    if (race_ == nullptr && !within(stacks_, at)) look(at, bytes, kind, code);
  }

  /// What was found: who did what where, and what it is not ordered with.
  struct Race {
    const void* at = nullptr;
    std::size_t bytes = 0;
    unsigned thread = 0;
    Kind kind = Kind::read, other_kind = Kind::read;
    std::string other;           // "thread 5", "threads of several warps", "block 3", ...
    const void* code = nullptr;  // of the access
  };
  /// What the launch touched outside blocks' shared memory, in stretches.
  std::vector<Touched> touched() const;

  bool found() const { return race_ != nullptr; }
  const Race& race() const { return *race_; }

 private:
  static constexpr std::uint32_t kNobody = ~0u, kSeveral = ~0u - 1;

  /// Threads that did something to some bytes, as far as a later access can be unordered with them.
  struct Doers {
    std::uint32_t block = kNobody;  // or kSeveral
    std::uint32_t epoch = 0;        // barriers of the block before it
    std::uint32_t time = 0;         // of the warp, the latest of the lanes'
    std::uint32_t warp = 0;         // or kSeveral
    std::uint32_t lanes = 0;
  };
  struct Cell {
    Doers reads, writes, atomics;
    bool constant = false;
  };

  [[gnu::no_sanitize("thread")]] static bool within(Bytes bytes, const void* at) {
    return reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(bytes.data()) < bytes.size();
  }
  void look(const void* at, std::size_t bytes, Kind kind, const void* code);
  bool ordered(const Doers& before) const;
  void add(Doers& doers) const;
  /// What this thread races with, and as what that was touched; nullptr: nothing.
  const Doers* judge(Cell& cell, Kind kind, Kind& other) const;
  std::string name(const Doers& doers) const;

  Bytes stacks_, shared_;
  bool judges_;
  std::uint32_t block_ = 0, epoch_ = 0;
  unsigned thread_ = 0;
  Shadow<Cell> in_shared_, outside_;
  /// Of each warp: its barriers so far. Of each thread and each lane of its warp: the time up to which what that lane
  /// did is ordered before what this thread does now, plus one.
  std::vector<std::uint32_t> times_;
  std::vector<std::uint32_t> seen_;  // [thread][32]
  std::unique_ptr<Race> race_;
};

/// Of the running launch, or nullptr where no device code runs on this OS thread.
extern thread_local Races* races;

}  // namespace tandem::cuda_emulator
