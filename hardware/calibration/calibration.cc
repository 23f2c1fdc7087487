#include "hardware/calibration/calibration.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <optional>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/json.h"

namespace tandem::hardware {
namespace {

constexpr const char* kMeasured = "measured";
constexpr double kWideSpread = 0.25;  // of p10 to p90: beyond it a figure is named in a warning

/// Four digits: what a median of a few repeats can hold.
double rounded(double value) {
  if (value == 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 3);
  return std::round(value / unit) * unit;
}

std::string text_of(double value) {
  return fmt::format("{:.4g}", value);
}
std::string text_of(Nanos value) {
  return fmt::format("{}", value);
}
std::string text_of(std::uint32_t value) {
  return fmt::format("{}", value);
}
std::string text_of(const std::vector<LinkPoint>& curve) {
  return fmt::format("{:.3g} to {:.3g}", curve.front().gbps, curve.back().gbps);
}

double spread_of(const ProbeFigure& figure) {
  return figure.value > 0 ? (figure.p90 - figure.p10) / figure.value : -1;
}

class Calibrator {
 public:
  Calibrator(const ProbeReport& probe, const std::vector<KernelReport>& kernels, const HardwareProfile& base,
             const CalibrationOptions& options)
      : probe_(probe), base_(base) {
    result_.profile = base;
    result_.profile.name = options.name;
    result_.profile.device.layer_ns = 0;
    result_.profile.sources.clear();
    result_.warnings = probe.problems;
    if (!probe.gpu_absent_because.empty())
      result_.warnings.push_back(fmt::format(
          "The device, the link and the hand-offs are those of {}, since the probe has no GPU's figures: {}", base.name,
          probe.gpu_absent_because));
    for (const KernelReport& report : kernels) check_report(report);
  }

  CalibratedProfile take(const CalibrationOptions& options) {
    auto& p = result_.profile;
    device();
    link();
    if (p.peer.gbps > 0) {
      assume("peer.gbps", p.peer.gbps);
      assume("peer.latency_ns", p.peer.latency_ns);
    }
    host(options.host_threads);
    handoff();
    assume("control.submit_ns", p.control.submit_ns);
    assume("control.policy_ns", p.control.policy_ns);
    p.title = !options.title.empty() ? options.title : title();
    return std::move(result_);
  }

 private:
  struct From {
    double value;
    std::string what;  // "dram_read, 2 threads"
    const ProbeFigure* figure = nullptr;
  };

  std::string title() const {
    return fmt::format("{}, {} {} threads", probe_.gpu.empty() ? "the GPU of " + base_.title : probe_.gpu, probe_.cpu,
                       probe_.threads);
  }

  template <class T>
  void note(const std::string& field, const T& base, const T& value, const std::string& from, const std::string& source,
            double spread = -1) {
    result_.profile.sources[field] = source;
    result_.fields.push_back({field, text_of(base), text_of(value), from, spread});
  }

  /// Keeps the base's value; `field` of the new profile is `value`, the same.
  template <class T>
  void assume(const std::string& field, const T& value) {
    const auto found = base_.sources.find(field);
    std::string source = fmt::format("assumed: not measured, as {} has it", base_.name);
    if (found != base_.sources.end()) source += fmt::format(" ({})", found->second);
    note(field, value, value, base_.name, source);
  }

  std::string measured_source(const From& from) const {
    std::string text = "measured: " + from.what;
    if (from.figure != nullptr)
      text += fmt::format(", median of {} ({:.4g} to {:.4g} {})", from.figure->repeats, from.figure->p10,
                          from.figure->p90, from.figure->unit);
    return text + fmt::format("; {}, {}", probe_.machine, probe_.started_utc);
  }

  /// A rate or share. A share above 1 is 1, with a warning: a cache, or a number of a data sheet that is exceeded.
  void set(const std::string& field, double& value, const std::optional<From>& from) {
    if (!from || !is_measure(from->value)) return assume(field, value);
    const bool share = field.ends_with("_efficiency");
    if (share && from->value > 1)
      result_.warnings.push_back(
          fmt::format("{} came to {:.3g} ({}) and is written as 1.", field, from->value, from->what));
    const double before = std::exchange(value, rounded(share ? std::min(1.0, from->value) : from->value));
    note_measured(field, before, value, *from);
  }
  /// A time; `from` is in microseconds.
  void set(const std::string& field, Nanos& value, const std::optional<From>& from) {
    if (!from || !is_measure(from->value)) return assume(field, value);
    const Nanos before = std::exchange(value, static_cast<Nanos>(std::llround(from->value * 1e3)));
    note_measured(field, before, value, *from);
  }
  static bool is_measure(double value) { return value > 0 && std::isfinite(value); }

