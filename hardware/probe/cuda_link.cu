// Host <-> device by piece size and count: a loop of cudaMemcpyAsync, one cudaMemcpyBatchAsync, and a kernel that
// reaches pinned memory itself. Pieces lie at random slots of a pinned pool, as selected KV pages do, and in a row on
// the device.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>

#include "hardware/probe/cuda_common.h"
#include "hardware/probe/device.cuh"

namespace tandem::probe {
namespace {

enum class Method { dma_loop, dma_batch, zero_copy };
enum class Direction { h2d, d2h };

const char* name_of(Method method) {
  return method == Method::dma_loop ? "dma_loop" : method == Method::dma_batch ? "dma_batch" : "zero_copy";
}
const char* name_of(Direction direction) {
  return direction == Direction::h2d ? "h2d" : "d2h";
}

constexpr int kThreads = 256;
constexpr int kBlocks = 32;  // of the zero-copy kernel: a share of the multiprocessors that leaves the rest to compute

/// Moves `total` 16-byte words between pool slots and a packed array. Piece p is 2^shift words at pool + slots[p] <<
/// shift. Four loads in flight per thread hide part of the link's round trip.
template <bool kToDevice>
__global__ void move_pieces(uint4* packed, uint4* pool, const std::uint32_t* slots, int shift, std::uint64_t total) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  const std::uint64_t mask = (std::uint64_t{1} << shift) - 1;
  const auto host = [&](std::uint64_t i) { return pool + ((std::uint64_t{slots[i >> shift]} << shift) | (i & mask)); };
  std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < total; i += 4 * stride) {
    uint4 words[4];
    for (int j = 0; j < 4; ++j) words[j] = kToDevice ? __ldcs(host(i + j * stride)) : packed[i + j * stride];
    for (int j = 0; j < 4; ++j) (kToDevice ? packed[i + j * stride] : *host(i + j * stride)) = words[j];
  }
  for (; i < total; i += stride) {
    if (kToDevice) {
      packed[i] = __ldcs(host(i));
    } else {
      *host(i) = packed[i];
    }
  }
}

// At most half of a multiprocessor's threads and registers: what is measured beside it needs room there. 32 KB in
// flight on each are enough for HBM3.
constexpr unsigned kLoadThreads = 512;

/// Reads device memory over and over for `duration` nanoseconds: decode attention's and decode GEMMs' kind of load.
__global__ void __launch_bounds__(kLoadThreads, 2)
    read_for(const uint4* data, std::uint64_t count, unsigned long long duration, volatile unsigned* started,
             unsigned token, unsigned* sink) {
  const unsigned long long begin = nanoseconds_now();
  if (blockIdx.x == 0 && threadIdx.x == 0) *started = token;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  unsigned sum = 0;
  while (nanoseconds_now() - begin < duration) {
    for (int round = 0; round < 16; ++round) {
      uint4 words[4];
      for (int j = 0; j < 4; ++j) {
        words[j] = __ldcs(data + i);
        i += stride;
        if (i >= count) i -= count;
      }
      for (int j = 0; j < 4; ++j) sum += words[j].x ^ words[j].y ^ words[j].z ^ words[j].w;
    }
  }
  if (sum == 0xFFFFFFFFu) *sink = sum;
}

/// Runs read_for beside a measurement and tells whether it covered it.
class Beside {
 public:
  explicit Beside(std::size_t bytes)
      : data_(bytes),
        sink_(sizeof(unsigned)),
        flag_(sizeof(unsigned)),
        blocks_(static_cast<unsigned>(device_attribute(cudaDevAttrMultiProcessorCount, "counting multiprocessors"))) {
    *flag_.as<unsigned>() = 0;
    cuda_check(cudaMemsetAsync(data_.as<void>(), 1, bytes, stream_), "filling device memory");
    run(1e-4, [] {});
  }

