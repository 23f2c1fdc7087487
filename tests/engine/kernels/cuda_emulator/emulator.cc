#include "tests/engine/kernels/cuda_emulator/emulator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <fmt/core.h>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/engine/kernels/cuda_emulator/fibre.h"
#include "tests/engine/kernels/cuda_emulator/language.cuh"
#include "tests/engine/kernels/cuda_emulator/races.h"
#include "tests/engine/kernels/cuda_emulator/stream_order.h"

namespace tandem::cuda_emulator {
namespace {

constexpr unsigned kWarpLanes = 32;
constexpr std::size_t kGuardBytes = 256;
constexpr unsigned char kPoison = 0xff;  // NaN in f64, f32, f16 and bf16

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

struct SharedArray {
  const void* identity;
  std::string name;
  unsigned char* data;
  std::size_t bytes;
};

/// What blocks have one after the other: all of it is poison when none has it.
using SharedMemory = std::vector<unsigned char>;

class Block {
 public:
  Block(Size3 block, std::size_t dynamic_shared, std::size_t most_shared, SharedMemory& memory, const Stacks& stacks,
        std::mt19937& random, Races& races, std::uint32_t index, const std::function<void()>& thread);
  ~Block() { std::fill_n(memory_.begin(), std::min(memory_.size(), used_ + 2 * kGuardBytes), kPoison); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void run();

  Thread& current() { return *current_; }
  std::string who() const {
    return fmt::format("block ({}, {}, {}), thread ({}, {}, {})", ::blockIdx.x, ::blockIdx.y, ::blockIdx.z,
                       current_->index.x, current_->index.y, current_->index.z);
  }
  void wait() { current_->fibre->suspend(); }
  unsigned char* array(const void* identity, const char* name, std::size_t bytes, std::size_t alignment);
  unsigned char* dynamic() { return arrays_.front().data; }
  void check(const void* at, std::size_t bytes, bool must_be_shared, const char* operation) const;
  void warp_arrive();
  /// What this file does with memory for a thread: the compiler does not call for it.
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
  void resume(Thread& thread);
  [[noreturn]] void report_race() const;
  void release_barrier();
  void check_guards() const;
  [[noreturn]] void report_deadlock() const;

  std::size_t most_shared_;  // bytes
  std::function<void()> body_;
  std::vector<Thread> threads_;
  Thread* current_ = nullptr;
  std::exception_ptr error_;
  std::mt19937& random_;
  Races& races_;
  SharedMemory& memory_;
  std::size_t used_ = 0;  // of its bytes, from the first multiple of 128 on
  std::vector<SharedArray> arrays_;
};

Block* running = nullptr;
std::size_t shared_limit = kMaxShared;

Block::Block(Size3 block, std::size_t dynamic_shared, std::size_t most_shared, SharedMemory& memory,
             const Stacks& stacks, std::mt19937& random, Races& races, std::uint32_t index,
             const std::function<void()>& thread)
    : most_shared_(most_shared),
      threads_(std::size_t{block.x} * block.y * block.z),
      random_(random),
      races_(races),
      memory_(memory) {
  body_ = [this, &thread] {
    try {
      thread();
    } catch (...) {
      error_ = std::current_exception();
    }
  };
  for (unsigned i = 0; i < threads_.size(); ++i) {
    threads_[i].number = i;
    threads_[i].index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    threads_[i].fibre = std::make_unique<Fibre>(stacks.low(i), body_);
  }
  array(nullptr, "dynamic shared memory", dynamic_shared, 128);
  races_.begin_block(index, static_cast<unsigned>(threads_.size()), memory_);
}

unsigned char* Block::array(const void* identity, const char* name, std::size_t bytes, std::size_t alignment) {
  for (const SharedArray& known : arrays_)
    if (known.identity == identity) return known.data;
  const std::size_t wanted = std::max<std::size_t>(alignment, 16);
  auto* const base =
      reinterpret_cast<unsigned char*>((reinterpret_cast<std::uintptr_t>(memory_.data()) + 127) / 128 * 128);
  const std::size_t from = (used_ + kGuardBytes + wanted - 1) / wanted * wanted;
  std::size_t total = bytes;
  for (const SharedArray& known : arrays_) total += known.bytes;
  if (total > max_shared() || from + bytes + kGuardBytes + 128 > memory_.size())
    throw Error(fmt::format("The block wants {} bytes of shared memory with '{}'; the device has {}.", total, name,
                            max_shared()));
  if (total > most_shared_)
    throw Error(
        fmt::format("The block wants {} bytes of shared memory with '{}'; its launch asked for no more than {}.", total,
                    name, most_shared_));
  used_ = from + bytes;
  arrays_.push_back({identity, name, base + from, bytes});
  return base + from;
}

void Block::check(const void* at, std::size_t bytes, bool must_be_shared, const char* operation) const {
  const auto* const byte = static_cast<const unsigned char*>(at);
  if (byte < memory_.data() || byte >= memory_.data() + memory_.size()) {
    if (must_be_shared)
      throw Error(fmt::format("{}: {} at an address that is not in shared memory.", who(), operation));
    return;
  }
  const bool inside = std::any_of(arrays_.begin(), arrays_.end(), [&](const SharedArray& array) {
    return byte >= array.data && byte + bytes <= array.data + array.bytes;
  });
  if (!inside) throw Error(fmt::format("{}: {} of {} bytes outside every shared array.", who(), operation, bytes));
}

void Block::check_guards() const {
  const unsigned char* from = memory_.data();
  const SharedArray* before = nullptr;
  const auto clean = [&](const unsigned char* to) {
    const auto bytes = static_cast<std::size_t>(to - from);
    return bytes == 0 || (*from == kPoison && std::memcmp(from, from + 1, bytes - 1) == 0);
  };
  for (const SharedArray& array : arrays_) {
    if (!clean(array.data))
      throw Error(fmt::format("block ({}, {}, {}) wrote outside its shared arrays, {} '{}'.", ::blockIdx.x,
                              ::blockIdx.y, ::blockIdx.z, before ? "between '" + before->name + "' and" : "before",
                              array.name));
    from = array.data + array.bytes;
    before = &array;
  }
  if (!clean(memory_.data() + memory_.size()))
    throw Error(fmt::format("block ({}, {}, {}) wrote outside its shared arrays, behind '{}'.", ::blockIdx.x,
                            ::blockIdx.y, ::blockIdx.z, before->name));
}

void Block::run() {
  std::vector<Thread*> order(threads_.size());
  std::transform(threads_.begin(), threads_.end(), order.begin(), [](Thread& thread) { return &thread; });
  std::size_t ended = 0;
  while (ended < threads_.size()) {
    std::shuffle(order.begin(), order.end(), random_);
    bool progress = false;
    for (Thread* const thread : order) {
      if (thread->state != Thread::State::ready) continue;
      progress = true;
      resume(*thread);
      if (thread->fibre->ended()) {
        thread->state = Thread::State::ended;
        ++ended;
      }
    }
    if (progress || ended == threads_.size()) continue;
    release_barrier();
  }
  check_guards();
}

void Block::resume(Thread& thread) {
  current_ = &thread;
  ::threadIdx = thread.index;
  races_.resume(thread.number);
  races = &races_;
  thread.fibre->resume();
  races = nullptr;
  if (error_) std::rethrow_exception(error_);
  if (races_.found()) report_race();  // nothing may be thrown where the compiler calls
}

void Block::report_race() const {
  const Races::Race& race = races_.race();
  const auto verb = [](Races::Kind kind) {
    switch (kind) {
      case Races::Kind::read:
        return "read";
      case Races::Kind::constant_read:
        return "read past the coherent caches";
      case Races::Kind::write:
        return "written";
      case Races::Kind::atomic:
        return "changed by an atomic";
    }
    return "";
  };
  std::string where = "memory outside the block";
  const auto* const byte = static_cast<const unsigned char*>(race.at);
  for (const SharedArray& array : arrays_)
    if (byte >= array.data && byte < array.data + array.bytes)
      where = fmt::format("'{}' from byte {} on", array.name, byte - array.data);
  throw Error(fmt::format("{}: {} bytes of {} are {}, and nothing orders that with {}, by which they were {}{}.", who(),
                          race.bytes, where, verb(race.kind), race.other, verb(race.other_kind),
                          race.code == nullptr ? "" : place_of_code(static_cast<const char*>(race.code) - 1)));
}

// Nobody can run: either the whole block stands at one barrier, or it never will.
void Block::release_barrier() {
  int count = 0;
  for (const Thread& thread : threads_) {
    if (thread.state != Thread::State::at_barrier || thread.barrier_line != threads_.front().barrier_line)
      report_deadlock();
    count += thread.predicate;
  }
  for (Thread& thread : threads_) {
    thread.state = Thread::State::ready;
    thread.count = count;
  }
  races_.block_barrier();
}

void Block::report_deadlock() const {
  std::string text = fmt::format("block ({}, {}, {}) does not go on:", ::blockIdx.x, ::blockIdx.y, ::blockIdx.z);
  const auto state = [](const Thread& thread) -> std::string {
    switch (thread.state) {
      case Thread::State::at_barrier:
        return fmt::format("at the block barrier of line {}", thread.barrier_line);
      case Thread::State::in_warp_operation:
        return fmt::format("in {} with mask {:#010x}", thread.operation, thread.mask);
      case Thread::State::ended:
        return "has ended";
      case Thread::State::ready:
        break;
    }
    return "ready";
  };
  for (std::size_t from = 0; from < threads_.size();) {
    const std::string here = state(threads_[from]);
    std::size_t to = from + 1;
    while (to < threads_.size() && state(threads_[to]) == here) ++to;
    text += to == from + 1 ? fmt::format(" thread {} {};", from, here)
                           : fmt::format(" threads {} to {} {};", from, to - 1, here);
    from = to;
  }
  text.back() = '.';
  throw Error(text);
}

void Block::warp_arrive() {
  Thread& self = *current_;
  Thread* const warp = &threads_[self.number / kWarpLanes * kWarpLanes];
  const std::size_t lanes =
      std::min<std::size_t>(kWarpLanes, threads_.size() - (self.number / kWarpLanes * kWarpLanes));
  void* arguments[kWarpLanes] = {};
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if (!(self.mask >> lane & 1)) continue;
    if (lane >= lanes || warp[lane].state == Thread::State::ended)
      throw Error(fmt::format("{}: {} names lane {}, which is not there.", who(), self.operation, lane));
    if (warp[lane].state != Thread::State::in_warp_operation || warp[lane].mask != self.mask) return;
    arguments[lane] = warp[lane].arguments;
  }
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if (arguments[lane] == nullptr) continue;
    if (warp[lane].apply != self.apply || std::strcmp(warp[lane].operation, self.operation) != 0)
      throw Error(fmt::format("{}: {} meets {} of lane {}.", who(), self.operation, warp[lane].operation, lane));
    warp[lane].state = Thread::State::ready;
  }
  self.apply(arguments, self.mask);
}

void check_aligned(const void* at, std::size_t alignment, const char* operation) {
  if (reinterpret_cast<std::uintptr_t>(at) % alignment != 0)
    fail(fmt::format("{} at an address that is no multiple of {}.", operation, alignment));
}

void complete(const std::vector<Copy>& group, const void* code) {
  for (const Copy& copy : group) {
    if (copy.from != nullptr && std::memcmp(copy.from, copy.then.data(), copy.bytes) != 0)
      fail("what a cp.async reads was changed before the copy was waited for.");
    running->note(copy.to, copy.bytes, Races::Kind::write, code);
    if (copy.from != nullptr)
      std::memcpy(copy.to, copy.from, copy.bytes);
    else
      std::memset(copy.to, 0, copy.bytes);
  }
}

}  // namespace