  template <class T>
  void note_measured(const std::string& field, const T& base, const T& value, const From& from) {
    const ProbeFigure* figure = from.figure;
    const double spread = figure == nullptr ? -1 : spread_of(*figure);
    note(field, base, value, kMeasured, measured_source(from), spread);
    if (spread > kWideSpread)
      result_.warnings.push_back(fmt::format(
          "{} rests on a figure that varied from {:.4g} to {:.4g} {} ({}): measure again on a quiet machine.", field,
          figure->p10, figure->p90, figure->unit, from.what));
  }

  static std::optional<From> of(const ProbeFigure* figure, const std::string& what) {
    if (figure == nullptr) return std::nullopt;
    return From{figure->value, what, figure};
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
      result_.warnings.push_back(fmt::format("{} was measured on {}, the probe on {}: it is not used.", report.file,
                                             report.machine, of.empty() ? "no GPU" : of));
      return;
    }
    const auto disturbed =
        std::count_if(report.rows.begin(), report.rows.end(), [](const auto& r) { return r.disturbed; });
    if (disturbed > 0)
      result_.warnings.push_back(
          fmt::format("{}: {} rows were measured beside busy neighbours and are not used.", report.file, disturbed));
    for (const char* name : {"decode_attention", "score_blocks"}) {
      const auto is_it = [&](const KernelReport::Row& row) { return row.kernel == name && !row.disturbed; };
      if (std::any_of(report.rows.begin(), report.rows.end(), is_it) && report.gbps(name, cache(report)) == 0)
        result_.warnings.push_back(
            fmt::format("{}: what {} read fits the last-level cache and is not used.", report.file, name));
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
    set("device.memory_gb", d.memory_gb, memory);
    const ProbeFigure* read = largest(probe_.all("device_read"), "bytes");
    if (probe_.gpu_bus_bits > 0 && probe_.gpu_memory_khz > 0) {
      // Two transfers a clock: the data sheets' numbers (A100 80 GB: 5120 bits at 1593 MHz are 2,039 GB/s).
      peak = From{2 * probe_.gpu_memory_khz * 1e3 * probe_.gpu_bus_bits / 8 * 1e-9,
                  fmt::format("{}, {:g} bits at {:g} MHz, two transfers a clock", probe_.gpu, probe_.gpu_bus_bits,
                              probe_.gpu_memory_khz * 1e-3)};
    } else {
      peak = of(read, "device_read of the largest size, since the memory's clock is not known");
    }
    set("device.hbm_gbps", d.hbm_gbps, peak);
    if (read != nullptr) stream = From{read->value / d.hbm_gbps, "device_read of the largest size over hbm_gbps", read};
    set("device.stream_efficiency", d.stream_efficiency, stream);
    set("device.attention_efficiency", d.attention_efficiency,
        kernel("decode_attention", 0, 1 / d.hbm_gbps, " over hbm_gbps"));
    set("device.select_efficiency", d.select_efficiency, kernel("score_blocks", 0, 1 / d.hbm_gbps, " over hbm_gbps"));
    const ProbeFigure* gemm = nullptr;
    for (const ProbeFigure* figure : probe_.all("gemm", {{"phase", "prefill"}}))
      if (gemm == nullptr || figure->value > gemm->value) gemm = figure;
    set("device.gemm_tflops", d.gemm_tflops, of(gemm, "gemm, the fastest of the prefill shapes"));
    set("device.launch_ns", d.launch_ns,
        of(probe_.find("launch_host", {{"what", "kernel"}}), "launch_host of a kernel"));
    set("device.segment_launch_ns", d.segment_launch_ns,
        of(largest(probe_.all("launch_host", {{"what", "graph"}}), "nodes"), "launch_host of the largest graph"));
    set("device.op_floor_ns", d.op_floor_ns, of(probe_.find("graph_node"), "graph_node"));
  }

  void link() {
    auto& l = result_.profile.link;
    int wide = 0;
    const auto curve = [&](const char* field, const char* direction, std::vector<LinkPoint>& points) {
      LinkCurve found = link_curve(probe_, direction);
      std::vector<LinkPoint>& measured = found.points;
      if (measured.empty()) return assume(field, points);
      for (LinkPoint& point : measured) point.gbps = rounded(point.gbps);
      // Rounding can put two sizes that take as long in the wrong order.
      for (std::size_t i = measured.size(); i-- > 1;) {
        const double time = static_cast<double>(measured[i].piece_bytes) / measured[i].gbps;
        double& gbps = measured[i - 1].gbps;
        while (static_cast<double>(measured[i - 1].piece_bytes) / gbps > time) gbps *= 1.0001;
      }
      const std::vector<LinkPoint> before = std::exchange(points, std::move(measured));
      note(field, before, points, kMeasured,
           measured_source({0, fmt::format("link, {}, what one more piece costs by the fastest way; that a transfer "
                                           "takes {:.3g} us besides is in no field",
                                           direction, found.once_us)}));
      for (const ProbeFigure* figure : probe_.all("link", {{"direction", direction}, {"beside", "nothing"}}))
        if (spread_of(*figure) > 2 * kWideSpread) ++wide;
    };
    curve("link.h2d_curve", "h2d", l.h2d_curve);
    curve("link.d2h_curve", "d2h", l.d2h_curve);
    if (wide > 0)
      result_.warnings.push_back(fmt::format("{} figures of the link varied by more than half of their median.", wide));
    if (probe_.find("link") == nullptr) return assume("link.piece_ns", l.piece_ns);
    const Nanos before = std::exchange(l.piece_ns, 0);
    note("link.piece_ns", before, l.piece_ns, kMeasured, "measured: the curves contain the cost per piece");
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
      if (threads == 1) found.one = of(figure, what);
      if (dram != nullptr && threads == count(*dram, "threads"))
        found.share = From{figure->value / result_.profile.host.dram_gbps, what + ", over dram_gbps", figure};
    }
    return found;
  }

