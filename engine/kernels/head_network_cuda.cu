#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/head_features.h"
#include "engine/kernels/head_network.h"

namespace tandem::gpu {

// A step's features, a warp per query head.

constexpr unsigned kFeatureThreads = 256;
constexpr unsigned kFeatureWarps = kFeatureThreads / kWarp;

/// Sum of a[i] b[i] in double precision, on every lane.
__device__ __forceinline__ double warp_dot(const float* a, const float* b, std::uint32_t n) {
  double sum = 0.0;
  for (std::uint32_t i = threadIdx.x % kWarp; i < n; i += kWarp)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return warp_sum(sum);
}

/// A block per sequence.
__global__ void __launch_bounds__(kFeatureThreads)
    step_features_kernel(const StepFeatures* steps, const __grid_constant__ HeadShape shape) {
  TANDEM_SHARED(double, largest_of, kFeatureWarps);
  const StepFeatures& step = steps[blockIdx.x];
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const std::uint32_t dim = shape.dim, group = shape.q_heads / shape.kv_heads;
  double largest = 0.0;
  for (std::uint32_t h = warp; h < shape.q_heads; h += kFeatureWarps) {
    const float* const o = step.device_o + std::size_t{h} * dim;
    const double length = sqrt(warp_dot(o, o, dim));
    largest = length > largest ? length : largest;
  }
  if (lane == 0) largest_of[warp] = largest;
  __syncthreads();
  for (unsigned w = 0; w < kFeatureWarps; ++w) largest = largest_of[w] > largest ? largest_of[w] : largest;
  for (std::uint32_t h = warp; h < shape.q_heads; h += kFeatureWarps) {
    const std::size_t at = std::size_t{h} * dim;
    const float* const known = step.known + std::size_t{h} * kFeatures;
    float* const row = step.out + std::size_t{h} * kFeatures;
    const float* const q = step.q + at;
    const double length = sqrt(warp_dot(q, q, dim)),
                 along = warp_dot(q, step.mean_key + h / group * std::size_t{dim}, dim);
    const double turned = warp_dot(q, step.anchor + at, dim);
    const double sinks = warp_dot(step.sink_o + at, step.sink_o + at, dim);
    const double local = warp_dot(step.local_o + at, step.local_o + at, dim);
    for (unsigned f = lane; f < kFeatures; f += kWarp) row[f] = known[f];
    __syncwarp();
    if (lane != 0) continue;
    const double below = length * sqrt(static_cast<double>(dim)), mean = below == 0.0 ? 0.0 : along / below;
    const double both = length * static_cast<double>(known[kAnchorNorm]);
    const double tokens = step.host_tokens > 1 ? step.host_tokens : 1;
    row[kHostTokens] = static_cast<float>(step.host_tokens);
    row[kDeviceTokens] = static_cast<float>(step.device_tokens);
    row[kMeanScore] = static_cast<float>(mean);
    row[kSinkLse] = fmaxf(step.sink_lse[h], kEmptyLse);
    row[kHostLse] = static_cast<float>(log(tokens) + length * mean +
                                       0.5 * length * length * static_cast<double>(known[kScores + 1]));
    row[kLocalLse] = fmaxf(step.local_lse[h], kEmptyLse);
    row[kSinkOutput] = static_cast<float>(sqrt(sinks));
    row[kLocalOutput] = static_cast<float>(sqrt(local));
    row[kQueryNorm] = static_cast<float>(length);
    row[kCosine] = static_cast<float>(both == 0.0 ? 0.0 : turned / both);
    row[kLargestOutput] = static_cast<float>(largest);
  }
}

// The predictor's network, a block of threads per few heads: activations stay in shared memory from one layer to the
// next, a thread per output, and every block reads the weights once from the second-level cache (447 KB of the embedded
// model's). So a batch of one takes four rows per block, for many blocks that read side by side, and a large one 16.

constexpr unsigned kMostNetworkThreads = 512;

__device__ __forceinline__ bool is_finite(float x) {
  return x - x == 0.0f;
}

/// Dynamic shared memory: 2 * widest * kRows floats.
template <unsigned kRows>
__global__ void __launch_bounds__(kMostNetworkThreads, 1)
    predict_heads_kernel(const __grid_constant__ HeadNetwork network, const float* features, std::uint32_t n,
                         float* out) {
  static_assert(kRows % 4 == 0);
  TANDEM_DYNAMIC_SHARED(shared);
  TANDEM_SHARED(float, said, kRows* kHeadOutputs);
  float* x = reinterpret_cast<float*>(shared);  // [input][row]
  float* y = x + std::size_t{network.widest} * kRows;
  const std::uint32_t first = blockIdx.x * kRows, inputs = network.inputs;
  for (std::uint32_t i = threadIdx.x; i < kRows * inputs; i += blockDim.x) {
    const std::uint32_t row = i / inputs, f = i % inputs;  // rows beyond the last take the last once more
    const std::uint32_t from = first + row < n ? first + row : n - 1;
    const float z = (features[std::size_t{from} * inputs + f] - network.mean[f]) * network.scale[f];
    x[f * kRows + row] = z < -kFeatureCut ? -kFeatureCut : z > kFeatureCut ? kFeatureCut : z;  // NaN stays
  }
  __syncthreads();
  for (std::uint32_t l = 0; l + 1 < network.count; ++l) {
    const NetworkLayer layer = network.layers[l];
    for (std::uint32_t o = threadIdx.x; o < layer.out; o += blockDim.x) {
      const float* weight = layer.weight + o;
      float sums[kRows];
#pragma unroll
      for (unsigned r = 0; r < kRows; ++r) sums[r] = layer.bias[o];
#pragma unroll 4
      for (std::uint32_t i = 0; i < layer.in; ++i, weight += layer.out) {
        const float w = *weight;
#pragma unroll
        for (unsigned r = 0; r < kRows; r += 4) {
          const float4 four = load_vector<float4>(x + i * kRows + r);
          sums[r] = fmaf(w, four.x, sums[r]);
          sums[r + 1] = fmaf(w, four.y, sums[r + 1]);
          sums[r + 2] = fmaf(w, four.z, sums[r + 2]);
          sums[r + 3] = fmaf(w, four.w, sums[r + 3]);
        }
      }
#pragma unroll
      for (unsigned r = 0; r < kRows; ++r) y[o * kRows + r] = sums[r] < 0.0f ? 0.0f : sums[r];  // NaN stays
    }
    __syncthreads();
    float* const before = x;
    x = y;
    y = before;
  }
  // The last layer has few outputs: a warp each.
  const NetworkLayer last = network.layers[network.count - 1];
  for (std::uint32_t p = threadIdx.x / kWarp; p < kRows * kHeadOutputs; p += blockDim.x / kWarp) {
    const std::uint32_t row = p / kHeadOutputs, o = p % kHeadOutputs;
    float sum = 0.0f;
    for (std::uint32_t i = threadIdx.x % kWarp; i < last.in; i += kWarp)
      sum = fmaf(last.weight[i * kHeadOutputs + o], x[i * kRows + row], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) said[p] = sum + last.bias[o];
  }
  __syncthreads();
  if (threadIdx.x >= kRows || first + threadIdx.x >= n) return;
  const float* const own = said + threadIdx.x * kHeadOutputs;
  float* const to = out + (std::size_t{first} + threadIdx.x) * kHeadOutputs;
  const bool known = is_finite(own[0]) && is_finite(own[1]);
  to[0] = known ? own[0] : 1.0f;
  to[1] = known ? own[1] : 0.0f;
  to[2] = known && own[2] > 0.0f ? 1.0f : 0.0f;
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;
namespace {

template <unsigned kRows>
void launch_network(Launcher& launch, const HeadNetwork& network, const float* features, std::uint32_t n, float* out) {
  const std::size_t shared = std::size_t{2} * network.widest * kRows * sizeof(float);
  if (shared + 1024 > launch.max_shared())
    throw_input_error(
        "A predictor with layers of {} does not fit into the {} bytes of shared memory of the GPU's blocks.",
        network.widest, launch.max_shared());
  launch(predict_heads_kernel<kRows>, blocks_for(n, kRows), threads_for(network.widest, 1, kMostNetworkThreads), shared,
         network, features, n, out);
}

}  // namespace

void step_features_cuda(const StepFeatures* steps, std::uint32_t n, const HeadShape& shape, CudaStream stream) {
  launch(stream, step_features_kernel, n, kFeatureThreads, 0, steps, shape);
}

void predict_heads_cuda(const HeadNetwork& network, const float* features, std::uint32_t n, float* out,
                        CudaStream stream) {
  TANDEM_CHECK(network.count >= 1, "A network without layers.");
  Launcher launch(stream);
  // 16 rows per block only where that leaves at least half of the multiprocessors with work, and where they fit.
  const bool many = n > launch.multiprocessors() * 8 &&
                    std::size_t{2} * network.widest * 16 * sizeof(float) + 1024 <= launch.max_shared();
  many ? launch_network<16>(launch, network, features, n, out) : launch_network<4>(launch, network, features, n, out);
}

}  // namespace tandem
