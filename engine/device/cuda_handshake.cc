#include "engine/device/cuda_handshake.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/cuda/runtime.h"

namespace tandem {
namespace {

/// What the stream uses: left where it is when a stream does not end, since giving it back would wait for the stream.
struct Handshake {
  static constexpr std::size_t kStride = 16;  // of the words, so that they share no cache line
  // Of a piece, and from one in the host's memory to the next: so far apart that this memory is of registered pages
  // (runtime.cu), as KV is, which drivers know apart from their own.
  static constexpr std::size_t kBytes = 4096, kApart = std::size_t{4} << 20;
  std::uint32_t* told() const { return words.as<std::uint32_t>(); }
  std::uint32_t* go() const { return told() + kStride; }
  std::uint32_t* done() const { return go() + kStride; }
  OwnedStream stream;
  PinnedMemory words{3 * kStride * sizeof(std::uint32_t)}, there{kApart + kBytes}, back{kApart + kBytes};
  CudaMemory device{2 * kBytes};
};

bool arrives(const std::uint32_t* word, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!cuda_count_reached(word, 1)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Empty: all arrived.
std::string try_handshake(Handshake& h, std::chrono::milliseconds patience) {
  constexpr std::size_t kBytes = Handshake::kBytes, kApart = Handshake::kApart;
  *h.told() = *h.go() = *h.done() = 0;
  auto *const there = h.there.as<std::byte>(), *const back = h.back.as<std::byte>(),
              *const device = h.device.as<std::byte>();
  for (std::size_t i = 0; i < kBytes; ++i) {
    there[i] = static_cast<std::byte>(i * 37 + 5);
    there[kApart + i] = static_cast<std::byte>(i * 59 + 11);
    back[i] = back[kApart + i] = std::byte{0};
  }
  const auto copy = [&](std::byte* to, std::size_t second_to, const std::byte* from, std::size_t second_from) {
    const std::array<void*, 2> targets = {to, to + second_to};
    const std::array<const void*, 2> sources = {from, from + second_from};
    cuda_copy_pieces(targets, sources, std::array{kBytes, kBytes}, CopyWay::over_link, h.stream);
  };
  cuda_write_count(h.stream, h.told(), 1);
  cuda_await_count(h.stream, h.go(), 1);
  copy(device, kBytes, there, kApart);
  copy(back, kApart, device, kBytes);
  cuda_write_count(h.stream, h.done(), 1);
  if (!arrives(h.told(), patience)) return "what a stream writes into pinned memory does not reach the host.";
  cuda_raise_count(h.go());
  if (!arrives(h.done(), patience)) return "a stream does not go on when the host writes the word that it waits for.";
  cuda_wait(h.stream);
  if (!std::equal(there, there + kBytes, back) || !std::equal(there + kApart, there + kApart + kBytes, back + kApart))
    return "what is copied to the device in pieces, and back, is not the same.";
  return "";
}

}  // namespace

void check_cuda_handshake(std::chrono::milliseconds patience) {
  auto handshake = std::make_unique<Handshake>();
  std::string wrong;
  try {
    wrong = try_handshake(*handshake, patience);
  } catch (const CudaError& error) {
    wrong = error.what();
  }
  if (wrong.empty()) return;
  cuda_raise_count(handshake->go());
  // Its stream may never end all the same, which giving its memory back would wait for.
  static auto* const left = new std::vector<std::unique_ptr<Handshake>>;
  left->push_back(std::move(handshake));
  throw_input_error(
      "This GPU cannot run --device cuda: {} Methods whose host and device parts wait for each other need that. "
      "Virtual machines with confidential computing and WSL are known not to have it; --device sim and emu run "
      "everywhere.",
      wrong);
}

}  // namespace tandem
