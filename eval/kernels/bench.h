// Speed and correctness of the kernels' cases on this machine (`tandem bench kernels`). A case that fails, or a run
// that ends early, costs nothing of what was finished before.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "eval/kernels/case.h"

namespace tandem::eval {

struct KernelBenchOptions {
  KernelTarget target = KernelTarget::cpu;
  std::string kernel;                   // only this one; empty: all
  std::string shape;                    // only cases whose shape contains this text; empty: all
  std::vector<std::string> cases = {};  // only these, "KERNEL:SHAPE", in this order; beside neither of the two above
  unsigned threads = 0;                 // of the CPU kernels that use more than one; 0: all usable
  unsigned rounds = 7;                  // per case; a round is at least `round_seconds` long
  double round_seconds = 0.02;
  std::function<bool()> interrupted = {};  // asked between rounds and oracles; may be empty
};

/// The cases that the options choose, at the sizes that are measured. The shape of one of `options.cases` is a whole
/// one, or a text that shapes contain where none is equal to it. Throws InputError where there is no such kernel, shape
/// or target.
std::vector<KernelCase> bench_cases(const KernelBenchOptions& options);

/// Cases that were run one after the other.
template <class Row>
struct KernelRun {
  KernelTarget target = KernelTarget::cpu;
  std::string machine;    // "AMD EPYC 9B45, 2 threads, avx512_bf16", "NVIDIA H200"
  std::size_t cases = 0;  // that there are
  std::vector<Row> rows;  // of those that are finished, in their order: fewer where the run was interrupted or stopped
  std::string stopped;    // the case that cost the device, and how, a sentence; empty: none did
};

struct KernelTime {
  std::string kernel, shape;
  std::string error = {};  // why it could not be measured, a sentence; empty: it was. All below is 0 then.
  double median_us = 0, least_us = 0, most_us = 0;  // of one call
  double bytes = 0, flops = 0;                      // of one call
  /// Of what the machine attains in the same rounds: pure reads (CPU), copies (GPU; over the link for what crosses it),
  /// or multiply-adds for a matrix kernel. Below 0: not known, or others used the CPUs meanwhile.
  double share = -1;
  std::string no_share = {};   // why what the machine attains could not be measured, a sentence; empty where it was
  std::string disturbed = {};  // "other processes used 0.52 of 2 CPUs"; empty where they did not
};

struct KernelBench : KernelRun<KernelTime> {
  unsigned threads = 0;  // of the CPU kernels that use more than one; 0 on a GPU
  std::string no_share;  // why shares are left out; empty where they are there
};

/// Measures one case after the other and calls `after_case`, which may be empty, with what there is so far after each.
/// What a case throws becomes its row's error. Where `interrupted` says so, or a case leaves a device that answers no
/// more (a kernel that touched memory it should not), the rows that are finished are the result.
/// Throws what `after_case` throws, and CudaError where the device has no memory for what cases are measured beside.
KernelBench measure_kernels(const std::vector<KernelCase>& cases, const KernelBenchOptions& options,
                            const std::function<void(const KernelBench&)>& after_case);

/// What one run of a case wrote beside the oracle.
struct KernelCheck {
  std::string kernel, shape;
  std::string error;  // why it could not be compared, a sentence; empty: it was
  std::string wrong;  // a sentence; empty: right, unless there is an error
};

using KernelChecks = KernelRun<KernelCheck>;

/// Runs each case once and compares it with its oracle in float64. Oracles run beside each other on the threads of the
/// options; the largest take some 15 s of one. Calls, errors and interrupts as above; no two calls of `after_case`
/// overlap, but they come from any of the threads.
KernelChecks check_kernels(const std::vector<KernelCase>& cases, const KernelBenchOptions& options,
                           const std::function<void(const KernelChecks&)>& after_case);

/// Tables, and the same as JSON, where a run that is not over says so.
std::string kernel_bench_text(const KernelBench& bench);
std::string kernel_bench_json(const KernelBench& bench);
std::string kernel_check_text(const KernelChecks& checks);
std::string kernel_check_json(const KernelChecks& checks);

}  // namespace tandem::eval