  /// Starts the load for `duration_s`, calls `work`, and returns whether the load was still running at its end.
  bool run(double duration_s, const std::function<void()>& work) {
    stream_.drain("running the load kernel");  // of work that threw
    const unsigned token = ++token_;
    launch("launching the load kernel", read_for, blocks_, kLoadThreads, stream_, data_.as<uint4>(), data_.bytes() / 16,
           static_cast<unsigned long long>(duration_s * 1e9), flag_.as<unsigned>(), token, sink_.as<unsigned>());
    const auto start = Clock::now();
    while (std::atomic_ref(*flag_.as<unsigned>()).load(std::memory_order_acquire) != token) {
      if (seconds_since(start) > 5) declare_device_stuck("The load kernel did not start within 5 s.");
    }
    work();
    const bool covered = cudaStreamQuery(stream_) == cudaErrorNotReady;
    stream_.drain("running the load kernel");
    return covered;
  }

 private:
  Stream stream_;
  DeviceMemory data_, sink_;
  PinnedMemory flag_;
  unsigned blocks_;
  unsigned token_ = 0;
};

class LinkBench {
 public:
  explicit LinkBench(Recorder& recorder)
      : recorder_(recorder),
        pool_(std::min(pinned_room(recorder), std::size_t{512} << 20) >> 24 << 24),
        packed_(std::min(pool_.bytes() / 2, device_room(recorder) / 4) >> 24 << 24),
        slots_device_(kMostPieces * sizeof(std::uint32_t)),
        beside_(std::min(std::size_t{512} << 20, device_room(recorder) / 2)) {}

  static constexpr std::size_t kMostPieces = 8192;

