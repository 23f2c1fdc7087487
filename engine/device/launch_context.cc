#include "engine/device/launch_context.h"

#include <utility>

#include "engine/common/error.h"

namespace tandem {
namespace {

constexpr std::size_t kBufferAlignment = 256;

}  // namespace

void throw_not_on_gpu(std::string_view what_has) {
  throw_input_error("{} no CUDA code yet, so that who asks for it runs with --device sim and emu only.", what_has);
}

LaunchArena::LaunchArena(std::size_t bytes) : memory_{CudaMemory(bytes), PinnedMemory(bytes)} {}

void LaunchArena::grow(std::size_t bytes) {
  const std::size_t size = std::max(2 * memory_.device.bytes(), 2 * bytes);
  old_.push_back(std::exchange(memory_, Memory{CudaMemory(size), PinnedMemory(size)}));
  used_.clear();
  next_ = 0;
}

LaunchArena::Room LaunchArena::take(std::size_t bytes) {
  bytes = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  if (bytes > memory_.device.bytes()) grow(bytes);
  // Free are [next_, the oldest room) where that lies ahead, otherwise [next_, the end) and [0, the oldest room). A
  // ring with next_ at the oldest room is full: it was empty only before anything was used.
  while (!used_.empty()) {
    const std::size_t oldest = used_.front().begin;
    if (oldest > next_) {
      if (bytes <= oldest - next_) break;
    } else if (oldest < next_) {
      if (bytes <= memory_.device.bytes() - next_) break;
      if (bytes <= oldest) {
        next_ = 0;
        break;
      }
    }
    if (used_.front().done == nullptr) {  // all that is left is the operation's own
      grow(bytes);
      break;
    }
    used_.front().done->wait();
    used_.pop_front();
  }
  if (used_.empty() && bytes > memory_.device.bytes() - next_) next_ = 0;
  const Room room{memory_.host.as<std::byte>() + next_, memory_.device.as<std::byte>() + next_};
  used_.push_back({next_, next_ + bytes, nullptr});
  next_ += bytes;
  return room;
}

void LaunchArena::launched(const CudaMark& end) {
  for (auto used = used_.rbegin(); used != used_.rend() && used->done == nullptr; ++used) used->done = &end;
}

void LaunchArena::all_done() {
  used_.clear();
  next_ = 0;
  old_.clear();
}

std::byte* LaunchScratch::take(std::size_t bytes) {
  bytes = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  if (bytes > memory_.bytes() - next_) {
    CudaMemory larger(std::max(2 * memory_.bytes(), 2 * bytes));
    old_.push_back(std::exchange(memory_, std::move(larger)));
    next_ = 0;
  }
  return memory_.as<std::byte>() + std::exchange(next_, next_ + bytes);
}

std::uint32_t* LaunchCounts::take(std::uint32_t n) {
  TANDEM_CHECK(n <= kChunk, "{} counts at once", n);
  if (taken_ % kChunk + n > kChunk) taken_ = (taken_ / kChunk + 1) * kChunk;
  if (taken_ / kChunk >= chunks_.size()) chunks_.emplace_back(kChunk * sizeof(std::uint32_t));
  std::uint32_t* const counts = chunks_[taken_ / kChunk].as<std::uint32_t>() + taken_ % kChunk;
  taken_ += n;
  return counts;
}

void LaunchContext::settle_by(const std::uint32_t* counts, std::uint32_t n, const Cost& each, const Cost& without) {
  std::uint32_t* const kept = rooms_.counts.take(n);
  cuda_copy(kept, counts, n * sizeof(std::uint32_t), stream());
  settled_.push_back({without, each, kept, n});
}

}  // namespace tandem
