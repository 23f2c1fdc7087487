#include "hardware/calibration/calibration.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "hardware/calibration/field_writer.h"

namespace tandem::hardware {
namespace {

// What this engine's own code takes of the control thread for an operation that it launches: 11 us a layer, of 3.3
// operations, of full's decode step (results/launches-zen5-2core.txt: AMD EPYC, Zen 5, without a driver's time).
constexpr double kOwnOperationUs = 3.3;

constexpr const char* kCopies = "dma_batch";   // how the engine copies many pieces
constexpr const char* kGathers = "zero_copy";  // how a kernel reads what it has chosen

class Calibrator {
 public:
  Calibrator(const ProbeReport& probe, const std::vector<KernelReport>& kernels, const HardwareProfile& base,
             const CalibrationOptions& options)
      : probe_(probe), base_(base), graphs_(options.graphs), out_(probe, base, result_) {
    result_.profile = base;
    result_.profile.name = options.name;
    result_.profile.device.layer_ns = 0;
    result_.profile.sources.clear();
    result_.warnings = probe.problems;
    if (!probe.gpu_absent_because.empty())
      out_.warn(fmt::format(
          "The device, the link and the hand-offs are those of {}, since the probe has no GPU's figures: {}", base.name,
          probe.gpu_absent_because));
    for (const KernelReport& report : kernels) check_report(report);
  }

  CalibratedProfile take(const CalibrationOptions& options) {
    auto& p = result_.profile;
    device();
    link();
    if (p.peer.gbps > 0) {
      out_.assume("peer.gbps", p.peer.gbps);
      out_.assume("peer.latency_ns", p.peer.latency_ns);
    }
    host(options.host_threads);
    handoff();
    control();
    p.title = !options.title.empty() ? options.title : title();
    return std::move(result_);
  }

 private:
  using From = MeasuredValue;

  std::string title() const {
    return fmt::format("{}, {} {} threads", probe_.gpu.empty() ? "the GPU of " + base_.title : probe_.gpu, probe_.cpu,
                       probe_.threads);
  }

  /// What the condition `name` of a figure counts; 0 where it counts nothing.
  static double count(const ProbeFigure& figure, const char* name) {
    const auto found = figure.conditions.find(name);
    return found != figure.conditions.end() && found->is_number() ? found->get<double>() : 0;
  }

  /// The figure with the most of what a condition counts.
  static const ProbeFigure* largest(const std::vector<const ProbeFigure*>& figures, const char* condition) {
    const auto most = std::max_element(figures.begin(), figures.end(), [&](const auto* a, const auto* b) {
      return count(*a, condition) < count(*b, condition);
    });
    return most == figures.end() ? nullptr : *most;
  }

  static std::string by_threads(const ProbeFigure& figure) {
    const double threads = count(figure, "threads");
    return fmt::format("{}, {:g} thread{}", figure.name, threads, threads == 1 ? "" : "s");
  }

  /// A report of kernels counts where it is of this machine; which of its rows do not is said.
  void check_report(const KernelReport& report) {
    const std::string& of = report.cuda ? probe_.gpu : probe_.cpu;
    if (of.empty() || !report.machine.starts_with(of)) {
      out_.warn(fmt::format("{} was measured on {}, the probe on {}: it is not used.", report.file, report.machine,
                            of.empty() ? "no GPU" : of));
      return;
    }
    const auto disturbed =
        std::count_if(report.rows.begin(), report.rows.end(), [](const auto& r) { return r.disturbed; });
    if (disturbed > 0)
      out_.warn(
          fmt::format("{}: {} rows were measured beside busy neighbours and are not used.", report.file, disturbed));
    for (const char* name : {"decode_attention", "contiguous_attention", "score_blocks"}) {
      const double most = report.most_bytes(name);
      if (most > 0 && most < cache(report)) {
        out_.warn(fmt::format("{}: what {} read fits the last-level cache and is not used.", report.file, name));
      } else if (most > 0 && most < KernelReport::kCachesRead * cache(report)) {
        out_.warn(fmt::format("{}: what {} read is at most {:.2g} times the last-level cache, which may have helped.",
                              report.file, name, most / cache(report)));
      }
    }
    kernels_.push_back(&report);
  }

  double cache(const KernelReport& report) const {
    return report.cuda ? probe_.gpu_cache_bytes : probe_.cpu_cache_bytes;
  }

