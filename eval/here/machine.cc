#include <algorithm>
#include <chrono>
#include <cstring>
#include <fmt/core.h>

#include "engine/common/cgroup.h"
#include "engine/common/cpus.h"
#include "engine/common/error.h"
#include "engine/device/cost_model.h"
#include "engine/device/emu_device.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/linear.h"
#include "eval/here/here.h"
#include "eval/kernels/cpu_limits.h"
#include "eval/report/statistics.h"
#include "hardware/calibration/calibration.h"

namespace tandem::eval {
namespace {

constexpr std::size_t kCopied = std::size_t{64} << 20;  // bytes of a measurement, from a pool four times as large
constexpr unsigned kRounds = 5;

/// Keeps the core busy, as a kernel does.
void spin(Nanos ns) {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::nanoseconds(ns)) {
  }
}

/// Copies pieces in no order into neighbours on a device's h2d lane, as fetches do; 10^9 bytes per second.
double copy_gbps(Device& device, const HostBuffer& from, const DeviceBuffer& to, std::size_t piece) {
  const std::size_t count = to.bytes() / piece, slots = from.bytes() / piece;
  for (unsigned round = 0; round < kRounds; ++round) {
    Op op;
    op.name = "copy";
    op.kind = Kind::copy;
    op.access = {from.reads(), to.writes()};
    op.body = [=](BodyContext& ctx) {
      const char* source = ctx.read<char>(from);
      char* target = ctx.write<char>(to);
      for (std::size_t i = 0; i < count; ++i)
        std::memcpy(target + i * piece, source + (i * 7919 + round * 104729) % slots * piece, piece);
    };
    device.host_wait(device.submit(device.lane(LaneKind::h2d), std::move(op)));
  }
  std::vector<double> times;
  for (const TraceRecord& record : device.drain().records)
    if (record.kind == Kind::copy) times.push_back(static_cast<double>(record.end - record.start));
  return static_cast<double>(count * piece) / *std::ranges::min_element(times);
}

std::vector<LinkPoint> measure_copies(Device& device) {
  const HostBuffer from = device.allocate_host(4 * kCopied, "copied");
  const DeviceBuffer to = device.allocate_device(kCopied, "copies");
  Op fill;
  fill.name = "fill";
  fill.access = {from.writes()};
  fill.body = [=](BodyContext& ctx) { std::memset(ctx.write<char>(from), 1, from.bytes()); };
  device.host_wait(device.submit(device.lane(LaneKind::h2d), std::move(fill)));
  std::vector<LinkPoint> points;
  for (std::size_t piece = 256; piece <= (std::size_t{4} << 20); piece *= 4)
    points.push_back({piece, copy_gbps(device, from, to, piece)});
  // A longer piece takes no less time than a shorter one.
  for (std::size_t i = points.size() - 1; i > 0; --i) {
    const double longer = static_cast<double>(points[i].piece_bytes) / points[i].gbps;
    points[i - 1].gbps = std::max(points[i - 1].gbps, static_cast<double>(points[i - 1].piece_bytes) / longer);
  }
  return points;
}

/// A layer's products of one row, their weights in no cache; 10^9 bytes per second.
double product_gbps(const Model& model) {
  ThreadPool pool(1);
  const PrivateMemory other(kCopied);  // more than a core's part of a cache
  const std::vector<float> x(std::max(model.config.intermediate, model.config.q_heads * model.config.head_dim), 0.5f);
  std::vector<float> y(x.size());
  double most = 0;
  for (unsigned round = 0; round < kRounds; ++round) {
    double bytes = 0, seconds = 0;
    for (const LayerWeights& layer : model.weights.layers) {
      read_rate(pool, {other.data(), other.bytes()});
      const auto begin = std::chrono::steady_clock::now();
      for (const MatrixView& w : {layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down}) {
        linear(pool, x.data(), w, nullptr, y.data(), 1);
        bytes += static_cast<double>(w.bytes());
      }
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    most = std::max(most, bytes / seconds * 1e-9);
  }
  return most;
}

/// The cases that feed the profile.
std::vector<KernelCase> cases_of(unsigned threads) {
  std::vector<KernelCase> all = kernel_cases(CaseSize::bench), chosen;
  for (KernelCase& one : all) {
    if (std::ranges::find(one.targets, KernelTarget::cpu) == one.targets.end()) continue;
    const bool shared =
        one.kernel == "decode_attention" || one.kernel == "contiguous_attention" || one.kernel == "score_blocks";
    const bool first = one.kernel == "top_k" ||
                       (one.kernel == "linear_prefill" && one.shape.starts_with("n 512, 4096")) ||
                       (one.kernel == "rms_norm" && one.shape.starts_with("n 1,"));
    if (shared || (threads == 1 && first)) chosen.push_back(std::move(one));
  }
  return chosen;
}

std::vector<KernelTime> measure_cases(unsigned threads, const std::function<void(const std::string&)>& tell,
                                      const std::function<bool()>& interrupted) {
  KernelBenchOptions options;
  options.threads = threads;
  options.rounds = kRounds;
  options.interrupted = interrupted;
  const std::vector<KernelCase> cases = cases_of(threads);
  KernelBench bench =
      measure_kernels(cases, options, [&](const KernelBench& so_far) { tell(so_far.rows.back().kernel); });
  if (bench.rows.size() < cases.size()) throw Interrupted();
  for (const KernelTime& row : bench.rows)
    if (!row.error.empty()) throw_run_error("{} ({}) could not be measured: {}", row.kernel, row.shape, row.error);
  return bench.rows;
}

double sum_us(const std::vector<KernelTime>& rows, const char* kernel) {
  double us = 0;
  for (const KernelTime& row : rows)
    if (row.kernel == kernel) us += row.least_us;
  return us;
}

/// Bytes or FLOPs of a kernel's cases over their times.
double per_us(const std::vector<KernelTime>& rows, const char* kernel, double KernelTime::*amount) {
  double all = 0;
  for (const KernelTime& row : rows)
    if (row.kernel == kernel) all += row.*amount;
  const double us = sum_us(rows, kernel);
  TANDEM_CHECK(us > 0, "{} was not measured", kernel);
  return all / us;
}

/// The kernels' times in the form that calibration reads.
hardware::KernelReport report_of(const std::vector<KernelTime>& rows, unsigned threads, const std::string& cpu) {
  hardware::KernelReport report;
  report.file = fmt::format("kernels of {} thread{}", threads, threads == 1 ? "" : "s");
  report.machine = cpu;
  report.threads = threads;
  for (const KernelTime& row : rows) report.rows.push_back({row.kernel, row.least_us, row.bytes, false});
  return report;
}

hardware::ProbeReport probe_of(const MachineFigures& figures, const std::string& cpu) {
  hardware::ProbeReport probe;
  probe.file = "this machine";
  probe.machine = probe.cpu = cpu;
  probe.isa = to_string(active_isa());
  probe.threads = 2;
  probe.cpu_cache_bytes = figures.cache_bytes;
  probe.host_memory_bytes = figures.memory_gb * 1e9;
  const double together = per_us(figures.two_threads, "decode_attention", &KernelTime::bytes) * 1e-3;
  for (const int threads : {1, 2}) {
    const double gbps = threads == 1 ? figures.read_gbps : together;
    probe.figures.push_back({"dram_read", "GB/s", gbps, gbps, gbps, 5, {{"threads", threads}}});
  }
  return probe;
}

}  // namespace

Sides two_cores() {
  const std::vector<int> cores = usable_cores();
  if (cores.size() < 2)
    throw_input_error(
        "--here needs two cores, one that plays the device and one that plays the host; this process may use {}.",
        std::max<std::size_t>(cores.size(), 1));
  return {.device = cores[1], .host = cores[0]};
}

std::unique_ptr<Device> device_on(const Sides& sides) {
  return make_emu_device({.host_worker_threads = 1, .device_cpus = {sides.device}, .host_cpus = {sides.host}});
}

HandOffTimes measure_hand_offs(Device& device, std::uint32_t rounds) {
  constexpr Nanos kBusy = 200'000;
  const LaneId chain[] = {device.lane(LaneKind::device_compute), device.lane(LaneKind::d2h),
                          device.lane(LaneKind::host_workers), device.lane(LaneKind::h2d),
                          device.lane(LaneKind::device_compute)};
  device.drain();
  Event last;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (const LaneId lane : chain) {
      Op op;
      op.name = "hand-off";
      op.layer = round;
      if (last.valid()) op.after = {last};
      op.body = [](BodyContext&) { spin(kBusy); };
      last = device.submit(lane, std::move(op));
    }
    // The control thread shares the host's core: it must not submit while the chain is timed.
    if (round % 8 == 7) device.host_wait(last);
  }
  const Trace trace = device.drain();
  std::vector<double> submits, gaps[4];
  std::vector<const TraceRecord*> ops;
  for (const TraceRecord& record : trace.records) {
    if (record.cause == Cause::launch) submits.push_back(static_cast<double>(record.end - record.start));
    if (record.kind == Kind::compute) ops.push_back(&record);
  }
  for (std::size_t i = 1; i < ops.size(); ++i)
    if (i % 5 != 0) gaps[i % 5 - 1].push_back(static_cast<double>(ops[i]->start - ops[i - 1]->end));
  const auto median = [](const std::vector<double>& values) { return static_cast<Nanos>(percentile(values, 0.5)); };
  return {.submit = median(submits),
          .across = (median(gaps[0]) + median(gaps[3])) / 2,
          .device_to_host = median(gaps[1]),
          .host_to_device = median(gaps[2])};
}

