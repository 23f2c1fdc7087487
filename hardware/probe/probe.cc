#include "hardware/probe/probe.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "hardware/probe/cpu_sections.h"
#include "hardware/probe/gpu.h"
#include "hardware/probe/machine.h"

namespace tandem::probe {
namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

bool chosen(const Options& options, const std::string& name) {
  return options.sections.empty() ||
         std::find(options.sections.begin(), options.sections.end(), name) != options.sections.end();
}

}  // namespace

std::string describe(const Fields& fields) {
  std::string text;
  for (const Field& field : fields) {
    if (!text.empty()) text += ", ";
    text += field.key + "=";
    if (const auto* string = std::get_if<std::string>(&field.value)) text += *string;
    if (const auto* integer = std::get_if<std::int64_t>(&field.value)) text += std::to_string(*integer);
    if (const auto* real = std::get_if<double>(&field.value)) text += std::to_string(*real);
    if (const auto* flag = std::get_if<bool>(&field.value)) text += *flag ? "true" : "false";
  }
  return text;
}

const char* to_string(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::partial:
      return "partial";
    case Status::failed:
      return "failed";
    case Status::absent:
      return "absent";
  }
  return "unknown";
}

double percentile(std::span<const double> values, double percent) {
  if (values.empty()) throw ProbeError("A percentile of no values was asked for.");
  for (double value : values) {
    if (std::isnan(value)) throw ProbeError("A measured value is not a number.");
  }
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const double position = std::clamp(percent, 0.0, 100.0) / 100.0 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = position - static_cast<double>(below);
  return sorted[below] + part * (sorted[above] - sorted[below]);
}

Figure summarize(std::span<const double> values) {
  Figure figure;
  figure.value = percentile(values, 50);
  figure.p10 = percentile(values, 10);
  figure.p90 = percentile(values, 90);
  figure.repeats = static_cast<int>(values.size());
  return figure;
}

Recorder::Recorder(Report& report, std::size_t section, double cap_seconds)
    : report_(report),
      section_(section),
      deadline_(Clock::now() +
                std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(cap_seconds))) {}

double Recorder::seconds_left() const {
  return std::chrono::duration<double>(deadline_ - Clock::now()).count();
}

std::optional<std::vector<double>> Recorder::collect(const std::string& label, const std::function<double()>& sample) {
  try {
    return repeats(label, sample);
  } catch (const FigureError& error) {
    skip(label + ": " + error.what());
    return std::nullopt;
  }
}

std::optional<std::vector<double>> Recorder::repeats(const std::string& label, const std::function<double()>& sample) {
  if (seconds_left() <= 0) {
    skip(label);
    return std::nullopt;
  }
  // The wall time of the warm-up, not the sample's own figure: a sample may prepare and verify outside its timing.
  const auto warm_start = Clock::now();
  sample();
  const double warm = seconds_since(warm_start);
  if (warm * kMinRepeats > seconds_left()) {
    skip(label);
    return std::nullopt;
  }
  // Past the minimum, a figure may use this much time for more repeats.
  const double slice = quick() ? 0.04 : 0.25;
  std::vector<double> samples;
  const auto start = Clock::now();
  while (static_cast<int>(samples.size()) < kMinRepeats ||
         (static_cast<int>(samples.size()) < kMaxRepeats && seconds_since(start) < slice)) {
    samples.push_back(sample());
  }
  return samples;
}

void Recorder::figure(const std::string& name, const std::string& unit, const Fields& conditions,
                      const std::function<double()>& sample, const std::function<double(double)>& convert) {
  auto samples = collect(name + " (" + describe(conditions) + ")", sample);
  if (!samples) return;
  for (double& value : *samples) value = convert(value);
  add(name, unit, conditions, *samples);
}