  /// 10^9 bytes per second of a kernel, of a report of the GPU, or of the CPU with so many threads.
  std::optional<From> kernel(const char* name, unsigned threads, double scale = 1, const char* scaled = "") const {
    for (const KernelReport* report : kernels_) {
      if (report->cuda != (threads == 0) || report->threads != threads) continue;
      const double gbps = report->gbps(name, cache(*report));
      if (gbps > 0)
        return From{gbps * scale,
                    fmt::format("{} of bench kernels on {}, {:.4g} GB/s{}", name, report->machine, gbps, scaled)};
    }
    return std::nullopt;
  }

  void device() {
    auto& d = result_.profile.device;
    std::optional<From> memory, peak, stream;
    if (probe_.gpu_memory_bytes > 0) memory = From{probe_.gpu_memory_bytes * 1e-9, probe_.gpu + ", memory_bytes"};
    out_.set("device.memory_gb", d.memory_gb, memory);
    const ProbeFigure* read = largest(probe_.all("device_read"), "bytes");
    if (probe_.gpu_bus_bits > 0 && probe_.gpu_memory_khz > 0) {
      // Two transfers a clock: the data sheets' numbers (A100 80 GB: 5120 bits at 1593 MHz are 2,039 GB/s).
      peak = From{2 * probe_.gpu_memory_khz * 1e3 * probe_.gpu_bus_bits / 8 * 1e-9,
                  fmt::format("{}, {:g} bits at {:g} MHz, two transfers a clock", probe_.gpu, probe_.gpu_bus_bits,
                              probe_.gpu_memory_khz * 1e-3)};
    } else {
      peak = measured_by(read, "device_read of the largest size, since the memory's clock is not known");
    }
    out_.set("device.hbm_gbps", d.hbm_gbps, peak);
    if (read != nullptr) stream = From{read->value / d.hbm_gbps, "device_read of the largest size over hbm_gbps", read};
    out_.set("device.stream_efficiency", d.stream_efficiency, stream);
    const std::optional<From> products = weights(d.hbm_gbps),
                              attention = kernel("decode_attention", 0, 1 / d.hbm_gbps, " over hbm_gbps");
    out_.set_optional("device.weights_efficiency", d.weights_efficiency, products);
    fixed_time("device.product_ns", d.product_ns, products.has_value());
    out_.set("device.attention_efficiency", d.attention_efficiency, attention);
    fixed_time("device.attention_ns", d.attention_ns, attention.has_value());
    out_.set("device.select_efficiency", d.select_efficiency,
             kernel("score_blocks", 0, 1 / d.hbm_gbps, " over hbm_gbps"));
    const ProbeFigure* gemm = nullptr;
    for (const ProbeFigure* figure : probe_.all("gemm", {{"phase", "prefill"}}))
      if (gemm == nullptr || figure->value > gemm->value) gemm = figure;
    out_.set("device.gemm_tflops", d.gemm_tflops, measured_by(gemm, "gemm, the fastest of the prefill shapes"));
    if (d.prefill_attention_tflops > 0 && gemm != nullptr) {
      const double before = std::exchange(d.prefill_attention_tflops, 0);
      out_.note("device.prefill_attention_tflops", before, d.prefill_attention_tflops, FieldWriter::kMeasured,
                "measured: as gemm_tflops");
    } else {
      out_.set_optional("device.prefill_attention_tflops", d.prefill_attention_tflops, std::nullopt);
    }
    out_.set("device.launch_ns", d.launch_ns,
             measured_by(probe_.find("launch_host", {{"what", "kernel"}}), "launch_host of a kernel"));
    is_gpu();
  }

  /// A measured rate of one shape contains what the kernel takes besides.
  void fixed_time(const char* field, Nanos& value, bool measured) {
    if (!measured) return out_.set_optional(field, value, std::nullopt);
    if (const Nanos before = std::exchange(value, 0); before > 0)
      out_.note(field, before, value, FieldWriter::kMeasured, "measured: the rate contains the fixed time");
  }

