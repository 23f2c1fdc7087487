// Runs CUDA device code on the CPU, one block after another, every thread of a block as a fibre on this OS thread, of
// which each stream has its own: kernels of several streams run beside each other. What a GPU leaves to chance is
// arranged so that a mistake shows:
//   * warps run until all of their lanes wait for others, lanes until they wait, in orders that are shuffled anew after
//     every barrier and warp operation, so that a missing __syncthreads() or __syncwarp() reads what has not been
//     written;
//   * shared memory starts as NaN (all bits one) in every block and has guard zones that are checked when the block
//   ends;
//   * a copy by cp.async makes its destination NaN when it is issued and writes it when it is waited for;
//   * a barrier that not every thread of the block reaches, a warp operation that a named lane does not take part in,
//     and threads at different barriers are errors that say who waits where;
//   * accesses of two threads to the same bytes that nothing orders are an error, whatever order they ran in (races.h),
//     and so are those of two streams (stream_order.h). Kernels' own only where their target asks for it (races_in)
//     and no sanitizer watches the build.
// Streams are threads (streams.h), each as late as it likes.
// Not emulated: blocks of one kernel side by side (a block that waits for another never ends), caches, and time.
// So it cannot see: warp operations that two sites of the source issue as one (.aligned instructions after a
// divergence); that tensor cores cut sums off where f32 would round them; what the host reads or writes too early; and
// launches that a device refuses, but for more shared memory than max_shared(), or than a launch has asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace tandem::cuda_emulator {

/// A mistake in device code or in its launch, as a sentence that names the block and the thread.
class Error : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

struct Size3 {
  unsigned x = 1, y = 1, z = 1;
};

/// An A100's limit. Not every architecture that we compile for has as much: sm_86, sm_89 and sm_120 have 99 KiB.
constexpr std::size_t kMaxShared = 163 * 1024;

/// Bytes of shared memory that a block of the emulated device may have: kMaxShared, or less where a test says so.
std::size_t max_shared();
void set_max_shared(std::size_t bytes);

/// What a block has of it without asking for more, static and dynamic arrays together.
constexpr std::size_t kUnaskedForShared = 48 * 1024;

/// Runs `thread` once per thread of the grid. `asked`: whether the launch asked for more than kUnaskedForShared. `seed`
/// decides the order of blocks and threads. `kernel`: its address, for messages. `judges`: whether data races are
/// looked for (looks_for_races()). Throws Error, or what
/// `thread` threw; the memory is then in an unspecified state.
void run_grid(Size3 grid, Size3 block, std::size_t dynamic_shared, bool asked, unsigned seed, const void* kernel,
              bool judges, const std::function<void()>& thread);

/// Whether this launch of `kernel` by the engine is looked at for data races, which takes half of its time: its first
/// two of a process are, and every eighth after them. Tests of kernels look at all launches.
bool looks_for_races(const void* kernel);

// ---- Called by the running thread, through language.cuh and the headers of engine/kernels/cuda.

[[noreturn]] void fail(const std::string& what);

unsigned char* dynamic_shared();
/// The block's array of that identity; the first thread that asks makes it.
void* shared_bytes(const void* identity, const char* name, std::size_t bytes, std::size_t alignment);
template <class Type, std::size_t count>
auto& shared_array(const void* identity, const char* name) {
  return *static_cast<Type(*)[count]>(shared_bytes(identity, name, sizeof(Type) * count, alignof(Type)));
}

/// The compiler calls for what it sees (compiler_calls.cc); these are for what it does not: a read by a lane of the
/// running warp, atomics, and reads past the coherent caches.
void note_read_by(unsigned lane, const void* at, std::size_t bytes);
void note_atomic(const void* at, std::size_t bytes);
void note_constant_read(const void* at, std::size_t bytes);
/// These lanes of the running warp have met, and what they did before is done for all of them.
void note_warp_barrier(std::uint32_t lanes);

/// Error unless `at` is aligned and, where it lies in shared memory, all bytes belong to one array.
void check_access(const void* at, std::size_t bytes, std::size_t alignment, const char* operation);
/// The same for what must be shared memory.
void check_shared(const void* at, std::size_t bytes, std::size_t alignment, const char* operation);
/// Of the running thread within its warp.
unsigned lane();

/// The block's other threads have a turn: for a thread that looks at something again and again until it has changed.
void let_others_run();

/// Waits for the whole block at source line `line`.
void block_barrier(int line);
/// The same, and gives every thread the number of threads with a true `predicate`.
int block_count(bool predicate, int line);

/// One warp-wide operation: when every lane of `mask` has called with the same mask, kind and name, `apply` runs once
/// with the lanes' arguments (nullptr for lanes outside the mask), which lie on the lanes' own stacks.
using WarpArguments = void* const (&)[32];
void warp_operation(std::uint32_t mask, const char* name, void* arguments,
                    void (*apply)(WarpArguments lanes, std::uint32_t mask));

void async_copy(void* to_shared, const void* from, std::size_t bytes, bool valid);
void async_commit();
void async_wait(int pending);

/// mma.m16n8k16 and ldmatrix by their definition in the PTX manual.
void multiply_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                      float (*widen)(std::uint16_t));
void load_matrices(std::uint32_t (&out)[4], const void* row, bool transposed);

}  // namespace tandem::cuda_emulator
