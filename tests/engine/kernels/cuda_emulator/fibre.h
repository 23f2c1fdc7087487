// A fibre: a call stack that runs until it hands control back. x86-64 System V. It stays on the OS thread that resumes
// it first; no exception leaves a fibre.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace tandem::cuda_emulator {

/// The stacks of one block's fibres, with a page between two of them that nobody may touch: an overflow ends the
/// program there instead of in a neighbour's variables. Kept between launches.
class Stacks {
 public:
  explicit Stacks(std::size_t count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  std::size_t count() const { return count_; }
  char* low(std::size_t i) const { return base_ + i * kStride + kGuard; }
  std::span<const unsigned char> all() const {
    return {reinterpret_cast<const unsigned char*>(base_), count_ * kStride};
  }
  static constexpr std::size_t kGuard = 4096, kStride = std::size_t{256} * 1024, kBytes = kStride - kGuard;

 private:
  std::size_t count_;
  char* base_;
};

class Fibre {
 public:
  /// Will run `body` on the given stack when first resumed; both must outlive the fibre.
  Fibre(char* stack_low, const std::function<void()>& body);
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// Runs the fibre until it suspends or ends. Called from outside any fibre.
  void resume();
  /// Back to resume()'s caller. Called on the fibre.
  void suspend();
  bool ended() const { return ended_; }

 private:
  static void enter();
  void* stack_pointer_ = nullptr;
  void* caller_ = nullptr;
  char* stack_low_;
  const std::function<void()>& body_;
  bool ended_ = false;
  // What the address sanitizer keeps per stack.
  void* fake_stack_ = nullptr;
  void* caller_fake_stack_ = nullptr;
  const void* caller_bottom_ = nullptr;
  std::size_t caller_size_ = 0;
};

}  // namespace tandem::cuda_emulator
