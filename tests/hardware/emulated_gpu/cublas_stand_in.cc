// A libcublas.so of the tests: the six functions that the probe asks for, on the emulated GPU's streams. Products of up
// to 1,024 terms are computed by their definition in double precision. Longer ones give nothing, and take as long as a
// device of 100 TFLOP/s: the probe reads what it verifies and no product that it times.
#include <bit>
#include <chrono>
#include <cstdint>
#include <cublas_v2.h>

struct cublasContext {  // NOLINT(readability-identifier-naming): cuBLAS's name
  cudaStream_t stream = nullptr;
  unsigned math = CUBLAS_DEFAULT_MATH;
};

namespace {

constexpr int kMostComputed = 1024;  // terms
constexpr double kFlops = 1e14;      // a second

struct Product {
  int out, rows, in;
  const std::uint16_t *weights, *x;
  std::uint16_t* y;
};

double from_bf16(std::uint16_t bits) {
  return double{std::bit_cast<float>(std::uint32_t{bits} << 16)};
}
/// To the nearest, of two as near to the even one. Not for what is no number.
std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

void multiply(void* data) {
  const Product product = *static_cast<Product*>(data);
  delete static_cast<Product*>(data);
  if (product.in > kMostComputed) {
    const auto start = std::chrono::steady_clock::now();
    const std::chrono::duration<double> takes(2.0 * product.out * product.rows * product.in / kFlops);
    while (std::chrono::steady_clock::now() - start < takes) {
    }
    return;
  }
  for (int row = 0; row < product.rows; ++row) {
    for (int column = 0; column < product.out; ++column) {
      double sum = 0;
      const std::uint16_t* const x = product.x + static_cast<std::size_t>(row) * product.in;
      const std::uint16_t* const weights = product.weights + static_cast<std::size_t>(column) * product.in;
      for (int k = 0; k < product.in; ++k) sum += from_bf16(x[k]) * from_bf16(weights[k]);
      product.y[static_cast<std::size_t>(row) * product.out + column] = to_bf16(static_cast<float>(sum));
    }
  }
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): cuBLAS's names
extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  *version = 130000;
  return CUBLAS_STATUS_SUCCESS;
}
/// C (m x n, by columns) = op(A) op(B): the one form that the probe asks for, A (k x m) transposed and B (k x n).
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType type_a, int lda, const void* b,
                            cudaDataType type_b, int ldb, const void* beta, void* c, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
  if (handle == nullptr || handle->stream == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (m <= 0 || n <= 0 || k <= 0 || lda < k || ldb < k || ldc < m) return CUBLAS_STATUS_INVALID_VALUE;
  if (of_a != CUBLAS_OP_T || of_b != CUBLAS_OP_N || type_a != CUDA_R_16BF || type_b != CUDA_R_16BF ||
      type_c != CUDA_R_16BF || compute != CUBLAS_COMPUTE_32F || lda != k || ldb != k || ldc != m ||
      *static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0 ||
      (handle->math & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) == 0)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  auto* const product = new Product{m,
                                    n,
                                    k,
                                    static_cast<const std::uint16_t*>(a),
                                    static_cast<const std::uint16_t*>(b),
                                    static_cast<std::uint16_t*>(c)};
  return cudaLaunchHostFunc(handle->stream, multiply, product) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                              : CUBLAS_STATUS_NOT_INITIALIZED;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