std::size_t max_shared() {
  return shared_limit;
}
void set_max_shared(std::size_t bytes) {
  if (bytes > kMaxShared) throw Error(fmt::format("No emulated block has {} bytes of shared memory.", bytes));
  shared_limit = bytes;
}

void run_grid(Size3 grid, Size3 block, std::size_t dynamic_shared, bool asked, unsigned seed, const void* kernel,
              const std::function<void()>& thread) {
  const std::size_t threads = std::size_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64)
    throw Error(fmt::format("A block of {} x {} x {} threads cannot be launched.", block.x, block.y, block.z));
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    throw Error(fmt::format("A grid of {} x {} x {} blocks cannot be launched.", grid.x, grid.y, grid.z));
  // Kernels of several streams take turns: what CUDA's words stand for (threadIdx ...) is there once.
  static std::recursive_mutex turn;
  const std::lock_guard lock(turn);
  if (running != nullptr) throw Error("A kernel cannot be launched by a kernel.");
  static std::optional<Stacks> stacks;
  if (!stacks || stacks->count() < threads) stacks.emplace(threads);
  SharedMemory shared(kMaxShared + 64 * kGuardBytes, kPoison);
  Races found(stacks->all());
  std::mt19937 random(seed);
  ::blockDim = {block.x, block.y, block.z};
  ::gridDim = {grid.x, grid.y, grid.z};
  std::vector<std::size_t> order(std::size_t{grid.x} * grid.y * grid.z);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  struct Reset {
    ~Reset() {
      running = nullptr;
      races = nullptr;
    }
  } reset;
  for (const std::size_t i : order) {
    ::blockIdx = {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                  static_cast<unsigned>(i / grid.x / grid.y)};
    Block one(block, dynamic_shared, asked ? max_shared() : kUnaskedForShared, shared, *stacks, random, found,
              static_cast<std::uint32_t>(i), thread);
    running = &one;
    one.run();
  }
  touch(found.touched(), kernel);
}

