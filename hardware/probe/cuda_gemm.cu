// bf16 matrix products with f32 sums at the shapes of an 8B Llama layer, for few rows (decode) and many (prefill).
// cuBLAS is loaded when the section starts, so that a machine without it loses this section and nothing else.
#include <algorithm>
#include <cmath>
#include <cublas_v2.h>
#include <dlfcn.h>
#include <memory>

#include "hardware/probe/cuda_common.h"
#include "hardware/probe/device.cuh"

namespace tandem::probe {
namespace {

struct Shape {
  const char* name;
  int in, out;  // Y[rows][out] = X[rows][in] W[out][in]^T
};
constexpr Shape kShapes[] = {
    {"qkv", 4096, 6144}, {"attention_out", 4096, 4096}, {"gate_up", 4096, 28672}, {"down", 14336, 4096}};

/// bf16 bits of a value in +-[0.5, 1): random data, because zeros draw less power and run faster than real weights.
__host__ __device__ inline std::uint16_t pattern_bf16(std::uint64_t index) {
  const std::uint32_t bits = pattern_word(index) >> 9;
  return static_cast<std::uint16_t>(0x3F00u | (bits & 0x7Fu) | ((bits & 0x80u) << 8));
}

double bf16_value(std::uint16_t bits) {
  const double magnitude = (1.0 + (bits & 0x7F) / 128.0) * std::ldexp(1.0, ((bits >> 7) & 0xFF) - 127);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

__global__ void fill_bf16(std::uint16_t* values, std::uint64_t count) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    values[i] = pattern_bf16(i);
  }
}

class Cublas {
 public:
  explicit Cublas(const Stream& stream) {
    const std::string major = std::to_string(CUDART_VERSION / 1000);
    const std::string names[] = {"libcublas.so." + major, "/usr/local/cuda/lib64/libcublas.so." + major,
                                 "libcublas.so"};
    for (const std::string& name : names) {
      if (library_ == nullptr) library_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    if (library_ == nullptr) throw ProbeError("cuBLAS " + major + " could not be loaded: " + dlerror() + ".");
    find(create_, "cublasCreate_v2");
    find(destroy_, "cublasDestroy_v2");
    find(set_stream_, "cublasSetStream_v2");
    find(set_math_mode_, "cublasSetMathMode");
    find(gemm_, "cublasGemmEx");
    find(version_, "cublasGetVersion_v2");
    check(create_(&handle_), "creating a handle");
    check(set_stream_(handle_, stream), "setting the stream");
    // All sums in f32, as the engine's products have them: by default parts of a split product may be added in bf16,
    // whose error the check would take for a wrong result.
    const auto mode = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    check(set_math_mode_(handle_, static_cast<cublasMath_t>(mode)), "setting the math mode");
  }
  ~Cublas() {
    if (handle_ != nullptr && !device_stuck()) destroy_(handle_);
    // The library stays loaded: it registers work to be done at exit.
  }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  std::string version() const {
    int version = 0;
    check(version_(handle_, &version), "reading the version");
    return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
           std::to_string(version % 100);
  }

  /// cuBLAS counts columns first: Y^T (out x rows) = W (in x out, transposed) X^T (in x rows).
  void multiply(const Shape& shape, int rows, const void* weights, const void* x, void* y) const {
    const float one = 1, zero = 0;
    check(gemm_(handle_, CUBLAS_OP_T, CUBLAS_OP_N, shape.out, rows, shape.in, &one, weights, CUDA_R_16BF, shape.in, x,
                CUDA_R_16BF, shape.in, &zero, y, CUDA_R_16BF, shape.out, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "multiplying");
  }

 private:
  using Gemm = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                                  const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*,
                                  cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) throw ProbeError(std::string("cuBLAS has no function ") + name + ".");
  }
  static void check(cublasStatus_t status, const char* what) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw ProbeError(std::string("cuBLAS failed while ") + what + ": status " +
                     std::to_string(static_cast<int>(status)) + ".");
  }
  void* library_ = nullptr;
  cublasHandle_t handle_ = nullptr;
  cublasStatus_t (*create_)(cublasHandle_t*) = nullptr;
  cublasStatus_t (*destroy_)(cublasHandle_t) = nullptr;
  cublasStatus_t (*set_stream_)(cublasHandle_t, cudaStream_t) = nullptr;
  cublasStatus_t (*set_math_mode_)(cublasHandle_t, cublasMath_t) = nullptr;
  cublasStatus_t (*version_)(cublasHandle_t, int*) = nullptr;
  Gemm gemm_ = nullptr;
};