HardwareProfile profile_of(const MachineFigures& f, const std::string& cpu, std::vector<std::string>& warnings) {
  hardware::CalibrationOptions options;
  options.name = "this-machine";
  options.title = cpu + ", one core as the device, one as the host";
  options.host_threads = 1;
  hardware::CalibratedProfile host =
      hardware::calibrate(probe_of(f, cpu), {report_of(f.one_thread, 1, cpu), report_of(f.two_threads, 2, cpu)},
                          load_profile("fluxion-a100"), options);
  HardwareProfile p = std::move(host.profile);
  const auto set = [&](const char* field, auto& value, auto measured, const std::string& from) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(measured);
    p.sources[field] = "measured: " + from;
  };
  const double attention = p.host.attention_gbps_per_thread, select = p.host.select_gbps_per_thread;
  // Shares are of plain reads; a kernel that reads from a cache may be faster.
  const double weights = f.product_gbps;
  const double most = std::max({f.read_gbps, weights, attention, select});
  set("device.cpu_threads", p.device.cpu_threads, 1, "one core plays the device");
  set("device.memory_gb", p.device.memory_gb, f.memory_gb, "this machine's memory");
  set("device.hbm_gbps", p.device.hbm_gbps, most, "plain reads of one thread, or the fastest kernel");
  set("device.stream_efficiency", p.device.stream_efficiency, f.read_gbps / most, "plain reads of one thread");
  set("device.weights_efficiency", p.device.weights_efficiency, weights / most,
      "a layer's products of one row, weights in no cache, one thread");
  set("device.attention_efficiency", p.device.attention_efficiency, attention / most, "decode_attention, one thread");
  set("device.select_efficiency", p.device.select_efficiency, select / most, "score_blocks, one thread");
  // Attention and scores reach a share of it, and their rates above hold what they compute.
  const double product = per_us(f.one_thread, "linear_prefill", &KernelTime::flops) * 1e-6;
  const double attended =
      per_us(f.one_thread, "decode_attention", &KernelTime::flops) * 1e-6 / p.device.attention_efficiency;
  const double scored = per_us(f.one_thread, "score_blocks", &KernelTime::flops) * 1e-6 / p.device.select_efficiency;
  set("device.gemm_tflops", p.device.gemm_tflops, std::max({product, attended, scored}),
      "linear_prefill, one thread, or the FLOPs of decode_attention and score_blocks over their efficiencies");
  for (const char* none : {"device.product_ns", "device.attention_ns", "device.prefill_attention_tflops",
                           "link.h2d_gather_curve", "link.transfer_ns"})
    p.sources.erase(none);
  p.device.product_ns = p.device.attention_ns = p.link.transfer_ns = 0;
  p.device.prefill_attention_tflops = 0;
  p.link.h2d_gather_curve.clear();
  set("device.launch_ns", p.device.launch_ns, 0, "a submission launches all kernels of an operation");
  set("device.segment_launch_ns", p.device.segment_launch_ns, 0, "no graphs");
  set("device.op_floor_ns", p.device.op_floor_ns, sum_us(f.one_thread, "rms_norm") * 1e3, "rms_norm of one row");
  p.link.h2d_curve = p.link.d2h_curve = f.copies;
  for (const char* curve : {"link.h2d_curve", "link.d2h_curve"})
    p.sources[curve] = "measured: memcpy of one thread, pieces in no order";
  set("link.piece_ns", p.link.piece_ns, 0, "in the curves");
  p.sources["host.dram_gbps"] = "measured: decode_attention, two threads";
  // The cost model charges kRankedFlops for each ranked score.
  const double scores = per_us(f.one_thread, "top_k", &KernelTime::bytes) / 4;
  set("host.gflops_per_thread", p.host.gflops_per_thread,
      std::max(static_cast<double>(kRankedFlops) * scores * 1e-3,
               per_us(f.one_thread, "decode_attention", &KernelTime::flops) * 1e-3),
      "top_k, one thread, at the cost model's FLOPs per score; at least what decode_attention computes");
  set("handoff.device_to_host_ns", p.handoff.device_to_host_ns, f.hand_offs.device_to_host,
      "from a copy lane to the host's worker on its core");
  set("handoff.host_to_device_ns", p.handoff.host_to_device_ns, f.hand_offs.host_to_device,
      "from the host's worker to a copy lane on its core");
  set("handoff.stream_ns", p.handoff.stream_ns, f.hand_offs.across,
      "between the device's core and a copy lane on the host's");
  set("control.submit_ns", p.control.submit_ns, f.hand_offs.submit, "Device::submit");
  set("control.operation_ns", p.control.operation_ns, f.hand_offs.submit, "Device::submit");
  warnings = std::move(host.warnings);
  return parse_profile(profile_to_json(p), p.name, "The profile of this machine");
}

