// How long an operation takes alone, and how much of each shared resource it uses while it runs.
//
// An operation has a fixed phase (latency) and a flow phase of T ns. Products and attention on a device have a fixed
// time per kernel (measured times over bytes do not begin at 0: hardware/validation); kernels of copy lanes have none,
// since the link's curve holds it. T is the longest of its times on the resources it uses: bytes or FLOPs over the rate
// of this kind of work there. Integer arithmetic makes the nanoseconds the same on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/device/profile.h"
#include "engine/device/types.h"

namespace tandem {

inline constexpr int kResourceCount = 12;
/// The first three are the CPU's own: what its threads read together, at the efficiency of their work, and their time.
/// Operations that these slow down ask less of the others, host memory among them, for as long.
enum class Resource : std::uint8_t {
  host_reads,
  host_threads,
  device_threads,  // of a CPU that plays the device
  hbm,
  dram,
  h2d,
  d2h,
  device_flops,
  peer_hbm,
  peer_flops,
  to_peer,
  from_peer
};
inline constexpr int kHostResources = 3;

inline constexpr std::uint64_t kUnit = std::uint64_t{1} << 20;  // 1.0 of a share

/// Cost of ranking a score on the host (Cost::ranked), in FLOPs at the profile's host.gflops_per_thread: after all
/// scores, and from caches, so that it shares no memory. 2 ns a score at an assumed 80 GFLOP/s: top_k took 1.4 to 2.0
/// ns for the best 2 to 10 % of 1,004 scores (one thread of a 2-core VM, AMD EPYC Zen 5).
inline constexpr std::uint64_t kRankedFlops = 160;

/// Cost of small systems of equations (Cost::solved), in FLOPs at the profile's rates per counted FLOP. On the host:
/// chains of dependent double-precision operations from caches. prediction_flops() took 0.31 to 0.53 ns each over four
/// rules, windows of 8 to 32 queries and 64 or 128 values (one thread of a 2-core VM, AMD EPYC Zen 4); 0.4 ns at an
/// assumed 80 GFLOP/s. On a device: double precision against bf16 on tensor cores (datasheets: A100 9.7 and 312
/// TFLOP/s, H100 SXM 34 and 989), a lower bound that nobody has timed.
inline constexpr std::uint64_t kSolvedFlopsHost = 32, kSolvedFlopsDevice = 32;

/// The two phases of an operation that runs alone.
struct Phases {
  Nanos fixed = 0;
  Nanos flow = 0;
  /// Share of each resource (in 1/kUnit, at most kUnit) that the flow phase occupies. Where the shares of the running
  /// operations sum above 1, all of them slow down by that sum: first by the CPU's own resources, then, with what is
  /// left of their shares, by the others.
  std::array<std::uint32_t, kResourceCount> share{};
};

class CostModel {
 public:
  explicit CostModel(const HardwareProfile& profile);

  /// Duration of `cost` on `lane`. Lanes of the device compute with the device's rates, host lanes with `lane.threads`
  /// threads. Link bytes also occupy host DRAM (pinned memory is on the other end), whatever the lane.
  Phases phases(const Cost& cost, const LaneInfo& lane) const;

  /// Latency of a signal from a lane of one kind to a lane of another.
  Nanos handoff(LaneKind from, LaneKind to) const;

  enum class Way : std::uint8_t { h2d, h2d_gather, d2h };
  /// Time of `bytes` over the link in `pieces` pieces of one size, in 1/kUnit ns: see LinkPoint.
  __extension__ using Wide = unsigned __int128;
  Wide link_time(Way way, std::uint64_t bytes, std::uint32_t pieces) const;

 private:
  struct Point {
    std::uint64_t bytes, rate;  // of a piece, and bytes per second
    Wide time;                  // of a piece, in 1/kUnit ns
  };
  std::vector<Point> h2d_, h2d_gather_, d2h_;
  std::uint64_t stream_hbm_, weights_hbm_, attention_hbm_, select_hbm_;
  std::uint64_t gemm_flops_, attention_flops_, select_flops_, prefill_attention_flops_;
  Nanos product_ns_, attention_ns_;
  std::uint64_t peer_link_;
  Nanos peer_latency_;
  struct HostRates {
    std::uint64_t together, thread;  // bytes per second of all threads and of one
  };
  HostRates host_rates(Work work) const;
  std::uint64_t dram_;
  HostRates stream_, attention_, contiguous_, select_;
  std::uint64_t flops_thread_;
  std::uint32_t host_threads_, device_threads_;  // device_threads_: of a CPU that plays the device, else 0
  Nanos piece_ns_, transfer_ns_;
  HardwareProfile::Handoff handoff_;
};

}  // namespace tandem