class GemmBench {
 public:
  explicit GemmBench(Recorder& recorder)
      : recorder_(recorder),
        // Weights get over half: consecutive products take different copies, as the layers of a model do, so that no
        // product finds its weights in the L2 cache.
        weights_(device_room(recorder) / 100 * 52),
        x_(device_room(recorder) / 100 * 15),
        y_(device_room(recorder) / 100 * 30),
        cublas_(stream_) {
    for (const DeviceMemory* memory : {&weights_, &x_}) {
      launch("launching the fill kernel", fill_bf16, 1024, 256, stream_, memory->as<std::uint16_t>(),
             memory->bytes() / 2);
    }
    stream_.drain("filling matrices");
  }

  void verify() {
    const Shape shape = {"check", 1024, 768};
    const int rows = 48;
    cublas_.multiply(shape, rows, weights_.as<void>(), x_.as<void>(), y_.as<void>());
    std::vector<std::uint16_t> y(static_cast<std::size_t>(rows) * shape.out);
    cuda_check(cudaMemcpyAsync(y.data(), y_.as<void>(), y.size() * 2, cudaMemcpyDeviceToHost, stream_), "reading Y");
    stream_.drain("multiplying");
    for (int i = 0; i < 64; ++i) {
      const int row = i * 11 % rows, column = i * 131 % shape.out;
      double sum = 0, size = 0;
      for (int k = 0; k < shape.in; ++k) {
        const double term = bf16_value(pattern_bf16(static_cast<std::uint64_t>(row) * shape.in + k)) *
                            bf16_value(pattern_bf16(static_cast<std::uint64_t>(column) * shape.in + k));
        sum += term;
        size += std::abs(term);
      }
      const double got = bf16_value(y[static_cast<std::size_t>(row) * shape.out + column]);
      // One rounding to bf16 (2^-8 of the value) and f32 sums of 1024 terms.
      if (!(std::abs(got - sum) <= std::abs(sum) / 128 + size * 1e-5)) {
        throw ProbeError("cuBLAS gave " + std::to_string(got) + " where " + std::to_string(sum) + " was expected.");
      }
    }
    recorder_.checked("matrix product: 64 entries equal the host's double-precision sums (cuBLAS " + cublas_.version() +
                      ").");
  }

  void measure(const Shape& shape, int rows, const char* phase) {
    const Fields conditions = {{"phase", phase},   {"shape", shape.name}, {"rows", rows},       {"in", shape.in},
                               {"out", shape.out}, {"dtype", "bf16"},     {"library", "cuBLAS"}};
    const std::size_t weight_bytes = std::size_t{2} * shape.in * shape.out;
    const std::size_t x_bytes = std::size_t{2} * rows * shape.in, y_bytes = std::size_t{2} * rows * shape.out;
    if (weight_bytes > weights_.bytes() || x_bytes > x_.bytes() || y_bytes > y_.bytes()) {
      recorder_.skip("gemm (" + describe(conditions) + "): larger than the memory allowed by --memory");
      return;
    }
    const std::size_t copies = weights_.bytes() / weight_bytes;
    std::size_t turn = 0;
    const auto once = [&] {
      cublas_.multiply(shape, rows, weights_.as<char>() + turn % copies * weight_bytes, x_.as<void>(), y_.as<void>());
      ++turn;
    };
    const std::string label = "gemm (" + describe(conditions) + ")";
    if (recorder_.seconds_left() <= 0) return recorder_.skip(label);
    const int loops = calibrate_loops(events_, stream_, once, 3e-3, 100);
    const auto samples = recorder_.collect(label, [&] {
      return events_.time(stream_, [&] {
        for (int i = 0; i < loops; ++i) once();
      }) / loops;
    });
    if (!samples) return;
    const double flops = 2.0 * rows * shape.in * shape.out;
    std::vector<double> rate, stream;
    for (const double seconds : *samples) {
      rate.push_back(flops / seconds * 1e-12);
      stream.push_back(static_cast<double>(weight_bytes + x_bytes + y_bytes) / seconds * 1e-9);
    }
    recorder_.add("gemm", "TFLOP/s", conditions, rate);
    if (std::string_view(phase) == "decode") recorder_.add("gemm_bytes", "GB/s", conditions, stream);
  }

 private:
  Recorder& recorder_;
  Stream stream_;
  EventPair events_;
  DeviceMemory weights_, x_, y_;
  Cublas cublas_;
};

}  // namespace

void run_gemm(Recorder& recorder) {
  GemmBench bench(recorder);
  bench.verify();
  for (const int rows : recorder.quick() ? std::vector<int>{1, 64} : std::vector<int>{1, 2, 4, 8, 16, 32, 64}) {
    for (const Shape& shape : kShapes) bench.measure(shape, rows, "decode");
  }
  // Most rows first: a profile takes their rate, and the time cap cuts from the end.
  for (const int rows : recorder.quick() ? std::vector<int>{2048} : std::vector<int>{4096, 2048, 512, 128}) {
    for (const Shape& shape : kShapes) bench.measure(shape, rows, "prefill");
  }
}

}  // namespace tandem::probe
