#include <array>
#include <cublasLt.h>
#include <dlfcn.h>
#include <map>
#include <tuple>

#include "engine/device/cuda/check.cuh"
#include "engine/kernels/linear_gpu.h"

namespace tandem {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;
constexpr int kMostAlgorithms = 4;  // that are tried, best first

void check(cublasStatus_t status, const char* doing) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw CudaError(fmt::format("cuBLASLt failed while {}: status {}.", doing, static_cast<int>(status)));
}

/// The product was not begun: another algorithm may take it.
bool refused(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

/// The functions of cuBLASLt that are called.
// clang-format off
#define TANDEM_CUBLASLT(F)                                                                          \
  F(Create) F(Destroy) F(Matmul) F(MatmulDescCreate) F(MatmulDescDestroy) F(MatmulDescSetAttribute) \
  F(MatrixLayoutCreate) F(MatrixLayoutDestroy) F(MatmulPreferenceCreate) F(MatmulPreferenceDestroy) \
  F(MatmulPreferenceSetAttribute) F(MatmulAlgoGetHeuristic)
// clang-format on

struct Library {
#define TANDEM_POINTER(name) decltype(&cublasLt##name) name = nullptr;
  TANDEM_CUBLASLT(TANDEM_POINTER)
};

template <class Function>
void find(void* library, Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw InputError(fmt::format("libcublasLt has no function {}; CUDA 13's has it.", name));
}

const Library& library() {
  static const Library loaded = [] {
    void* at = nullptr;
    for (const char* name : {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"})
      if (at == nullptr) at = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (at == nullptr)
      throw InputError(
          fmt::format("cuBLASLt of CUDA 13 could not be loaded ({}). Install it (Debian and Ubuntu: "
                      "libcublas-13-0) or put its folder into LD_LIBRARY_PATH.",
                      dlerror()));
    Library it;
#define TANDEM_FIND(name) find(at, it.name, "cublasLt" #name);
    TANDEM_CUBLASLT(TANDEM_FIND)
    return it;
  }();
  return loaded;
}

cudaDataType_t of(DType type) {
  return type == DType::f32 ? CUDA_R_32F : type == DType::f16 ? CUDA_R_16F : CUDA_R_16BF;
}

/// Largest power of two up to 256 that divides the address: what an algorithm may rely on.
std::uint32_t alignment_of(const void* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at) | 256;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

/// One of cuBLASLt's descriptors.
template <class Handle>
class Descriptor {
 public:
  explicit Descriptor(cublasStatus_t (*destroy)(Handle)) : destroy_(destroy) {}
  ~Descriptor() {
    if (handle != nullptr) destroy_(handle);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Handle handle = nullptr;

 private:
  cublasStatus_t (*destroy_)(Handle);
};

// Types, whether the result is added, shape, and alignments of w, x, y and the bias (0 without one), all of which the
// choice may depend on.
using Key = std::tuple<DType, DType, bool, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                       std::uint32_t, std::uint32_t>;

}  // namespace

struct LinearCuda::Result {
  void* y = nullptr;
  DType type = DType::f32;
  const float* bias = nullptr;
  bool adds = false;  // to what is in y
};

struct LinearCuda::State {
  cublasLtHandle_t handle = nullptr;
  CudaMemory workspace;
  std::map<Key, cublasLtMatmulAlgo_t> chosen;
};

LinearCuda::LinearCuda() : state_(std::make_unique<State>()) {
  check(library().Create(&state_->handle), "making a handle");
  state_->workspace = CudaMemory(kWorkspace);
}

LinearCuda::~LinearCuda() {
  if (state_->handle != nullptr) library().Destroy(state_->handle);
}

void LinearCuda::operator()(const void* x, const MatrixView& w, const float* bias, void* y, DType y_type,
                            std::uint32_t n, CudaStream stream) {
  multiply(x, w, {.y = y, .type = y_type, .bias = bias, .adds = false}, n, stream);
}

void LinearCuda::add(const void* x, const MatrixView& w, float* y, std::uint32_t n, CudaStream stream) {
  multiply(x, w, {.y = y, .type = DType::f32, .bias = nullptr, .adds = true}, n, stream);
}

void LinearCuda::multiply(const void* x, const MatrixView& w, const Result& to, std::uint32_t n, CudaStream stream) {
  const auto [y, y_type, bias, adds] = to;
  TANDEM_CHECK(y_type == DType::f32 || y_type == w.type, "A product of {} is not stored as {}.", to_string(w.type),
               to_string(y_type));
  // cuBLASLt adds a bias of the result's type, f32 for f32 alone.
  TANDEM_CHECK(bias == nullptr || y_type == DType::f32, "A bias in f32 for a result in {}.", to_string(y_type));
  if (n == 0 || w.rows == 0) return;
  const Library& lt = library();
  // Column-major, y^T [out x n] = W [out x in] x^T [in x n]: our rows are its columns, so only W is transposed.
  Descriptor<cublasLtMatmulDesc_t> operation(lt.MatmulDescDestroy);
  check(lt.MatmulDescCreate(&operation.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(lt.MatmulDescSetAttribute(operation.handle, attribute, &value, sizeof value), "describing a product");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (bias != nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  Descriptor<cublasLtMatrixLayout_t> weights(lt.MatrixLayoutDestroy), rows(lt.MatrixLayoutDestroy),
      result(lt.MatrixLayoutDestroy);
  check(lt.MatrixLayoutCreate(&weights.handle, of(w.type), w.cols, w.rows, w.cols), "describing the weights");
  check(lt.MatrixLayoutCreate(&rows.handle, of(w.type), w.cols, n, w.cols), "describing the rows");
  check(lt.MatrixLayoutCreate(&result.handle, of(y_type), w.rows, n, w.rows), "describing the result");

  const std::array<std::uint32_t, 3> aligned = {alignment_of(w.data), alignment_of(x), alignment_of(y)};
  const std::uint32_t bias_aligned = bias == nullptr ? 0 : alignment_of(bias);
  const Key key{w.type, y_type, adds, n, w.rows, w.cols, aligned[0], aligned[1], aligned[2], bias_aligned};
  const auto run = [&](const cublasLtMatmulAlgo_t& algorithm) {
    const float one = 1, kept = to.adds ? 1 : 0;
    return lt.Matmul(state_->handle, operation.handle, &one, w.data, weights.handle, x, rows.handle, &kept, to.y,
                     result.handle, to.y, result.handle, &algorithm, state_->workspace.as<>(), kWorkspace,
                     static_cast<cudaStream_t>(stream.handle));
  };
  if (const auto found = state_->chosen.find(key); found != state_->chosen.end())
    return check(run(found->second), "multiplying");

  std::array<cublasLtMatmulHeuristicResult_t, kMostAlgorithms> algorithms{};
  int results = 0;
  {
    Descriptor<cublasLtMatmulPreference_t> preference(lt.MatmulPreferenceDestroy);
    check(lt.MatmulPreferenceCreate(&preference.handle), "choosing an algorithm");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(lt.MatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value),
            "choosing an algorithm");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned[0]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned[1]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned[2]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned[2]);
    // Where `in` is split between blocks, their partial sums may otherwise be rounded to the result's type before they
    // meet.
    if (y_type != DType::f32)
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    // What it says where it knows none is no error of ours.
    if (lt.MatmulAlgoGetHeuristic(state_->handle, operation.handle, weights.handle, rows.handle, result.handle,
                                  result.handle, preference.handle, kMostAlgorithms, algorithms.data(),
                                  &results) != CUBLAS_STATUS_SUCCESS)
      results = 0;
  }
  // The choice is a guess about this device: what it names first may be refused when it is to run.
  for (int i = 0; i < results; ++i) {
    if (algorithms[i].state != CUBLAS_STATUS_SUCCESS) continue;
    const cublasStatus_t status = run(algorithms[i].algo);
    if (refused(status)) continue;
    check(status, "multiplying");
    state_->chosen.emplace(key, algorithms[i].algo);
    return;
  }
  throw InputError(fmt::format(
      "cuBLASLt has no algorithm that takes {} rows times {} weights of {} x {}, result in {}; it named {}.", n,
      to_string(w.type), w.rows, w.cols, to_string(y_type), results));
}

}  // namespace tandem
