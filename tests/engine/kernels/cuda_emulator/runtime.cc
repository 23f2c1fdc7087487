// The emulated engine/device/cuda/runtime.h: device memory is host memory that starts as NaN and has guard zones.
// Streams and marks are streams.cc's.
#include "engine/device/cuda/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "tests/engine/kernels/cuda_emulator/emulator.h"
#include "tests/engine/kernels/cuda_emulator/memory.h"
#include "tests/engine/kernels/cuda_emulator/stream_order.h"
#include "tests/engine/kernels/cuda_emulator/streams.h"

namespace tandem {
namespace {

constexpr std::size_t kGuard = 256;
constexpr unsigned char kPoison = 0xff;  // NaN in f64, f32, f16 and bf16

void* allocate(std::size_t bytes) {
  auto* const all = static_cast<unsigned char*>(::operator new(bytes + 2 * kGuard, std::align_val_t(kGuard)));
  std::memset(all, kPoison, bytes + 2 * kGuard);
  if (cuda_emulator::idle()) std::memset(all + kGuard, 0, bytes);
  return all + kGuard;
}

// A write outside device memory has already spoiled the test: it ends here, where a destructor cannot throw.
void release(void* data, std::size_t bytes) {
  if (data == nullptr) return;
  auto* const all = static_cast<unsigned char*>(data) - kGuard;
  const auto clean = [](const unsigned char* from) {
    return std::all_of(from, from + kGuard, [](unsigned char byte) { return byte == kPoison; });
  };
  if (!clean(all) || !clean(all + kGuard + bytes)) {
    std::fprintf(stderr, "A kernel wrote outside %zu bytes of emulated device memory.\n", bytes);
    std::abort();
  }
  ::operator delete(all, std::align_val_t(kGuard));
}

std::mutex allocated_mutex;
std::map<const void*, cuda_emulator::Allocation> allocated;

}  // namespace

std::optional<cuda_emulator::Allocation> cuda_emulator::allocation_of(const void* data) {
  const std::lock_guard lock(allocated_mutex);
  const auto next = allocated.upper_bound(data);
  if (next == allocated.begin()) return std::nullopt;
  const Allocation& there = std::prev(next)->second;
  if (static_cast<const char*>(data) >= there.begin + there.bytes) return std::nullopt;
  return there;
}

std::size_t cuda_emulator::allocated_bytes(CudaPlace place) {
  const std::lock_guard lock(allocated_mutex);
  std::size_t sum = 0;
  for (const auto& [begin, there] : allocated) sum += there.place == place ? there.bytes : 0;
  return sum;
}

const std::string& cuda_missing() {
  static const std::string nothing;
  return nothing;
}

const CudaDevice& cuda_device() {
  static const CudaDevice device{"emulated", 8, 0, 4, std::size_t{1} << 30, cuda_emulator::kMaxShared, 13000, 13000};
  return device;
}

void* cuda_allocate(CudaPlace place, std::size_t bytes) {
  void* const data = allocate(bytes);
  cuda_emulator::begin_touches(data, bytes);
  const std::lock_guard lock(allocated_mutex);
  allocated[data] = {static_cast<const char*>(data), bytes, place};
  return data;
}
void cuda_release(CudaPlace, void* data, std::size_t bytes) noexcept {
  if (data == nullptr) return;
  cuda_emulator::settle_all();
  cuda_emulator::end_touches(data);
  {
    const std::lock_guard lock(allocated_mutex);
    allocated.erase(data);
  }
  release(data, bytes);
}

namespace {

/// Pieces may run beside each other: none may be written where another is read or written.
void check_apart(std::span<void* const> to, std::span<const void* const> from, std::span<const std::size_t> bytes) {
  struct Stretch {
    const char *begin, *end;
    bool written;
  };
  std::vector<Stretch> all;
  for (std::size_t i = 0; i < to.size(); ++i) {
    for (const auto& [at, written] : {std::pair<const void*, bool>(to[i], true), {from[i], false}})
      all.push_back({static_cast<const char*>(at), static_cast<const char*>(at) + bytes[i], written});
  }
  std::sort(all.begin(), all.end(), [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  const char *read_to = nullptr, *written_to = nullptr;
  for (const Stretch& one : all) {
    if (one.begin < one.end && (one.begin < written_to || (one.written && one.begin < read_to)))
      cuda_emulator::fail("two pieces of one batch of copies overlap, of which one is written.");
    const char*& to_here = one.written ? written_to : read_to;
    to_here = std::max(to_here, one.end);
  }
}

void copy_now(void* to, const void* from, std::size_t bytes) {
  const cuda_emulator::Touched touched[] = {{from, bytes, false}, {to, bytes, true}};
  cuda_emulator::touch(touched, nullptr);
  std::memcpy(to, from, bytes);
}

}  // namespace

// As late with memory that was not allocated here, as std::vector has it: so may a GPU be that reaches all of the
// host's.
void cuda_copy(void* to, const void* from, std::size_t bytes, CudaStream stream) {
  if (bytes == 0 || !cuda_emulator::asked(cuda_emulator::Call::copy)) return;
  cuda_emulator::enqueue(stream, [=] { copy_now(to, from, bytes); });
}

void cuda_copy_pieces(std::span<void* const> to, std::span<const void* const> from, std::span<const std::size_t> bytes,
                      CopyWay way, CudaStream stream) {
  TANDEM_CHECK(to.size() == from.size() && to.size() == bytes.size(), "{}, {} and {} pieces.", to.size(), from.size(),
               bytes.size());
  if (to.empty()) return;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto there = cuda_emulator::allocation_of(to[i]), here = cuda_emulator::allocation_of(from[i]);
    TANDEM_CHECK(there && here, "Piece {} is in memory that is not pinned.", i);
    const bool within = there->place == CudaPlace::device && here->place == CudaPlace::device;
    TANDEM_CHECK(
        within == (way == CopyWay::within_device), "Piece {} is said to {}.", i,
        within ? "cross the link, and stays within the device" : "stay within the device, and crosses the link");
  }
  if (!cuda_emulator::asked(cuda_emulator::Call::copy) || cuda_emulator::lack() == cuda_emulator::Lack::copies) return;
  check_apart(to, from, bytes);
  const std::vector<void*> places(to.begin(), to.end());
  const std::vector<const void*> sources(from.begin(), from.end());
  const std::vector<std::size_t> sizes(bytes.begin(), bytes.end());
  cuda_emulator::enqueue(stream, [=] {  // in no order to rely on
    for (std::size_t i = sizes.size(); i-- > 0;) copy_now(places[i], sources[i], sizes[i]);
  });
}

}  // namespace tandem