  /// Of graphs the control thread launches one for many kernels; without them it launches each.
  void is_gpu() {
    auto& d = result_.profile.device;
    const ProbeFigure* kernel = probe_.find("launch_host", {{"what", "kernel"}});
    const ProbeFigure* graph = largest(probe_.all("launch_host", {{"what", "graph"}}), "nodes");
    if (graphs_ || kernel == nullptr) {
      out_.set("device.segment_launch_ns", d.segment_launch_ns, measured_by(graph, "launch_host of the largest graph"));
      out_.set("device.op_floor_ns", d.op_floor_ns, measured_by(probe_.find("graph_node"), "graph_node"));
      return;
    }
    const Nanos before = std::exchange(d.segment_launch_ns, 0);
    const std::string instead =
        graph == nullptr ? "" : fmt::format("; a graph of {:g} took {:.4g} us", count(*graph, "nodes"), graph->value);
    out_.note("device.segment_launch_ns", before, d.segment_launch_ns, "this engine",
              "this engine launches every kernel by itself" + instead);
    out_.set("device.op_floor_ns", d.op_floor_ns,
             measured_by(probe_.find("launch_back_to_back", {{"what", "kernel"}}), "launch_back_to_back of a kernel"));
  }

  /// Products of a decode step, of the most rows up to 16, all shapes of a layer together.
  std::optional<From> weights(double hbm_gbps) const {
    constexpr double kMostRows = 16;
    double rows = 0, bytes = 0, seconds = 0;
    const auto figures = probe_.all("gemm_bytes", {{"phase", "decode"}});
    for (const ProbeFigure* figure : figures)
      if (count(*figure, "rows") <= kMostRows) rows = std::max(rows, count(*figure, "rows"));
    for (const ProbeFigure* figure : figures) {
      if (count(*figure, "rows") != rows || !(figure->value > 0)) continue;
      const double weights = count(*figure, "in") * count(*figure, "out");
      bytes += weights;
      seconds += weights / (figure->value * 1e9);
    }
    if (!(seconds > 0)) return std::nullopt;
    return From{bytes / seconds * 1e-9 / hbm_gbps,
                fmt::format("gemm_bytes of {:g} rows, all shapes by their weights, over hbm_gbps", rows)};
  }

  void link() {
    auto& l = result_.profile.link;
    const auto curve = [&](const char* field, const char* direction, const char* method, const char* words,
                           std::vector<LinkPoint>& points) {
      const LinkCurve found = link_curve(probe_, direction, method);
      if (!found.points.empty()) {
        out_.set(field, points, found.points, fmt::format("link, {}, {}, what one more piece costs", direction, words));
      } else if (!points.empty()) {
        out_.assume(field, points);
      }
      return found;
    };
    const char* copies = probe_.find("link", {{"method", kCopies}}) != nullptr ? kCopies : "dma_loop";
    const LinkCurve copied = curve("link.h2d_curve", "h2d", copies, copies, l.h2d_curve);
    curve("link.d2h_curve", "d2h", copies, copies, l.d2h_curve);
    curve("link.h2d_gather_curve", "h2d", kGathers, "a kernel's reads", l.h2d_gather_curve);
    if (copied.points.empty()) {
      out_.assume("link.piece_ns", l.piece_ns);
      return out_.set_optional("link.transfer_ns", l.transfer_ns, std::nullopt);
    }
    const Nanos before = std::exchange(l.piece_ns, 0);
    out_.note("link.piece_ns", before, l.piece_ns, FieldWriter::kMeasured,
              "measured: the curves contain the cost per piece");
    l.transfer_ns = 0;
    out_.set_optional("link.transfer_ns", l.transfer_ns,
                      From{copied.once_us, fmt::format("link, h2d, {}, what is left of the largest transfer of the "
                                                       "shortest pieces without these",
                                                       copies)});
    warn_of_link();
  }

  void warn_of_link() {
    int wide = 0;
    const ProbeFigure *alone = nullptr, *beside = nullptr;  // of the most bytes
    for (const ProbeFigure* figure : probe_.all("link", {{"beside", "nothing"}})) {
      if (spread_of(*figure) > 2 * kWideSpread) ++wide;
      const ProbeFigure* loaded = beside_reads(*figure);
      if (loaded == nullptr || (alone != nullptr && bytes_of(*figure) <= bytes_of(*alone))) continue;
      alone = figure;
      beside = loaded;
    }
    if (wide > 0) out_.warn(fmt::format("{} figures of the link varied by more than half of their median.", wide));
    constexpr double kSlower = 0.8;
    if (alone != nullptr && beside->value < kSlower * alone->value)
      out_.warn(fmt::format(
          "While a kernel read device memory the link had {:.3g} GB/s instead of {:.3g} ({}): the simulated "
          "device has no such rule.",
          beside->value, alone->value, json_text(alone->conditions)));
  }
  static double bytes_of(const ProbeFigure& figure) { return count(figure, "piece_bytes") * count(figure, "pieces"); }
  /// The same transfer beside a kernel that reads device memory.
  const ProbeFigure* beside_reads(const ProbeFigure& figure) const {
    auto conditions = figure.conditions;
    conditions["beside"] = "device_read";
    const auto all = probe_.all("link");
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto* f) { return f->conditions == conditions; });
    return found == all.end() ? nullptr : *found;
  }

