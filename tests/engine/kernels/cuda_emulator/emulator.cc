#include "tests/engine/kernels/cuda_emulator/emulator.h"

#include <atomic>
#include <cstring>
#include <fmt/core.h>
#include <memory>
#include <mutex>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/engine/kernels/cuda_emulator/block.h"
#include "tests/engine/kernels/cuda_emulator/stream_order.h"

namespace tandem::cuda_emulator {
namespace {

thread_local Block* running = nullptr;
std::atomic<std::size_t> shared_limit = kMaxShared;

/// Stacks of launches that ended, for others.
class StackPool {
 public:
  /// At least `count` of them, until the object goes.
  class Lent {
   public:
    Lent(StackPool& pool, std::size_t count) : pool_(pool), stacks_(pool.take(count)) {}
    ~Lent() { pool_.give_back(std::move(stacks_)); }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    const Stacks& operator*() const { return *stacks_; }

   private:
    StackPool& pool_;
    std::unique_ptr<Stacks> stacks_;
  };

 private:
  std::unique_ptr<Stacks> take(std::size_t count) {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Stacks> last = std::move(free_.back());
        free_.pop_back();
        if (last->count() >= count) return last;
      }
    }
    return std::make_unique<Stacks>(count);
  }
  void give_back(std::unique_ptr<Stacks> stacks) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(stacks));
  }
  std::mutex mutex_;
  std::vector<std::unique_ptr<Stacks>> free_;
};

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
              bool judges, const std::function<void()>& thread) {
  const std::size_t threads = std::size_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64)
    throw Error(fmt::format("A block of {} x {} x {} threads cannot be launched.", block.x, block.y, block.z));
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    throw Error(fmt::format("A grid of {} x {} x {} blocks cannot be launched.", grid.x, grid.y, grid.z));
  if (running != nullptr) throw Error("A kernel cannot be launched by a kernel.");
  static StackPool pool;
  const StackPool::Lent stacks(pool, threads);
  SharedMemory shared(kMaxShared + 64 * kGuardBytes, kPoison);
  Races found((*stacks).all(), judges);
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

bool looks_for_races(const void* kernel) {
  constexpr unsigned kFirst = 2, kEvery = 8;
  static std::mutex mutex;
  static std::unordered_map<const void*, unsigned> launches;
  const std::lock_guard lock(mutex);
  const unsigned before = launches[kernel]++;
  return before < kFirst || before % kEvery == 0;
}

void let_others_run() {
  running->wait();
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