  /// Chooses `pieces` random slots. False where the pool or the device buffer is too small.
  bool prepare(std::size_t piece, std::size_t pieces) {
    const std::size_t slots = pool_.bytes() / piece;
    if (pieces > kMostPieces || pieces * 2 > slots || piece * pieces > packed_.bytes()) return false;
    piece_ = piece;
    std::vector<std::uint32_t> order(slots);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), std::mt19937(5));
    slots_.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(pieces));
    host_.clear();
    device_.clear();
    for (std::size_t i = 0; i < pieces; ++i) {
      host_.push_back(pool_.as<char>() + slots_[i] * piece);
      device_.push_back(packed_.as<char>() + i * piece);
    }
    sizes_.assign(pieces, piece);
    cuda_check(cudaMemcpyAsync(slots_device_.as<void>(), slots_.data(), pieces * sizeof(std::uint32_t),
                               cudaMemcpyHostToDevice, stream_),
               "copying slot numbers");
    stream_.drain("copying slot numbers");
    return true;
  }

  void enqueue(Method method, Direction direction, int blocks) {
    const bool in = direction == Direction::h2d;
    if (method == Method::dma_loop) {
      for (std::size_t i = 0; i < host_.size(); ++i) {
        cuda_check(in ? cudaMemcpyAsync(device_[i], host_[i], piece_, cudaMemcpyHostToDevice, stream_)
                      : cudaMemcpyAsync(host_[i], device_[i], piece_, cudaMemcpyDeviceToHost, stream_),
                   "copying a piece");
      }
    } else if (method == Method::dma_batch) {
      cudaMemcpyAttributes attributes{};
      attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
      attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
      constexpr std::size_t kMost = 1024;  // of a call, as the engine's (engine/device/cuda/runtime.cu)
      for (std::size_t begin = 0; begin < sizes_.size(); begin += kMost) {
        std::size_t first = 0;
        cuda_check(cudaMemcpyBatchAsync((in ? device_ : host_).data() + begin, (in ? host_ : device_).data() + begin,
                                        sizes_.data() + begin, std::min(kMost, sizes_.size() - begin), &attributes,
                                        &first, 1, stream_),
                   "copying a batch of pieces");
      }
    } else {
      int shift = 0;
      while ((std::size_t{16} << shift) < piece_) ++shift;
      const std::uint64_t total = host_.size() * piece_ / 16;
      const auto grid = static_cast<unsigned>(std::min<std::uint64_t>(blocks, (total + kThreads - 1) / kThreads));
      launch("launching the gather kernel", in ? move_pieces<true> : move_pieces<false>, grid, kThreads, stream_,
             packed_.as<uint4>(), pool_.as<uint4>(), slots_device_.as<std::uint32_t>(), shift, total);
    }
  }

  void verify(std::size_t piece) {
    const std::size_t pieces = std::min<std::size_t>(64, std::max<std::size_t>(1, (std::size_t{16} << 20) / piece));
    if (!prepare(piece, pieces)) return;
    const std::size_t total = piece * pieces;
    std::vector<std::uint32_t> packed(total / 4);
    for (const Method method : {Method::dma_loop, Method::dma_batch, Method::zero_copy}) {
      for (const Direction direction : {Direction::h2d, Direction::d2h}) {
        const bool in = direction == Direction::h2d;
        const std::uint64_t base = ++pattern_ << 32;
        // The source gets a pattern no earlier check used, so a copy that did nothing cannot pass.
        for (std::size_t i = 0; i < pieces; ++i) {
          for (std::size_t w = 0; w < piece / 4; ++w) {
            const std::size_t at = i * (piece / 4) + w;
            packed[at] = pattern_word(base + at);
            if (in) reinterpret_cast<std::uint32_t*>(host_[i])[w] = packed[at];
          }
        }
        if (!in) {
          cuda_check(cudaMemcpyAsync(packed_.as<void>(), packed.data(), total, cudaMemcpyHostToDevice, stream_),
                     "writing a pattern");
          stream_.drain("writing a pattern");
        }
        enqueue(method, direction, kBlocks);
        stream_.drain("copying pieces");
        std::vector<std::uint32_t> got(total / 4);
        if (in) {
          cuda_check(cudaMemcpyAsync(got.data(), packed_.as<void>(), total, cudaMemcpyDeviceToHost, stream_),
                     "reading pieces");
          stream_.drain("reading pieces");
        } else {
          for (std::size_t i = 0; i < pieces; ++i) std::memcpy(got.data() + i * (piece / 4), host_[i], piece);
        }
        if (got != packed) {
          throw ProbeError(std::string("Pieces of ") + std::to_string(piece) + " bytes moved by " + name_of(method) +
                           " " + name_of(direction) + " arrived wrong.");
        }
      }
    }
    verified_ += (verified_.empty() ? "" : ", ") + std::to_string(piece);
  }

  void report_verified() {
    recorder_.checked(
        "dma_loop, dma_batch and zero_copy, both directions: every word arrived in its place, for pieces of " +
        verified_ + " bytes.");
  }

  void measure(Method method, Direction direction, std::size_t piece, std::size_t pieces, bool with_load,
               int blocks = kBlocks) {
    Fields conditions = {{"method", name_of(method)},
                         {"direction", name_of(direction)},
                         {"piece_bytes", piece},
                         {"pieces", pieces},
                         {"beside", with_load ? "device_read" : "nothing"}};
    if (method == Method::zero_copy) conditions.emplace_back("blocks", blocks);
    if (piece != piece_ || pieces != host_.size()) {
      if (!prepare(piece, pieces)) {
        recorder_.skip("link (" + describe(conditions) + "): larger than the memory allowed by --memory");
        return;
      }
    }
    double last = 1e-3;
    const auto copy = [&] { return last = events_.time(stream_, [&] { enqueue(method, direction, blocks); }); };
    const auto copy_beside = [&] {
      double duration = 3 * last + 2e-3;  // the copy, and queueing it; more where that takes the host longer
      for (int attempt = 0; attempt < 8; ++attempt, duration *= 2) {
        double seconds = 0;
        if (beside_.run(duration, [&] { seconds = copy(); })) return seconds;
      }
      throw FigureError("The load kernel ended before the copy beside it, eight times.");
    };
    const double bytes = static_cast<double>(piece * pieces);
    const std::function<double()> sample = with_load ? std::function<double()>(copy_beside) : copy;
    recorder_.figure("link", "GB/s", conditions, sample, [&](double seconds) { return bytes / seconds * 1e-9; });
  }

  /// What the submitting thread pays per piece.
  void measure_submit(Method method, std::size_t piece, std::size_t pieces) {
    if (!prepare(piece, pieces)) return;
    recorder_.figure(
        "link_submit", "us/piece", {{"method", name_of(method)}, {"piece_bytes", piece}, {"pieces", pieces}},
        [&] {
          const auto start = Clock::now();
          enqueue(method, Direction::h2d, kBlocks);
          const double seconds = seconds_since(start);
          stream_.drain("copying pieces");
          return seconds;
        },
        [&](double seconds) { return seconds * 1e6 / static_cast<double>(pieces); });
  }

 private:
  Recorder& recorder_;
  Stream stream_;
  EventPair events_;
  PinnedMemory pool_;
  DeviceMemory packed_, slots_device_;
  Beside beside_;
  std::size_t piece_ = 0;
  std::vector<std::uint32_t> slots_;
  std::vector<void*> host_, device_;
  std::vector<std::size_t> sizes_;
  std::uint64_t pattern_ = 0;
  std::string verified_;
};

}  // namespace