void Recorder::add(const std::string& name, const std::string& unit, const Fields& conditions,
                   std::span<const double> values) {
  Figure figure = summarize(values);
  figure.name = name;
  figure.unit = unit;
  figure.conditions = conditions;
  const std::lock_guard lock(report_.mutex);
  report_.sections[section_].figures.push_back(std::move(figure));
}

void Recorder::skip(const std::string& label) {
  const std::lock_guard lock(report_.mutex);
  report_.sections[section_].skipped.push_back(label);
}

void Recorder::checked(const std::string& sentence) {
  const std::lock_guard lock(report_.mutex);
  report_.sections[section_].checks.push_back(sentence);
}

const std::vector<SectionSpec>& section_specs() {
  // Shares are the seconds a full run gives each section; together they make the default cap.
  static const std::vector<SectionSpec> specs = {
      {"dram", "host memory read bandwidth by number of threads", 15, false},
      {"cpu_attention", "partial attention over bf16 KV pages on the CPU, by pattern, page size and threads", 33,
       false},
      {"bandwidth", "device memory read, write and copy bandwidth by size", 20, true},
      {"gemm", "bf16 matrix products at decode and prefill shapes", 30, true},
      {"launch", "kernel launches and graph segments", 12, true},
      {"calls", "marks, waits, small copies and arguments between kernels", 12, true},
      {"link", "host <-> device by piece size and count: DMA loop, batched DMA, zero-copy kernel", 50, true},
      {"traffic", "copies beside each other: both directions, small beside large", 3, true},
      {"handoff", "signals between CPU and GPU, both directions", 25, true},
  };
  return specs;
}

void run_probe(Report& report, const std::function<void(const Section&)>& finished) {
  const Options& options = report.options;
  const GpuStatus gpu = gpu_status();
  {
    const std::lock_guard lock(report.mutex);
    report.started_utc = utc_now();
    read_machine(report);
    report.gpu = gpu.passport;
    report.gpu_error = gpu.available ? "" : gpu.reason;
  }

  double shares = 0;
  for (const SectionSpec& spec : section_specs()) {
    if (chosen(options, spec.name) && (!spec.gpu || gpu.available)) shares += spec.share;
  }
  // No section gets more than its share of the default cap: what GPU sections would have used is saved, not spent.
  double all_shares = 0;
  for (const SectionSpec& spec : section_specs()) all_shares += spec.share;

  for (const SectionSpec& spec : section_specs()) {
    if (!chosen(options, spec.name)) continue;
    std::size_t index = 0;
    {
      const std::lock_guard lock(report.mutex);
      index = report.sections.size();
      Section& section = report.sections.emplace_back();
      section.name = spec.name;
      section.what = spec.what;
      section.cap_seconds = options.seconds * spec.share / (options.quick ? shares : std::max(shares, all_shares));
      if (spec.gpu && !gpu.available) {
        section.status = Status::absent;
        section.cap_seconds = 0;
        section.error = gpu.reason;
      } else {
        // Replaced when the section ends; this is what a reader of an interrupted run finds.
        section.status = Status::failed;
        section.error = "The section did not end.";
      }
    }
    if (report.sections[index].status != Status::absent) {
      const auto start = Clock::now();
      std::string error;
      try {
        Recorder recorder(report, index, report.sections[index].cap_seconds);
        if (spec.gpu) {
          run_gpu_section(spec.name, recorder);
        } else {
          run_cpu_section(spec.name, recorder);
        }
      } catch (const std::exception& failure) {
        error = failure.what();
        if (error.empty()) error = "The section failed without a message.";
      }
      const std::lock_guard lock(report.mutex);
      Section& section = report.sections[index];
      section.seconds = seconds_since(start);
      section.error = error;
      section.status = !error.empty() ? Status::failed : !section.skipped.empty() ? Status::partial : Status::ok;
    }
    finished(report.sections[index]);
  }
  const std::lock_guard lock(report.mutex);
  report.machine.emplace_back("load_average_end", load_average());
}

}  // namespace tandem::probe
