#include "engine/device/cost_model.h"

#include <algorithm>
#include <cmath>

#include "engine/common/error.h"

namespace tandem {
namespace {

using Wide = CostModel::Wide;
using Way = CostModel::Way;

constexpr std::uint64_t kNanosPerSecond = 1'000'000'000;

std::uint64_t per_second(double giga) {
  return static_cast<std::uint64_t>(std::llround(giga * 1e9));
}

/// Time of an amount at a rate, in 1/kUnit ns, so that shares are exact for small operations too.
Wide time_of(std::uint64_t amount, std::uint64_t rate_per_second) {
  if (amount == 0) return 0;
  return Wide{amount} * kNanosPerSecond * kUnit / std::max<std::uint64_t>(rate_per_second, 1);
}

Nanos whole_nanos(Wide scaled) {
  return static_cast<Nanos>((scaled + kUnit - 1) / kUnit);
}

/// An optional field of a profile, which is 0 where it is not given.
double given_or(double value, double otherwise) {
  return value > 0 ? value : otherwise;
}

/// The bytes that take as long at `rate` as `bytes` at `own_rate`; at the same rate as many.
std::uint64_t as_at(std::uint64_t rate, std::uint64_t bytes, std::uint64_t own_rate) {
  return static_cast<std::uint64_t>(Wide{bytes} * rate / std::max<std::uint64_t>(own_rate, 1));
}

}  // namespace

CostModel::CostModel(const HardwareProfile& p)
    : stream_hbm_(per_second(p.device.hbm_gbps * p.device.stream_efficiency)),
      weights_hbm_(per_second(p.device.hbm_gbps * given_or(p.device.weights_efficiency, p.device.stream_efficiency))),
      attention_hbm_(per_second(p.device.hbm_gbps * p.device.attention_efficiency)),
      select_hbm_(per_second(p.device.hbm_gbps * p.device.select_efficiency)),
      gemm_flops_(per_second(p.device.gemm_tflops * 1e3)),
      attention_flops_(per_second(p.device.gemm_tflops * 1e3 * p.device.attention_efficiency)),
      select_flops_(per_second(p.device.gemm_tflops * 1e3 * p.device.select_efficiency)),
      prefill_attention_flops_(per_second(given_or(p.device.prefill_attention_tflops, p.device.gemm_tflops) * 1e3)),
      product_ns_(p.device.product_ns),
      attention_ns_(p.device.attention_ns),
      peer_link_(per_second(p.peer.gbps)),
      peer_latency_(p.peer.latency_ns),
      dram_(per_second(p.host.dram_gbps)),
      stream_{dram_, per_second(p.host.stream_gbps_per_thread)},
      attention_{per_second(p.host.dram_gbps * p.host.attention_efficiency),
                 per_second(p.host.attention_gbps_per_thread)},
      contiguous_{
          per_second(p.host.dram_gbps * given_or(p.host.attention_contiguous_efficiency, p.host.attention_efficiency)),
          per_second(given_or(p.host.attention_contiguous_gbps_per_thread, p.host.attention_gbps_per_thread))},
      select_{per_second(p.host.dram_gbps * p.host.select_efficiency), per_second(p.host.select_gbps_per_thread)},
      flops_thread_(per_second(p.host.gflops_per_thread)),
      host_threads_(std::max<std::uint32_t>(p.host.threads, 1)),
      device_threads_(p.device.cpu_threads),
      piece_ns_(p.link.piece_ns),
      transfer_ns_(p.link.transfer_ns),
      handoff_(p.handoff) {
  const auto points = [](const std::vector<LinkPoint>& curve, std::vector<Point>& out) {
    for (const LinkPoint& point : curve) {
      const std::uint64_t rate = per_second(point.gbps);
      out.push_back({point.piece_bytes, rate, time_of(point.piece_bytes, rate)});
    }
  };
  points(p.link.h2d_curve, h2d_);
  points(p.link.h2d_gather_curve.empty() ? p.link.h2d_curve : p.link.h2d_gather_curve, h2d_gather_);
  points(p.link.d2h_curve, d2h_);
  TANDEM_CHECK(!h2d_.empty() && !d2h_.empty(), "profile '{}' has no link curve", p.name);
}

CostModel::Wide CostModel::link_time(Way way, std::uint64_t bytes, std::uint32_t pieces) const {
  if (bytes == 0) return 0;
  const std::vector<Point>& curve = way == Way::h2d ? h2d_ : way == Way::d2h ? d2h_ : h2d_gather_;
  const Wide all = bytes, count = std::max<std::uint32_t>(pieces, 1);
  if (all <= count * curve.front().bytes) return time_of(bytes, curve.front().rate);
  for (std::size_t i = 1; i < curve.size(); ++i) {
    const Point &a = curve[i - 1], &b = curve[i];
    if (all > count * b.bytes) continue;
    return (a.time * (count * b.bytes - all) + b.time * (all - count * a.bytes)) / (b.bytes - a.bytes);
  }
  return time_of(bytes, curve.back().rate);
}

Nanos CostModel::handoff(LaneKind from, LaneKind to) const {
  if (is_device_side(from)) return is_device_side(to) ? handoff_.stream_ns : handoff_.device_to_host_ns;
  return from == LaneKind::host_workers && is_device_side(to) ? handoff_.host_to_device_ns : 0;
}

CostModel::HostRates CostModel::host_rates(Work work) const {
  return work == Work::attention ? attention_ : work == Work::select ? select_ : stream_;
}

Phases CostModel::phases(const Cost& cost, const LaneInfo& lane) const {
  Phases phases;
  phases.fixed = cost.fixed_ns;
  if (cost.work == Work::fixed) return phases;

  const bool host = !is_device_side(lane.kind);
  const std::uint32_t pieces = std::max<std::uint32_t>(cost.pieces, 1);
  std::array<Wide, kResourceCount> parts{};
  const auto at = [&](Resource r) -> Wide& { return parts[static_cast<std::size_t>(r)]; };
  Wide alone = 0;  // a limit that is this operation's own: its threads

  const std::uint64_t hbm_rate = cost.work == Work::attention ? attention_hbm_
                                 : cost.work == Work::select  ? select_hbm_
                                 : cost.work == Work::weights ? weights_hbm_
                                                              : stream_hbm_;
  const bool peer = lane.kind == LaneKind::peer_compute;
  at(peer ? Resource::peer_hbm : Resource::hbm) = time_of(cost.hbm, hbm_rate);

  std::uint32_t lane_threads = lane.threads;
  if (cost.threads != 0) lane_threads = std::min(lane_threads, cost.threads);
  const std::uint32_t threads = cost.tasks == 0 ? lane_threads : std::min(lane_threads, cost.tasks);
  if (host) {
    const HostRates rates = host_rates(cost.work);
    std::uint64_t together = cost.dram, apart = cost.dram;  // as bytes at `rates`, of all threads and of one
    if (cost.work == Work::attention && cost.contiguous != 0) {
      TANDEM_CHECK(cost.contiguous <= cost.dram, "{} contiguous bytes of {}", cost.contiguous, cost.dram);
      const std::uint64_t gathered = cost.dram - cost.contiguous;
      together = gathered + as_at(rates.together, cost.contiguous, contiguous_.together);
      apart = gathered + as_at(rates.thread, cost.contiguous, contiguous_.thread);
    }
    at(Resource::host_reads) = time_of(together, rates.together);
    at(Resource::host_threads) = std::max(time_of(apart, rates.thread * std::max(host_threads_, threads)),
                                          time_of(cost.flops, flops_thread_ * std::max(host_threads_, threads)));
    alone = std::max(std::max(time_of(together, rates.together), time_of(apart, rates.thread * threads)),
                     time_of(cost.flops, flops_thread_ * threads));
  } else {
    const std::uint64_t flops_rate = cost.work == Work::attention           ? attention_flops_
                                     : cost.work == Work::select            ? select_flops_
                                     : cost.work == Work::prefill_attention ? prefill_attention_flops_
                                                                            : gemm_flops_;
    const bool product = cost.work == Work::weights || cost.work == Work::gemm,
               attends = cost.work == Work::attention || cost.work == Work::prefill_attention;
    const bool computes = lane.kind == LaneKind::device_compute || lane.kind == LaneKind::side_compute || peer;
    // Heavy kernels of prefill are not products alone (sums over columns), and what is fixed counts little there.
    const std::uint32_t counted = cost.work == Work::gemm ? 1 : std::max(cost.heavy, 1u);
    if (computes) phases.fixed += counted * (product ? product_ns_ : attends ? attention_ns_ : 0);
    at(peer ? Resource::peer_flops : Resource::device_flops) =
        std::max(time_of(cost.flops, flops_rate), time_of(cost.solved * kSolvedFlopsDevice, gemm_flops_));
  }
  at(Resource::dram) = time_of(cost.dram + cost.h2d + cost.d2h, dram_);
  const bool on_cpu = device_threads_ != 0 && !host;
  // Where one memory plays both, a copy writes what it reads, and the device's bytes are there, too.
  if (on_cpu) at(Resource::dram) = time_of(cost.hbm + cost.dram + 2 * (cost.h2d + cost.d2h), dram_);
  const auto over_link = [&](Way way, std::uint64_t bytes) -> Wide {
    if (bytes == 0) return 0;
    return link_time(way, bytes - cost.short_bytes, pieces - cost.short_pieces) +
           link_time(way, cost.short_bytes, cost.short_pieces);
  };
  TANDEM_CHECK(cost.short_bytes == 0 || ((cost.h2d == 0) != (cost.d2h == 0) &&
                                         cost.short_bytes <= cost.h2d + cost.d2h && cost.short_pieces <= pieces),
               "{} short pieces of {} bytes among {} of {}", cost.short_pieces, cost.short_bytes, pieces,
               cost.h2d + cost.d2h);
  at(Resource::h2d) = over_link(cost.gathered ? Way::h2d_gather : Way::h2d, cost.h2d);
  at(Resource::d2h) = over_link(Way::d2h, cost.d2h);
  if (cost.h2d + cost.d2h != 0) phases.fixed += piece_ns_ * pieces + (cost.gathered ? 0 : transfer_ns_);

  if (cost.peer != 0) {
    at(lane.kind == LaneKind::from_peer ? Resource::from_peer : Resource::to_peer) = time_of(cost.peer, peer_link_);
    phases.fixed += peer_latency_;
  }

  const Wide longest = std::max(alone, std::ranges::max(parts));
  if (on_cpu) {  // a thread for as long as it runs
    const bool copies = lane.kind == LaneKind::h2d || lane.kind == LaneKind::d2h || lane.kind == LaneKind::recall;
    at(copies ? Resource::host_threads : Resource::device_threads) =
        longest / (copies ? host_threads_ : device_threads_);
  }
  if (host) {
    const std::uint32_t ranking = std::min(lane_threads, std::max(cost.lists, 1u));
    phases.fixed += whole_nanos(time_of(cost.ranked * kRankedFlops, flops_thread_ * ranking)) +
                    whole_nanos(time_of(cost.solved * kSolvedFlopsHost, flops_thread_ * threads));
  }
  if (longest == 0) return phases;
  constexpr Wide kLongest = Wide{1} << 62;  // 4.4e12 ns: an hour and more
  TANDEM_CHECK(longest < kLongest, "an operation would run for more than an hour; check its cost");
  phases.flow = whole_nanos(longest);
  for (std::size_t r = 0; r < parts.size(); ++r)
    phases.share[r] = static_cast<std::uint32_t>(parts[r] / static_cast<Wide>(phases.flow));
  return phases;
}

}  // namespace tandem