void fail(const std::string& what) {
  throw Error(running != nullptr ? running->who() + ": " + what : what);
}

unsigned char* dynamic_shared() {
  return running->dynamic();
}

void* shared_bytes(const void* identity, const char* name, std::size_t bytes, std::size_t alignment) {
  return running->array(identity, name, bytes, alignment);
}

void note_warp_barrier(std::uint32_t lanes) {
  running->warp_barrier(lanes);
}

void check_access(const void* at, std::size_t bytes, std::size_t alignment, const char* operation) {
  check_aligned(at, alignment, operation);
  running->check(at, bytes, false, operation);
}

void check_shared(const void* at, std::size_t bytes, std::size_t alignment, const char* operation) {
  check_aligned(at, alignment, operation);
  running->check(at, bytes, true, operation);
}

void note_read_by(unsigned lane, const void* at, std::size_t bytes) {
  running->note_read_by(lane, at, bytes);
}

void note_atomic(const void* at, std::size_t bytes) {
  running->note(at, bytes, Races::Kind::atomic, __builtin_return_address(0));
}

void note_constant_read(const void* at, std::size_t bytes) {
  running->note(at, bytes, Races::Kind::constant_read, __builtin_return_address(0));
}

unsigned lane() {
  return running->current().number % kWarpLanes;
}

