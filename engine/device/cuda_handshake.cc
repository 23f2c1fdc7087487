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

[[noreturn]] void refuse(const std::string& what) {
  throw_input_error(
      "This GPU cannot run --device cuda: {} Methods whose host and device parts wait for each other need that. "
      "Virtual "
      "machines with confidential computing and WSL are known not to have it; --device sim and emu run everywhere.",
      what);
}

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
  constexpr std::size_t kBytes = Handshake::kBytes;
  *h.told() = *h.go() = *h.done() = 0;
  using Pieces = std::array<std::byte*, 2>;
  const auto pieces = [](const auto& memory, std::size_t apart) {
    return Pieces{memory.template as<std::byte>(), memory.template as<std::byte>() + apart};
  };
  const Pieces there = pieces(h.there, Handshake::kApart), back = pieces(h.back, Handshake::kApart);
  const Pieces device = pieces(h.device, kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) {
    there[0][i] = static_cast<std::byte>(i * 37 + 5);
    there[1][i] = static_cast<std::byte>(i * 59 + 11);
    back[0][i] = back[1][i] = std::byte{0};
  }
  const std::array<std::size_t, 2> sizes = {kBytes, kBytes};
  const auto copy = [&](const Pieces& to, const Pieces& from) {
    const std::array<void*, 2> targets = {to[0], to[1]};
    const std::array<const void*, 2> sources = {from[0], from[1]};
    cuda_copy_pieces(targets, sources, sizes, CopyWay::over_link, h.stream);
  };
  cuda_write_count(h.stream, h.told(), 1);
  cuda_await_count(h.stream, h.go(), 1);
  copy(device, there);
  copy(back, device);
  cuda_write_count(h.stream, h.done(), 1);
  if (!arrives(h.told(), patience)) return "what a stream writes into pinned memory does not reach the host.";
  cuda_raise_count(h.go());
  if (!arrives(h.done(), patience)) return "a stream does not go on when the host writes the word that it waits for.";
  cuda_wait(h.stream);
  if (!std::equal(there[0], there[0] + kBytes, back[0]) || !std::equal(there[1], there[1] + kBytes, back[1]))
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
  refuse(wrong);
}

}  // namespace tandem