MachineFigures measure_figures(const Model& model, const Sides& sides,
                               const std::function<void(const std::string& what)>& tell,
                               const std::function<bool()>& interrupted) {
  MachineFigures figures;
  figures.memory_gb = static_cast<double>(meminfo("MemTotal")) * 1e-9;
  const auto begin = [&](const char* what) {
    tell(what);
    if (interrupted && interrupted()) throw Interrupted();
  };
  {
    const OnCpus device({sides.device});
    begin("reads");
    ThreadPool pool(1);
    for (unsigned round = 0; round < kRounds; ++round)
      figures.read_gbps = std::max(figures.read_gbps, read_bandwidth_now(pool) * 1e-9);
    figures.product_gbps = product_gbps(model);
    figures.one_thread = measure_cases(1, tell, interrupted);
  }
  {
    const OnCpus host({sides.host});
    begin("copies");
    const std::unique_ptr<Device> device = device_on(sides);
    figures.copies = measure_copies(*device);
    begin("hand-offs");
    figures.hand_offs = measure_hand_offs(*device, 64);
  }
  {
    const OnCpus both({sides.host, sides.device});
    begin("both cores");
    figures.two_threads = measure_cases(2, tell, interrupted);
  }
  return figures;
}

MachineFigures medians_of(std::span<const MachineFigures> passes) {
  TANDEM_CHECK(!passes.empty(), "nothing was measured");
  MachineFigures medians = passes.front();
  const auto set = [&](auto& value, const auto& of) {
    std::vector<double> values;
    for (const MachineFigures& pass : passes) values.push_back(static_cast<double>(of(pass)));
    value = static_cast<std::remove_reference_t<decltype(value)>>(percentile(values, 0.5));
  };
  set(medians.read_gbps, [](const auto& f) { return f.read_gbps; });
  set(medians.product_gbps, [](const auto& f) { return f.product_gbps; });
  for (const auto rows : {&MachineFigures::one_thread, &MachineFigures::two_threads})
    for (std::size_t i = 0; i < (medians.*rows).size(); ++i)
      set((medians.*rows)[i].least_us, [&](const auto& f) { return (f.*rows).at(i).least_us; });
  for (std::size_t i = 0; i < medians.copies.size(); ++i)
    set(medians.copies[i].gbps, [&](const auto& f) { return f.copies.at(i).gbps; });
  for (const auto time :
       {&HandOffTimes::submit, &HandOffTimes::across, &HandOffTimes::device_to_host, &HandOffTimes::host_to_device})
    set(medians.hand_offs.*time, [&](const auto& f) { return f.hand_offs.*time; });
  return medians;
}

}  // namespace tandem::eval