int block_count(bool predicate, int line) {
  Thread& self = running->current();
  self.state = Thread::State::at_barrier;
  self.barrier_line = line;
  self.predicate = predicate;
  running->wait();
  return self.count;
}

void block_barrier(int line) {
  block_count(false, line);
}

void warp_operation(std::uint32_t mask, const char* name, void* arguments,
                    void (*apply)(WarpArguments, std::uint32_t)) {
  Thread& self = running->current();
  if (!(mask >> (self.number % kWarpLanes) & 1)) fail(fmt::format("{} with a mask without its own lane.", name));
  self.state = Thread::State::in_warp_operation;
  self.operation = name;
  self.mask = mask;
  self.arguments = arguments;
  self.apply = apply;
  running->warp_arrive();
  // The last lane to arrive yields as well, so that no lane runs ahead of the others by habit.
  running->wait();
}

void async_copy(void* to_shared, const void* from, std::size_t bytes, bool valid) {
  check_shared(to_shared, bytes, bytes, "cp.async");
  check_aligned(from, bytes, "cp.async reading");
  // An address must be readable though nothing is read from it: where it is not, the program ends here.
  static_cast<void>(*static_cast<const volatile unsigned char*>(from));
  std::memset(to_shared, kPoison, bytes);
  running->note(to_shared, bytes, Races::Kind::write, __builtin_return_address(0));
  if (valid) running->note(from, bytes, Races::Kind::read, __builtin_return_address(0));
  Copy copy{to_shared, valid ? from : nullptr, bytes, {}};
  if (valid) std::memcpy(copy.then.data(), from, bytes);
  running->current().open.push_back(copy);
}

void async_commit() {
  Thread& self = running->current();
  self.groups.push_back(std::exchange(self.open, {}));
}

void async_wait(int pending) {
  std::vector<std::vector<Copy>>& groups = running->current().groups;
  while (groups.size() > static_cast<std::size_t>(pending)) {
    complete(groups.front(), __builtin_return_address(0));
    groups.erase(groups.begin());
  }
}

}  // namespace tandem::cuda_emulator