  /// The probe's attention read with one thread, and as a share of what as many threads as `dram` has read: of more or
  /// fewer it would be too much or too little.
  struct Attention {
    std::optional<From> one, share;
  };
  Attention attention(const char* pattern, const char* words, const ProbeFigure* dram) const {
    Attention found;
    for (const ProbeFigure* figure : probe_.all(
             "cpu_attention", {{"pattern", pattern}, {"page_tokens", 16}, {"prefetch", true}, {"isa", probe_.isa}})) {
      const double threads = count(*figure, "threads");
      const std::string what = by_threads(*figure) + ", " + words;
      if (threads == 1) found.one = measured_by(figure, what);
      if (dram != nullptr && threads == count(*dram, "threads"))
        found.share = From{figure->value / result_.profile.host.dram_gbps, what + ", over dram_gbps", figure};
    }
    return found;
  }

  void host(unsigned threads) {
    auto& h = result_.profile.host;
    memory();
    const std::uint32_t workers = threads != 0 ? threads : std::max(2u, probe_.threads) - 1;
    out_.note("host.threads", std::exchange(h.threads, workers), workers,
              threads != 0 ? "asked for" : FieldWriter::kMeasured,
              fmt::format("{}, of {} that a process may use{}", threads != 0 ? "as asked for" : "measured",
                          probe_.threads, threads != 0 || probe_.threads == 1 ? "" : "; one is the control thread's"));
    const ProbeFigure* dram = largest(probe_.all("dram_read"), "threads");
    out_.set("host.dram_gbps", h.dram_gbps, dram != nullptr ? measured_by(dram, by_threads(*dram)) : std::nullopt);

    // The engine's own kernel, where it was measured, and not one figure of it beside one of the probe's loop.
    const Attention own{kernel("decode_attention", 1),
                        kernel("decode_attention", probe_.threads, 1 / h.dram_gbps, " over dram_gbps")},
        runs{kernel("contiguous_attention", 1),
             kernel("contiguous_attention", probe_.threads, 1 / h.dram_gbps, " over dram_gbps")};
    const bool engine = own.one && own.share;
    const Attention pages = engine ? own : attention("random", "random pages of 16 tokens", dram),
                    contiguous = engine ? runs : attention("contiguous", "contiguous", dram);
    out_.set("host.attention_gbps_per_thread", h.attention_gbps_per_thread, pages.one);
    out_.set("host.attention_efficiency", h.attention_efficiency, pages.share);
    // What contiguous memory gains is between two figures of one machine: both are measured, or both the base's.
    const auto beside = [&](const char* field, double& value, const std::optional<From>& of_pages,
                            const std::optional<From>& from) {
      if (of_pages && !from) {
        value = 0;
        result_.profile.ranges.erase(field);
      }
      if (value > 0 || (of_pages && from)) out_.set(field, value, of_pages ? from : std::nullopt);
    };
    beside("host.attention_contiguous_gbps_per_thread", h.attention_contiguous_gbps_per_thread, pages.one,
           contiguous.one);
    beside("host.attention_contiguous_efficiency", h.attention_contiguous_efficiency, pages.share, contiguous.share);
    const std::optional<From> share = kernel("score_blocks", probe_.threads, 1 / h.dram_gbps, " over dram_gbps");
    if (share || h.select_efficiency < 1) out_.set("host.select_efficiency", h.select_efficiency, share);
    out_.set("host.select_gbps_per_thread", h.select_gbps_per_thread, kernel("score_blocks", 1));
    out_.set("host.stream_gbps_per_thread", h.stream_gbps_per_thread,
             measured_by(probe_.find("dram_read", {{"threads", 1}}), "dram_read, 1 thread"));
    // Attention, scores and their ranking are what it prices; products of weights, which `bench kernels` has, run on
    // units of their own (AMX, vdpbf16ps: 396 GFLOP/s of a Zen 5 core where ranking has 80).
    out_.assume("host.gflops_per_thread", h.gflops_per_thread);
  }

