// A block of threads that is being run: shared memory, barriers, warp operations, and what is told of mistakes in them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/engine/kernels/cuda_emulator/emulator.h"
#include "tests/engine/kernels/cuda_emulator/fibre.h"
#include "tests/engine/kernels/cuda_emulator/language.cuh"
#include "tests/engine/kernels/cuda_emulator/races.h"

namespace tandem::cuda_emulator {

constexpr unsigned kWarpLanes = 32;
constexpr std::size_t kGuardBytes = 256;
constexpr unsigned char kPoison = 0xff;  // NaN in f64, f32, f16 and bf16

/// By cp.async, until it is waited for.
struct Copy {
  void* to;
  const void* from;  // nullptr: zeros
  std::size_t bytes;
  std::array<unsigned char, 16> then;  // what was there
};

struct Thread {
  uint3 index{};
  unsigned number = 0;  // within the block
  std::unique_ptr<Fibre> fibre;
  enum class State { ready, at_barrier, in_warp_operation, ended } state = State::ready;
  int barrier_line = 0;
  bool predicate = false;
  int count = 0;               // what block_count gave
  const char* operation = "";  // of the warp, that the thread waits in
  std::uint32_t mask = 0;      // its mask
  void* arguments = nullptr;   // its arguments
  void (*apply)(WarpArguments, std::uint32_t) = nullptr;
  std::vector<Copy> open;                 // not yet in a group
  std::vector<std::vector<Copy>> groups;  // committed, oldest first
};

/// Masks of its lanes: those that have not ended, and those of them that wait in a warp operation.
struct Warp {
  std::uint32_t running = 0, waiting = 0;
};

struct SharedArray {
  const void* identity;
  std::string name;
  unsigned char* data;
  std::size_t bytes;
};

/// What blocks have one after the other: all of it is poison when none has it.
using SharedMemory = std::vector<unsigned char>;

/// Runs its threads as fibres. Throws Error for a mistake of theirs, and what they threw.
class Block {
 public:
  Block(Size3 block, std::size_t dynamic_shared, std::size_t most_shared, SharedMemory& memory, const Stacks& stacks,
        std::mt19937& random, Races& found, std::uint32_t index, const std::function<void()>& thread);
  ~Block() { std::fill_n(memory_.begin(), std::min(memory_.size(), used_ + 2 * kGuardBytes), kPoison); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void run();

  Thread& current() { return *current_; }
  /// "block (0, 0, 0), thread (5, 0, 0)": the running one.
  std::string who() const { return who(*current_); }
  void wait() { current_->fibre->suspend(); }
  unsigned char* array(const void* identity, const char* name, std::size_t bytes, std::size_t alignment);
  unsigned char* dynamic() { return arrays_.front().data; }
  void check(const void* at, std::size_t bytes, bool must_be_shared, const char* operation) const;
  void warp_arrive();
  /// What the emulator does with memory for a thread: the compiler does not call for it.
  void note(const void* at, std::size_t bytes, Races::Kind kind, const void* code) {
    races_.access(at, bytes, kind, code);
  }
  void note_read_by(unsigned lane, const void* at, std::size_t bytes) {
    races_.resume(current_->number / kWarpLanes * kWarpLanes + lane);
    races_.access(at, bytes, Races::Kind::read, nullptr);
    races_.resume(current_->number);
  }
  void warp_barrier(std::uint32_t lanes) { races_.warp_barrier(current_->number / kWarpLanes, lanes); }

 private:
  std::string who(const Thread& thread) const;
  /// Gives each lane of a warp that is ready a turn, in a new order. Returns false where none was.
  bool run_lanes(std::size_t warp, std::size_t& ended);
  void resume(Thread& thread);
  [[noreturn]] void report_race() const;
  void release_barrier();
  void check_guards() const;
  [[noreturn]] void report_deadlock() const;

  std::size_t most_shared_;  // bytes
  std::function<void()> body_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Thread* current_ = nullptr;
  bool released_ = false;  // a warp operation has been done: its lanes have another turn before other warps
  std::exception_ptr error_;
  std::mt19937& random_;
  Races& races_;
  SharedMemory& memory_;
  std::size_t used_ = 0;  // of its bytes, from the first multiple of 128 on
  std::vector<SharedArray> arrays_;
};

}  // namespace tandem::cuda_emulator
