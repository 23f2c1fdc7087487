// Limits of this machine that benchmarks compare kernels with: rates of reads and arithmetic, and the CPU time that
// other processes take meanwhile.
#pragma once

#include <chrono>
#include <cstring>
#include <istream>
#include <span>
#include <string>

#include "engine/common/huge_memory.h"
#include "engine/kernels/thread_pool.h"

namespace tandem {

/// Memory for more than the caches hold: in huge pages where the system has them, as the engine's KV.
class PrivateMemory {
 public:
  explicit PrivateMemory(std::size_t bytes) : bytes_(bytes), data_(huge_memory(bytes, "a bench")) {
    std::memset(data_.get(), 1, bytes);
  }
  char* data() { return reinterpret_cast<char*>(data_.get()); }
  const char* data() const { return reinterpret_cast<const char*>(data_.get()); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::shared_ptr<std::byte> data_;
};

/// Bytes per second of one pass over 512 MiB of private memory, now: what a kernel that runs just before or after
/// should be compared with where other work on the machine takes bandwidth.
double read_bandwidth_now(ThreadPool& pool);

/// Bytes per second of one pass over this memory, a multiple of 1 MiB.
double read_rate(ThreadPool& pool, std::span<const char> memory);

/// Operand type of a kernel's inner loop.
enum class Arithmetic {
  f32,         // fused multiply-adds of the active instruction set (multiply and add where it has no fused ones)
  bf16_pairs,  // dot products of bf16 pairs where the active instruction set has them, else as f32
};

/// FLOP/s that the threads of `pool` reach in registers alone, measured now for some 10 ms.
double arithmetic_rate(Arithmetic arithmetic, ThreadPool& pool);

/// Empty where shares of a peak mean something for the threads of `pool`. Else why not: they do not scale in registers
/// (below 0.9 of their number times one), or repeated reads of memory differ too much. Measured once per number of
/// threads, which takes about a second.
const std::string& busy_machine(ThreadPool& pool);

/// Seconds of CPU time that all processes have used since the start, those that a hypervisor took included, by the text
/// of /proc/stat; below 0 where it does not say. `cpus`: of the machine.
double busy_seconds(std::istream&& proc_stat, unsigned& cpus);

/// Watches from its construction on. /proc/stat counts in hundredths of a second: a few tenths are the least to judge.
class CpuContention {
 public:
  CpuContention();
  /// CPUs that others have kept busy since, in the mean; 0 where the machine does not say.
  double cpus() const;
  /// Empty, or a sentence where that is more than a tenth of the machine's CPUs.
  std::string disturbance() const;

 private:
  std::chrono::steady_clock::time_point begin_;
  double busy_ = -1, own_ = 0;  // seconds
};

}  // namespace tandem
