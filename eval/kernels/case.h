// One case of a kernel: its shape and inputs, what it must move and compute, its oracle in float64, and how it is
// called on a CPU and on a GPU. The tests check each case on each target, `tandem bench kernels` measures it: so what
// is measured is what is checked. A kernel's cases come in two sizes: small ones that reach every path, and those of a
// model of 8B parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device/cuda/runtime.h"
#include "engine/kernels/page_list.h"
#include "engine/kernels/tensor.h"
#include "engine/kernels/thread_pool.h"

namespace tandem::eval {

enum class KernelTarget : std::uint8_t { cpu, cuda };
constexpr const char* to_string(KernelTarget target) {
  return target == KernelTarget::cpu ? "cpu" : "cuda";
}

/// The memory of one prepared case, on its target; lives as long as the case is run. Copies in and out; not
/// thread-safe.
class CaseMemory {
 public:
  CaseMemory(KernelTarget target, ThreadPool& pool);
  ~CaseMemory();
  CaseMemory(const CaseMemory&) = delete;
  CaseMemory& operator=(const CaseMemory&) = delete;

  bool cuda() const { return target_ == KernelTarget::cuda; }
  ThreadPool& pool() const { return pool_; }
  CudaStream stream() const { return stream_ ? static_cast<CudaStream>(*stream_) : CudaStream{}; }

  /// Bytes on the target, unspecified (NaN where that is cheap); aligned to 64.
  void* bytes(std::size_t count);
  /// Bytes in host memory that the target reaches: pinned for CUDA.
  void* host_bytes(std::size_t count);
  template <class T>
  T* output(std::size_t count) {
    return static_cast<T*>(bytes(count * sizeof(T)));
  }
  template <class T>
  T* input(const std::vector<T>& values) {
    T* const to = output<T>(values.size());
    write(to, values.data(), values.size() * sizeof(T));
    return to;
  }
  /// `values` rounded to `type`; `skip` elements into an allocation, to try other alignments.
  void* stored(const std::vector<float>& values, DType type, std::size_t skip = 0);
  /// case_normals(count, seed, scale) rounded to `type`, for more of them than a vector should hold.
  void* stored_normals(std::size_t count, DType type, unsigned seed, float scale = 1);
  MatrixView matrix(const std::vector<float>& values, DType type, std::uint32_t rows, std::uint32_t cols);

  template <class T>
  std::vector<T> read(const T* from, std::size_t count) {
    std::vector<T> values(count);
    read(values.data(), from, count * sizeof(T));
    return values;
  }
  /// The same of numbers of any type, as float.
  template <class T>
  std::vector<float> numbers(const T* from, std::size_t count) {
    const std::vector<T> values = read(from, count);
    return std::vector<float>(values.begin(), values.end());
  }
  std::vector<float> read_stored(const void* from, DType type, std::size_t count);
  /// Returns when all that was started is done.
  void wait();

 private:
  void write(void* to, const void* from, std::size_t count);
  void read(void* to, const void* from, std::size_t count);
  struct Held;
  KernelTarget target_;
  ThreadPool& pool_;
  std::unique_ptr<OwnedStream> stream_;
  std::unique_ptr<Held> held_;
};

/// Which way a GPU's case crosses the link between host and device.
enum class Link : std::uint8_t { none, to_device, to_host };

/// What bounds a kernel: moving bytes, or multiply-adds of a type.
enum class Bound : std::uint8_t { bytes, bf16, f32, f64 };

/// A case whose inputs lie on a target. Uses the CaseMemory it was prepared with.
struct PreparedCase {
  /// Starts it once; on CUDA it is done after CaseMemory::wait(). However often it runs, every run has as much to do.
  std::function<void()> run;
  std::function<std::vector<float>()> result;     // what the first run wrote, or a sample of it where it is large
  std::function<std::vector<double>()> expected;  // the oracle of that; uses neither memory nor pool
};

struct KernelCase {
  std::string kernel;          // "rms_norm": what --kernel names
  std::string shape;           // "n 4096, d 4096, bf16": unique within the kernel
  double bytes = 0;            // that one run must read and write; with a link: that cross it
  double cpu_bytes = 0;        // the CPU twin's, where they are others: its results stay f32
  double flops = 0;            // multiply-adds count two; 0 where bytes are all that matters
  Bound bound = Bound::bytes;  // what its share is of
  Link link = Link::none;      // bound by the link: its share is that of a large copy over it
  bool threaded = false;       // the CPU twin uses the pool
  double tolerance = 0;        // |result - expected| <= tolerance * max(1, |expected|), on every target
  std::vector<KernelTarget> targets = {KernelTarget::cpu, KernelTarget::cuda};  // that have the kernel
  std::function<void(CaseMemory&, PreparedCase&)> set_up = {};