void run_link(Recorder& recorder) {
  if (pinned_room(recorder) < (std::size_t{32} << 20) || device_room(recorder) < (std::size_t{64} << 20)) {
    throw ProbeError("The link needs 32M of pinned and 64M of device memory; --memory or the machine allows less.");
  }
  LinkBench bench(recorder);
  // 256 bytes: one token's keys of one KV head of 128 in bf16, the shortest piece that a method fetches.
  const std::vector<std::size_t> sizes =
      recorder.quick() ? std::vector<std::size_t>{256, 4 << 10, 64 << 10, 1 << 20}
                       : std::vector<std::size_t>{256,      1 << 10,   4 << 10,   8 << 10, 16 << 10, 32 << 10,
                                                  64 << 10, 128 << 10, 256 << 10, 1 << 20, 16 << 20};
  const std::vector<std::size_t> counts =
      recorder.quick() ? std::vector<std::size_t>{1, 64} : std::vector<std::size_t>{1, 8, 64, 512};
  // Of short pieces a few hundred are over before the link is full. Not one by one: the queue holds a thousand copies.
  constexpr std::size_t kShort = 4 << 10;
  const std::size_t most = std::size_t{128} << 20;
  for (const std::size_t piece : sizes) bench.verify(piece);
  bench.report_verified();
  for (const bool with_load : {false, true}) {
    for (const std::size_t piece : sizes) {
      if (piece <= kShort) {
        for (const Direction direction : {Direction::h2d, Direction::d2h})
          for (const Method method : {Method::dma_batch, Method::zero_copy})
            bench.measure(method, direction, piece, LinkBench::kMostPieces, with_load);
      }
      for (const std::size_t pieces : counts) {
        if (piece * pieces > most) continue;
        for (const Direction direction : {Direction::h2d, Direction::d2h}) {
          for (const Method method : {Method::dma_loop, Method::dma_batch, Method::zero_copy}) {
            bench.measure(method, direction, piece, pieces, with_load);
          }
        }
      }
    }
  }
  for (const std::size_t pieces : counts) {
    for (const Method method : {Method::dma_loop, Method::dma_batch}) bench.measure_submit(method, 64 << 10, pieces);
  }
  if (recorder.quick()) return;
  for (const Direction direction : {Direction::h2d, Direction::d2h}) {
    for (const int blocks : {4, 8, 16, 64, 128}) {
      bench.measure(Method::zero_copy, direction, 64 << 10, 512, false, blocks);
    }
  }
}

}  // namespace tandem::probe
