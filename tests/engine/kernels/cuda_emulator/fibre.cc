#include "tests/engine/kernels/cuda_emulator/fibre.h"

#include <cstdint>
#include <cstdlib>
#include <new>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the callee-saved registers on the stack that is left, and takes those of the stack that is entered.
extern "C" void tandem_switch_stack(void** leave, void* enter);
asm(R"(
.text
.p2align 4
.globl tandem_switch_stack
.type tandem_switch_stack, @function
tandem_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tandem_switch_stack, .-tandem_switch_stack
)");

namespace tandem::cuda_emulator {
namespace {

thread_local Fibre* starting = nullptr;  // the fibre whose first resume() is under way

}  // namespace

Stacks::Stacks(std::size_t count) : count_(count) {
  void* at = mmap(nullptr, count * kStride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<char*>(at);
  for (std::size_t i = 0; i < count; ++i) mprotect(base_ + i * kStride, kGuard, PROT_NONE);
}

Stacks::~Stacks() {
  munmap(base_, count_ * kStride);
}

Fibre::Fibre(char* stack_low, const std::function<void()>& body) : stack_low_(stack_low), body_(body) {
#ifdef __SANITIZE_ADDRESS__
  ASAN_UNPOISON_MEMORY_REGION(stack_low, Stacks::kBytes);  // what an abandoned fibre left
#endif
  // Stacks begin in different sets of the caches: at the same distance from their ends all of them would share a few.
  const std::size_t colour = reinterpret_cast<std::uintptr_t>(stack_low) / Stacks::kStride % 64 * 320;
  auto* top = reinterpret_cast<std::uint64_t*>(stack_low + Stacks::kBytes - colour);
  *--top = 0;  // where enter() would return to: it never does; keeps its stack aligned as after a call
  *--top = reinterpret_cast<std::uint64_t>(&Fibre::enter);
  for (int i = 0; i < 6; ++i) *--top = 0;
  stack_pointer_ = top;
}

void Fibre::resume() {
  starting = this;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&caller_fake_stack_, stack_low_, Stacks::kBytes);
#endif
  tandem_switch_stack(&caller_, stack_pointer_);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(caller_fake_stack_, nullptr, nullptr);
#endif
}

void Fibre::suspend() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(ended_ ? nullptr : &fake_stack_, caller_bottom_, caller_size_);
#endif
  tandem_switch_stack(&stack_pointer_, caller_);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake_stack_, &caller_bottom_, &caller_size_);
#endif
}

void Fibre::enter() {
  Fibre* const self = starting;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &self->caller_bottom_, &self->caller_size_);
#endif
  self->body_();
  self->ended_ = true;
  self->suspend();
  std::abort();  // an ended fibre was resumed
}

}  // namespace tandem::cuda_emulator
