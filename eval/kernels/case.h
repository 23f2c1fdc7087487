// One case of a kernel: its shape and inputs, what it must move and compute, its oracle in float64, and how it is
// called on a CPU and on a GPU. The tests check each case on each target, `tandem bench kernels` measures it: so what
// is measured is what is checked. A kernel's cases come in two sizes: small ones that reach every path, and those of a
// model of 8B parameters.
#pragma once

#include <algorithm>
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

/// `part` behind what `to` has.
template <class T>
void append(std::vector<T>& to, const auto& part) {
  to.insert(to.end(), part.begin(), part.end());
}

/// Numbers on a target, and as they were put there in host memory, for oracles.
template <class T>
struct Input {
  std::shared_ptr<const std::vector<T>> values;
  T* target = nullptr;
  const std::vector<T>& host() const { return *values; }
  const T& operator[](std::size_t i) const { return (*values)[i]; }
};

/// Standard normal numbers, the same in every run; number i is number i % kNormals.
constexpr std::size_t kNormals = 1 << 16;  // drawing gigabytes of them takes minutes
std::vector<float> case_normals(std::size_t n, unsigned seed, float scale = 1);

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
  /// body(0) to body(n - 1) on the pool.
  void each(std::size_t n, const auto& body) const { pool_.parallel_for(n, body); }
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
  Input<T> input(std::vector<T> values) {
    T* const to = output<T>(values.size());
    copy(to, values.data(), values.size() * sizeof(T));
    return {std::make_shared<const std::vector<T>>(std::move(values)), to};
  }
  Input<float> normals(std::size_t n, unsigned seed, float scale = 1) { return input(case_normals(n, seed, scale)); }
  template <class T>
  const T* host_input(const std::vector<T>& values) {
    return std::copy(values.begin(), values.end(), static_cast<T*>(host_bytes(values.size() * sizeof(T)))) -
           values.size();
  }
  /// `values` rounded to `type`; `skip` elements into an allocation, to try other alignments.
  void* stored(const std::vector<float>& values, DType type, std::size_t skip = 0);
  /// case_normals(count, seed, scale) rounded to `type`, for more of them than a vector should hold.
  void* stored_normals(std::size_t count, DType type, unsigned seed, float scale = 1);
  /// So many pages of them.
  KvPages normal_pages(std::size_t pages, std::uint32_t kv_heads, std::uint32_t dim, DType type, unsigned seed);
  MatrixView matrix(const std::vector<float>& values, DType type, std::uint32_t rows, std::uint32_t cols);

  // These append to the case's result, as float, in the order of the calls: new memory, or memory that is there.
  template <class T>
  T* result(std::size_t count) {
    return result_at(output<T>(count), count);
  }
  template <class T>
  T* result_at(T* at, std::size_t count) {
    results_.push_back([=, this](std::vector<float>& all) { append(all, read(at, count)); });
    return at;
  }
  void* stored_result(DType type, std::size_t count) {
    return stored_result_at(bytes(count * size_of(type)), type, count);
  }
  void* stored_result_at(void* at, DType type, std::size_t count);
  /// Memory that a kernel fills in `type` on CUDA, and on a CPU in float, which is rounded here.
  void* rounded_result(DType type, std::size_t count);
  /// A count, and so many numbers of each of `lists`.
  void result_lists(const std::uint32_t* count, const std::vector<const std::uint32_t*>& lists);
  /// All of them, read now.
  std::vector<float> results() const;

  template <class T>
  std::vector<T> read(const T* from, std::size_t count) {
    std::vector<T> values(count);
    copy(values.data(), from, count * sizeof(T));
    return values;
  }
  std::vector<float> read_stored(const void* from, DType type, std::size_t count);
  /// Returns when all that was started is done.
  void wait();

 private:
  /// From host memory to the target, or back.
  void copy(void* to, const void* from, std::size_t count);
  struct Held;
  KernelTarget target_;
  ThreadPool& pool_;
  std::unique_ptr<OwnedStream> stream_;
  std::unique_ptr<Held> held_;
  std::vector<std::function<void(std::vector<float>&)>> results_;
};

/// Which way a GPU's case crosses the link between host and device.
enum class Link : std::uint8_t { none, to_device, to_host };

/// What bounds a kernel: moving bytes, or multiply-adds of a type.
enum class Bound : std::uint8_t { bytes, bf16, f32, f64 };

/// A case whose inputs lie on a target. Uses the CaseMemory it was prepared with.
struct PreparedCase {
  /// Starts it once; on CUDA it is done after CaseMemory::wait(). However often it runs, every run has as much to do.
  std::function<void()> run;
  /// Reads the first run's output, or a sample of a large one. Default: CaseMemory::results().
  std::function<std::vector<float>()> result;
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
    PreparedCase prepared{{}, [&memory] { return memory.results(); }, {}};
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

/// `scale` times those of seed 1, on request rounded so that many are equal.
std::vector<float> case_scores(std::size_t n, float scale, bool ties);
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

/// The content of KvPages as float, for oracles.
struct HostKv {
  std::vector<float> values;
  std::uint32_t kv_heads, dim;
  const float* key(std::uint32_t slot, std::size_t kv_head, std::uint32_t position) const {
    const std::size_t page = (std::size_t{slot} * kv_heads + kv_head) * 2 * kListPageTokens;
    return &values[(page + position % kListPageTokens) * dim];
  }
  const float* value(std::uint32_t slot, std::size_t kv_head, std::uint32_t position) const {
    return key(slot, kv_head, position) + std::size_t{kListPageTokens} * dim;
  }
};
/// The values that CaseMemory::normal_pages wrote.
HostKv host_kv(const KvPages& kv, std::size_t pages, unsigned seed);

/// Pages that so many tokens fill or begin.
inline std::uint32_t pages_of(std::uint32_t tokens) {
  return (tokens + kListPageTokens - 1) / kListPageTokens;
}

// Each file of cases gives its own to `take`.
using TakeCase = std::function<void(KernelCase)>;
void append_ahead_cases(CaseSize size, const TakeCase& take);
void append_attention_cases(CaseSize size, const TakeCase& take);
void append_choice_cases(CaseSize size, const TakeCase& take);
void append_fetch_cases(CaseSize size, const TakeCase& take);
void append_head_cases(CaseSize size, const TakeCase& take);
void append_heavy_cases(CaseSize size, const TakeCase& take);
void append_linear_cases(CaseSize size, const TakeCase& take);
void append_pointwise_cases(CaseSize size, const TakeCase& take);
void append_prediction_cases(CaseSize size, const TakeCase& take);
void append_selection_cases(CaseSize size, const TakeCase& take);
void append_skewed_cases(CaseSize size, const TakeCase& take);
void append_mass_cases(CaseSize size, const TakeCase& take);

}  // namespace tandem::eval
