// Speed of the kernels' cases on this machine (`tandem bench kernels`).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eval/kernels/case.h"

namespace tandem::eval {

struct KernelBenchOptions {
  Target target = Target::cpu;
  std::string kernel;    // only this one; empty: all
  unsigned threads = 0;  // of the CPU kernels that use more than one; 0: all usable
  unsigned rounds = 7;   // per case; a round is at least `round_seconds` long
  double round_seconds = 0.02;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // may be empty
  std::function<bool()> interrupted;  // asked between rounds and oracles; may be empty
};

struct KernelTime {
  std::string kernel, shape;
  double median_us = 0, least_us = 0, most_us = 0;  // of one call
  double bytes = 0, flops = 0;                      // of one call
  /// Of what the machine attains in the same rounds: pure reads (CPU), copies (GPU; over the link for what crosses it),
  /// or multiply-adds for a matrix kernel. Below 0: not known, or others used the CPUs meanwhile.
  double share = -1;
  std::string disturbed;  // "other processes used 0.52 of 2 CPUs"; empty where they did not
};

struct KernelBench {
  Target target = Target::cpu;
  std::string machine;   // "AMD EPYC 9B45, 2 threads, avx512_bf16", "NVIDIA H200"
  std::string no_share;  // why shares are left out; empty where they are there
  std::vector<KernelTime> times;
};

/// Throws InputError where there is no such kernel or target, Interrupted where `interrupted` says so.
KernelBench measure_kernels(const KernelBenchOptions& options);

/// What one run of a case wrote beside the oracle.
struct KernelCheck {
  std::string kernel, shape;
  std::string wrong;  // a sentence; empty: right
};

/// The cases that measure_kernels would measure, each run once and compared with its oracle in float64. The oracles run
/// on all usable threads, but a few of them are large: minutes on two CPUs. Errors as above.
std::vector<KernelCheck> check_kernels(const KernelBenchOptions& options);

std::string kernel_check_text(std::span<const KernelCheck> checks);
std::string kernel_check_json(std::span<const KernelCheck> checks);

std::string kernel_bench_text(const KernelBench& bench);
std::string kernel_bench_json(const KernelBench& bench);

}  // namespace tandem::eval
