#include "tests/engine/kernels/cuda_emulator/block.h"

#include <array>
#include <bit>
#include <cstring>
#include <fmt/core.h>
#include <numeric>

#include "tests/engine/kernels/cuda_emulator/stream_order.h"

namespace tandem::cuda_emulator {

Block::Block(Size3 block, std::size_t dynamic_shared, std::size_t most_shared, SharedMemory& memory,
             const Stacks& stacks, std::mt19937& random, Races& found, std::uint32_t index,
             const std::function<void()>& thread)
    : most_shared_(most_shared),
      threads_(std::size_t{block.x} * block.y * block.z),
      warps_((threads_.size() + kWarpLanes - 1) / kWarpLanes),
      random_(random),
      races_(found),
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
    warps_[i / kWarpLanes].running |= 1u << i % kWarpLanes;
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

std::string Block::who(const Thread& thread) const {
  return fmt::format("block ({}, {}, {}), thread ({}, {}, {})", ::blockIdx.x, ::blockIdx.y, ::blockIdx.z,
                     thread.index.x, thread.index.y, thread.index.z);
}

void Block::run() {
  std::vector<std::size_t> order(warps_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::size_t ended = 0;
  while (ended < threads_.size()) {
    std::shuffle(order.begin(), order.end(), random_);
    bool progress = false;
    for (const std::size_t warp : order) {
      do {
        released_ = false;
        progress = run_lanes(warp, ended) || progress;
      } while (released_);
    }
    if (progress || ended == threads_.size()) continue;
    release_barrier();
  }
  check_guards();
}

bool Block::run_lanes(std::size_t warp, std::size_t& ended) {
  const std::size_t first = warp * kWarpLanes, lanes = std::min<std::size_t>(kWarpLanes, threads_.size() - first);
  std::array<std::uint8_t, kWarpLanes> order{};
  std::iota(order.begin(), order.end(), std::uint8_t{0});
  std::shuffle(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(lanes), random_);
  bool progress = false;
  for (std::size_t i = 0; i < lanes; ++i) {
    Thread& thread = threads_[first + order[i]];
    if (thread.state != Thread::State::ready) continue;
    progress = true;
    resume(thread);
    if (thread.fibre->ended()) {
      thread.state = Thread::State::ended;
      warps_[warp].running &= ~(1u << order[i]);
      ++ended;
    }
  }
  return progress;
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
  throw Error(fmt::format("{}: {} bytes of {} are {}, and nothing orders that with {}, by which they were {}{}.",
                          who(threads_[race.thread]), race.bytes, where, verb(race.kind), race.other,
                          verb(race.other_kind),
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
  Warp& warp = warps_[self.number / kWarpLanes];
  warp.waiting |= 1u << self.number % kWarpLanes;
  if (const std::uint32_t missing = self.mask & ~warp.running; missing != 0)
    throw Error(
        fmt::format("{}: {} names lane {}, which is not there.", who(), self.operation, std::countr_zero(missing)));
  if ((self.mask & ~warp.waiting) != 0) return;
  Thread* const lanes = &threads_[self.number / kWarpLanes * kWarpLanes];
  void* arguments[kWarpLanes] = {};
  for (std::uint32_t left = self.mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(left));
    if (lanes[lane].mask != self.mask) return;
    arguments[lane] = lanes[lane].arguments;
  }
  for (std::uint32_t left = self.mask; left != 0; left &= left - 1) {
    Thread& thread = lanes[std::countr_zero(left)];
    if (thread.apply != self.apply ||
        (thread.operation != self.operation && std::strcmp(thread.operation, self.operation) != 0))
      throw Error(
          fmt::format("{}: {} meets {} of lane {}.", who(), self.operation, thread.operation, std::countr_zero(left)));
    thread.state = Thread::State::ready;
  }
  warp.waiting &= ~self.mask;
  released_ = true;
  self.apply(arguments, self.mask);
}

}  // namespace tandem::cuda_emulator