  /// Another machine's memory says nothing of this one's.
  void memory() {
    double& gb = result_.profile.host.memory_gb;
    if (probe_.host_memory_bytes > 0) {
      out_.set("host.memory_gb", gb, From{probe_.host_memory_bytes * 1e-9, "memory that a process may use"});
    } else {
      gb = 0;
      result_.profile.sources.erase("host.memory_gb");
    }
  }

  void control() {
    auto& c = result_.profile.control;
    out_.assume("control.submit_ns", c.submit_ns);
    out_.assume("control.policy_ns", c.policy_ns);
    const ProbeFigure* mark = probe_.find("call_host", {{"what", "event_record"}, {"timing", true}});
    std::optional<From> from;
    if (mark != nullptr && !graphs_)
      from = From{2 * mark->value + kOwnOperationUs,
                  fmt::format("two of call_host of event_record ({:.4g} us each) and {:.2g} us of this engine's own "
                              "code for an operation of full, measured elsewhere; methods that look pages up for the "
                              "host take more",
                              mark->value, kOwnOperationUs)};
    if (graphs_) c.operation_ns = 0;
    out_.set_optional("control.operation_ns", c.operation_ns, from);
  }

  void handoff() {
    auto& h = result_.profile.handoff;
    // A running kernel's round trip is two stores to pinned memory; half of it is one.
    const ProbeFigure* trip = probe_.find("round_trip", {{"gpu_to_cpu", "running_kernel"}});
    // By the way that this engine signals; where the driver does not offer it, by the fastest of the others.
    const auto by = [&](const char* name, const char* way, const char* not_by) -> const ProbeFigure* {
      if (const ProbeFigure* own = probe_.find(name, {{"by", way}})) return own;
      const ProbeFigure* least = nullptr;
      for (const ProbeFigure* figure : probe_.all(name)) {
        if (figure->conditions.contains("by") && figure->conditions["by"] == not_by) continue;
        if (least == nullptr || figure->value < least->value) least = figure;
      }
      if (least != nullptr)
        out_.warn(fmt::format("{} has no figure by {}, which is how this engine signals.", name, way));
      return least;
    };
    const auto one_way = [&](const ProbeFigure* figure, double sign) -> std::optional<From> {
      if (figure == nullptr || trip == nullptr) return std::nullopt;
      return From{figure->value + sign * trip->value / 2,
                  fmt::format("{} by {} {} half of a running kernel's round trip ({:.4g} us)", figure->name,
                              figure->conditions.contains("by") ? json_text(figure->conditions["by"]) : "?",
                              sign > 0 ? "plus" : "minus", trip->value),
                  figure};
    };
    out_.set("handoff.device_to_host_ns", h.device_to_host_ns,
             one_way(by("gpu_to_cpu_after_store", "stream_write_value", "cudaStreamSynchronize"), 1));
    out_.set("handoff.host_to_device_ns", h.host_to_device_ns,
             one_way(by("cpu_to_gpu_to_cpu_store", "stream_wait_value", "kernel_launch"), -1));
    out_.set_optional("handoff.stream_ns", h.stream_ns, measured_by(probe_.find("stream_hop"), "stream_hop"));
  }

  const ProbeReport& probe_;
  const HardwareProfile& base_;
  bool graphs_;
  std::vector<const KernelReport*> kernels_;
  CalibratedProfile result_;
  FieldWriter out_;  // into it
};

}  // namespace

CalibratedProfile calibrate(const ProbeReport& probe, const std::vector<KernelReport>& kernels,
                            const HardwareProfile& base, const CalibrationOptions& options) {
  const bool any = std::any_of(kernels.begin(), kernels.end(), [](const KernelReport& k) { return !k.rows.empty(); });
  if (probe.figures.empty() && !any) {
    throw_input_error(
        "{}: it has no figures. Run tandem-probe with the sections dram and cpu_attention, and on a machine with a GPU "
        "with all of them.",
        probe.file);
  }
  if (options.host_threads > probe.threads)
    throw_input_error("--threads is {}, but the probe could use {} ({}): what more would do was not measured.",
                      options.host_threads, probe.threads, probe.file);
  CalibratedProfile result = Calibrator(probe, kernels, base, options).take(options);
  // Whatever the figures were, what is written is what is read: out of range is refused here, not by a later run.
  result.profile = parse_profile(profile_to_json(result.profile), options.name, "The profile from " + probe.file);
  return result;
}

}  // namespace tandem::hardware