  void host(unsigned threads) {
    auto& h = result_.profile.host;
    const std::uint32_t workers = threads != 0 ? threads : std::max(2u, probe_.threads) - 1;
    note("host.threads", std::exchange(h.threads, workers), workers, threads != 0 ? "asked for" : kMeasured,
         fmt::format("{}, of {} that a process may use{}", threads != 0 ? "as asked for" : "measured", probe_.threads,
                     threads != 0 || probe_.threads == 1 ? "" : "; one is the control thread's"));
    const ProbeFigure* dram = largest(probe_.all("dram_read"), "threads");
    set("host.dram_gbps", h.dram_gbps, dram != nullptr ? of(dram, by_threads(*dram)) : std::nullopt);

    const Attention pages = attention("random", "random pages of 16 tokens", dram),
                    contiguous = attention("contiguous", "contiguous", dram);
    set("host.attention_gbps_per_thread", h.attention_gbps_per_thread, pages.one);
    set("host.attention_efficiency", h.attention_efficiency, pages.share);
    // What contiguous memory gains is between two figures of one machine: both are measured, or both the base's.
    const auto beside = [&](const char* field, double& value, const std::optional<From>& of_pages,
                            const std::optional<From>& from) {
      if (of_pages && !from) value = 0;
      if (value > 0 || (of_pages && from)) set(field, value, of_pages ? from : std::nullopt);
    };
    beside("host.attention_contiguous_gbps_per_thread", h.attention_contiguous_gbps_per_thread, pages.one,
           contiguous.one);
    beside("host.attention_contiguous_efficiency", h.attention_contiguous_efficiency, pages.share, contiguous.share);
    const std::optional<From> share = kernel("score_blocks", probe_.threads, 1 / h.dram_gbps, " over dram_gbps");
    if (share || h.select_efficiency < 1) set("host.select_efficiency", h.select_efficiency, share);
    set("host.select_gbps_per_thread", h.select_gbps_per_thread, kernel("score_blocks", 1));
    set("host.stream_gbps_per_thread", h.stream_gbps_per_thread,
        of(probe_.find("dram_read", {{"threads", 1}}), "dram_read, 1 thread"));
    // Attention, scores and their ranking are what it prices; products of weights, which `bench kernels` has, run on
    // units of their own (AMX, vdpbf16ps: 396 GFLOP/s of a Zen 5 core where ranking has 80).
    assume("host.gflops_per_thread", h.gflops_per_thread);
  }

  void handoff() {
    auto& h = result_.profile.handoff;
    // A running kernel's round trip is two stores to pinned memory; half of it is one.
    const ProbeFigure* trip = probe_.find("round_trip", {{"gpu_to_cpu", "running_kernel"}});
    const auto best = [&](const char* name, const char* not_by) -> const ProbeFigure* {
      const ProbeFigure* least = nullptr;
      for (const ProbeFigure* figure : probe_.all(name)) {
        if (figure->conditions.contains("by") && figure->conditions["by"] == not_by) continue;
        if (least == nullptr || figure->value < least->value) least = figure;
      }
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
    set("handoff.device_to_host_ns", h.device_to_host_ns,
        one_way(best("gpu_to_cpu_after_store", "cudaStreamSynchronize"), 1));
    set("handoff.host_to_device_ns", h.host_to_device_ns,
        one_way(best("cpu_to_gpu_to_cpu_store", "kernel_launch"), -1));
  }

  const ProbeReport& probe_;
  const HardwareProfile& base_;
  std::vector<const KernelReport*> kernels_;
  CalibratedProfile result_;
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
  CalibratedProfile result = Calibrator(probe, kernels, base, options).take(options);
  // Whatever the figures were, what is written is what is read: out of range is refused here, not by a later run.
  result.profile = parse_profile(profile_to_json(result.profile), options.name, "The profile from " + probe.file);
  return result;
}

}  // namespace tandem::hardware