  PreparedCase prepare(CaseMemory& memory) const {
    PreparedCase prepared;
    set_up(memory, prepared);
    return prepared;
  }
};

enum class CaseSize : std::uint8_t { test, bench };

/// Every kernel's cases.
std::vector<KernelCase> kernel_cases(CaseSize size);

/// What is wrong with a result, as a sentence; empty where it is right. NaN is right where NaN is expected, an infinity
/// where the same one is.
std::string wrong_result(const KernelCase& one, std::span<const float> result, std::span<const double> expected);

/// Standard normal numbers, the same in every run; number i is number i % kNormals.
constexpr std::size_t kNormals = 1 << 16;  // drawing gigabytes of them takes minutes
std::vector<float> case_normals(std::size_t n, unsigned seed, float scale = 1);
/// 0 to n - 1 in an order of the seed.
std::vector<std::uint32_t> shuffled(std::uint32_t n, unsigned seed);
/// n - 1 to 0.
std::vector<std::uint32_t> reversed(std::uint32_t n);
/// The places of the `keep` largest of `scores`, ascending; of equal ones the first count as larger.
std::vector<std::uint32_t> largest(std::span<const float> scores, std::uint32_t keep);
/// What CaseMemory::stored_normals writes, in host memory.
std::vector<char> host_normals(std::size_t count, DType type, unsigned seed, float scale = 1);
/// `values` as they are after rounding to `type`.
std::vector<float> rounded(const std::vector<float>& values, DType type);

/// What of `count` numbers, or rows of them, the oracle of a large result computes: the first and the last `edge` and
/// every `stride`-th, ascending. All of them where there are no more than two edges. A prime stride meets every column.
std::vector<std::size_t> sampled(std::size_t count, std::size_t edge, std::size_t stride);
/// Of rows of `width` numbers those of `rows`.
std::vector<float> rows_of(std::span<const float> all, std::span<const std::size_t> rows, std::size_t width);

/// make(0) to make(n - 1).
auto generated(std::size_t n, const auto& make) {
  std::vector<decltype(make(n))> list;
  list.reserve(n);
  for (std::size_t i = 0; i < n; ++i) list.push_back(make(i));
  return list;
}

/// Pages that so many tokens fill or begin.
inline std::uint32_t pages_of(std::uint32_t tokens) {
  return (tokens + kListPageTokens - 1) / kListPageTokens;
}

/// `part` behind what `to` has.
template <class T>
void append(std::vector<T>& to, const auto& part) {
  to.insert(to.end(), part.begin(), part.end());
}

// Each file of cases gives its own to `take`.
using TakeCase = std::function<void(KernelCase)>;
void append_ahead_cases(CaseSize size, const TakeCase& take);
void append_attention_cases(CaseSize size, const TakeCase& take);
void append_choice_cases(CaseSize size, const TakeCase& take);
void append_fetch_cases(CaseSize size, const TakeCase& take);
void append_gather_cases(CaseSize size, const TakeCase& take);
void append_head_cases(CaseSize size, const TakeCase& take);
void append_heavy_cases(CaseSize size, const TakeCase& take);
void append_linear_cases(CaseSize size, const TakeCase& take);
void append_merge_cases(CaseSize size, const TakeCase& take);
void append_next_token_cases(CaseSize size, const TakeCase& take);
void append_pointwise_cases(CaseSize size, const TakeCase& take);
void append_prefill_cases(CaseSize size, const TakeCase& take);
void append_prediction_cases(CaseSize size, const TakeCase& take);
void append_selection_cases(CaseSize size, const TakeCase& take);
void append_skewed_cases(CaseSize size, const TakeCase& take);
void append_weight_cases(CaseSize size, const TakeCase& take);

}  // namespace tandem::eval
