#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <set>

#include "eval/gate/runs.h"
#include "eval/report/manifest_difference.h"

namespace tandem::eval {
namespace {

/// Where the device waits longer, and for what most of it.
std::string longer_waits(const LatencySummary& before, const LatencySummary& after) {
  if (after.idle_ms <= before.idle_ms) return "";
  std::string cause;
  double most = 0;
  for (const auto& [name, ms] : after.idle_ms_by_cause) {
    const auto earlier = before.idle_ms_by_cause.find(name);
    const double more = ms - (earlier == before.idle_ms_by_cause.end() ? 0 : earlier->second);
    if (more > most) cause = name;
    most = std::max(most, more);
  }
  return fmt::format("idle time of a step {:.4g} → {:.4g} ms, most of it for {} (+{:.4g} ms)", before.idle_ms,
                     after.idle_ms, cause, most);
}

/// A time of a sample, which it may not have.
using TimeOf = std::optional<double> (*)(const SampleTiming&);

std::optional<double> ttft_of(const SampleTiming& t) {
  if (t.steps == 0) return std::nullopt;
  return double(t.prefill_ns) + double(t.setup_ns) + double(t.first_step_ns);
}
std::optional<double> tpot_of(const SampleTiming& t) {
  double sum = 0;
  for (const std::int64_t ns : t.step_ns) sum += double(ns);
  return ratio(sum, double(t.step_ns.size()));
}

/// Where one of the runs has no such time: its samples end with their first token.
TimeVerdict untold(bool in_run, double margin) {
  return {.verdict = Verdict::cannot_tell,
          .margin = margin,
          .remark = fmt::format("no sample of the {} has a second token", in_run ? "baseline" : "run")};
}

/// log(run / baseline) of the samples of both, a mean for each batch, whose samples have the same steps.
std::vector<double> log_ratios(const Samples& before, const Samples& now, std::uint32_t batch, TimeOf time) {
  std::map<Place, std::pair<double, double>> batches;  // sum, samples
  for (const auto& [place, timing] : now.timings) {
    const auto other = before.timings.find(place);
    if (other == before.timings.end()) continue;
    const std::optional<double> earlier = time(*other->second), later = time(*timing);
    if (!earlier || !later || *earlier <= 0 || *later <= 0) continue;
    auto& [sum, samples] = batches[{timing->task, timing->length, timing->index / batch}];
    sum += std::log(*later / *earlier);
    samples += 1;
  }
  std::vector<double> ratios;
  ratios.reserve(batches.size());
  for (const auto& [key, sums] : batches) ratios.push_back(sums.first / sums.second);
  return ratios;
}

bool any_time(const Samples& samples, TimeOf time) {
  return std::ranges::any_of(samples.timings, [&](const auto& entry) { return time(*entry.second).has_value(); });
}

constexpr std::size_t kFewestRatios = 5;  // a bootstrap of fewer is much too sure

/// Pairs like these, but which disagree as often for the run as against it, and one of them at least.
PairedMoments fair_moments(const PairedScores& scores) {
  const bool alike = scores.first == scores.second;
  double all = 0, sum = 0, squares = 0, products = 0;
  for (std::size_t i = 0; i < scores.first.size(); ++i) {
    const bool disagrees = alike && i == 0;
    const double x = disagrees ? 1 : scores.first[i], y = disagrees ? 0 : scores.second[i], w = scores.weights[i];
    all += w;
    sum += w * (x + y) / 2;
    squares += w * (x * x + y * y) / 2;
    products += w * x * y;
  }
  const double mean = sum / all, variance = squares / all - mean * mean;
  return {mean, mean, variance, variance, products / all - mean * mean};
}

}  // namespace

const char* to_string(Verdict verdict) {
  constexpr std::array<const char*, 3> kNames = {"passed", "cannot tell", "failed"};
  return kNames.at(static_cast<std::size_t>(verdict));
}

AccuracyVerdict judge_accuracy(const PairedScores& scores, double margin, double alpha) {
  AccuracyVerdict out;
  out.before = estimate_mean(scores.first, scores.weights).value;
  out.after = estimate_mean(scores.second, scores.weights).value;
  out.change = compare_paired(scores.first, scores.second, scores.weights);
  out.change.difference.n = scores.samples;
  const auto significant = [&] {
    if (out.change.has_p) return out.change.p < alpha;
    return paired_share_interval(scores.first, scores.second, scores.weights, normal_quantile(1 - alpha / 2)).high < 0;
  };
  if (out.change.difference.value < 0 && significant()) {
    out.verdict = Verdict::failed;
  } else if (out.change.difference.interval.low < -margin) {
    out.verdict = Verdict::cannot_tell;
    if (margin > 0) out.needed = samples_needed(scores, margin);
  }
  return out;
}

std::uint64_t samples_needed(const PairedScores& scores, double margin) {
  TANDEM_CHECK(!scores.first.empty() && margin > 0, "{} pairs, margin {}", scores.first.size(), margin);
  const PairedMoments fair = fair_moments(scores);
  // What one run in five is below 0 by, and the interval below that, which is about as wide as at 0.
  const auto reaches = [&](double n) {
    const double spread = std::sqrt(2 * (fair.variance1 - fair.covariance) / n);
    return kNormal80 * spread - paired_share_interval(fair, n).low;
  };
  double low = 1, high = kMostNeeded;
  if (reaches(high) > margin) return kMostNeeded;
  while (high - low > 0.5) {
    const double middle = (low + high) / 2;
    (reaches(middle) > margin ? low : high) = middle;
  }
  double all = 0, squares = 0;
  for (const double w : scores.weights) {
    all += w;
    squares += w * w;
  }
  // As many as these know as much as all^2 / squares of one weight do (Kish 1965).
  return static_cast<std::uint64_t>(std::ceil(high * static_cast<double>(scores.samples) * squares / (all * all)));
}

TimeVerdict judge_exact(double before_ms, double after_ms, double margin) {
  TimeVerdict out = {.before_ms = before_ms, .after_ms = after_ms, .margin = margin};
  if (const std::optional<double> times = ratio(after_ms, before_ms)) out.change = *times - 1;
  if (after_ms > before_ms * (1 + margin)) out.verdict = Verdict::failed;
  return out;
}

TimeVerdict judge_measured(std::span<const double> log_ratios, double margin) {
  TimeVerdict out = {.verdict = Verdict::cannot_tell, .change = std::expm1(mean(log_ratios)), .margin = margin};
  if (log_ratios.size() < kFewestRatios) return out;
  const Interval logs = bootstrap_mean_interval(log_ratios);
  out.interval = Interval{std::expm1(logs.low), std::expm1(logs.high)};
  if (out.interval->high <= margin) out.verdict = Verdict::passed;
  if (out.interval->low > margin) out.verdict = Verdict::failed;
  return out;
}

Samples in_equal_batches(Samples samples, const Manifest& own, const Manifest& other) {
  const std::uint32_t batch = batch_of(own);
  std::erase_if(samples.timings, [&](const auto& entry) {
    const SampleTiming& timing = *entry.second;
    const std::uint32_t first = timing.index - timing.index % batch;
    const auto together = [&](const Manifest& m) {
      return std::min(batch, std::max(m.samples_of(timing.task), first) - first);
    };
    return together(own) != together(other);
  });
  return samples;
}

MethodSummary shared_latency(const Samples& own, const Samples& other, const Manifest& manifest,
                             const std::string& label) {
  // Where answers end elsewhere, means over all steps would weigh the samples differently, and so their contexts.
  const auto common_steps = [&](const Place& place, const SampleTiming& timing) {
    return std::min(timing.step_ns.size(), other.timings.at(place)->step_ns.size());
  };
  std::vector<SampleTiming> shared;
  std::set<std::uint32_t> stepping;  // lengths where there are any
  for (const auto& [place, timing] : own.timings) {
    if (!other.timings.contains(place)) continue;
    shared.push_back(*timing);
    if (common_steps(place, *timing) > 0) stepping.insert(timing->length);
  }
  for (SampleTiming& timing : shared)
    if (stepping.contains(timing.length)) timing.step_ns.resize(common_steps(place_of(timing), timing));
  MethodSummary summary;
  summary.label = label;
  add_latency(manifest, shared, summary);
  const auto without_idle = [&](LatencySummary& latency, std::uint32_t length) {
    if (same_steps(own, other, length)) return;
    latency.idle_ms = 0;
    latency.idle_ms_by_cause.clear();
  };
  if (summary.latency) without_idle(*summary.latency, 0);
  for (LengthLatency& at : summary.by_length) without_idle(at.latency, at.length);
  return summary;
}

bool same_steps(const Samples& a, const Samples& b, std::uint32_t length) {
  return std::ranges::all_of(a.timings, [&](const auto& entry) {
    const auto other = b.timings.find(entry.first);
    return other == b.timings.end() || (length != 0 && std::get<1>(entry.first) != length) ||
           entry.second->steps == other->second->steps;
  });
}

std::vector<TimeVerdict> judge_virtual_times(const MethodSummary& before, const MethodSummary& after, double margin) {
  std::vector<TimeVerdict> times;
  for (const LengthLatency& now : after.by_length) {
    const auto earlier = std::ranges::find(before.by_length, now.length, &LengthLatency::length);
    if (earlier == before.by_length.end()) continue;
    const auto add = [&](const char* what, const std::optional<double>& before_ms,
                         const std::optional<double>& after_ms) {
      if (!before_ms && !after_ms) return;
      TimeVerdict& time = times.emplace_back(before_ms && after_ms ? judge_exact(*before_ms, *after_ms, margin)
                                                                   : untold(after_ms.has_value(), margin));
      time.what = what;
      time.length = now.length;
      if (time.verdict == Verdict::failed) time.remark = longer_waits(earlier->latency, now.latency);
    };
    add("TPOT", earlier->latency.tpot_ms, now.latency.tpot_ms);
    add("TTFT", earlier->latency.ttft_ms, now.latency.ttft_ms);
  }
  return times;
}

std::vector<TimeVerdict> judge_measured_times(const Samples& before, const Samples& now, std::uint32_t batch,
                                              const TimeMargins& margins) {
  std::vector<TimeVerdict> times;
  const auto add = [&](const char* what, TimeOf time, double margin) {
    const std::vector<double> ratios = log_ratios(before, now, batch, time);
    if (ratios.empty()) {
      const bool there = any_time(before, time), here = any_time(now, time);
      if (!there && !here) return;
      times.push_back(untold(here, margin));
      if (there && here) times.back().remark = "no sample has a second token in both runs";
    } else {
      times.push_back(judge_measured(ratios, margin));
    }
    times.back().what = what;
  };
  add("TPOT", tpot_of, margins.tpot);
  add("TTFT", ttft_of, margins.ttft);
  return times;
}

std::vector<TimeVerdict> untimed(const Samples& before, const Samples& now, const Samples& before_timed,
                                 const Samples& now_timed, bool by_length, double margin) {
  struct Shared {                      // of samples that are in both runs
    bool batch = false, time = false;  // a time, and one of equal batches
  };
  std::map<std::uint32_t, Shared> lengths;
  for (const auto& [place, result] : now.results) {
    if (!before.results.contains(place)) continue;
    Shared& shared = lengths[by_length ? std::get<1>(place) : 0];
    shared.batch = shared.batch || (now.timings.contains(place) && before.timings.contains(place));
    shared.time = shared.time || (now_timed.timings.contains(place) && before_timed.timings.contains(place));
  }
  std::vector<TimeVerdict> times;
  for (const auto& [length, shared] : lengths) {
    if (shared.time) continue;
    times.push_back({.verdict = Verdict::cannot_tell,
                     .what = "TPOT or TTFT",
                     .length = length,
                     .margin = margin,
                     .remark = shared.batch ? "no batch of the two runs has the same samples"
                                            : "no sample has times in both runs"});
  }
  return times;
}

bool allow_noise(const Samples& baseline, const Samples& again, std::uint32_t batch, TimeMargins& margins) {
  bool shared = false;
  const auto raise = [&](double& margin, TimeOf time) {
    const std::vector<double> ratios = log_ratios(baseline, again, batch, time);
    shared = shared || !ratios.empty();
    if (!ratios.empty()) margin = std::max(margin, std::abs(std::expm1(mean(ratios))));
  };
  raise(margins.tpot, tpot_of);
  raise(margins.ttft, ttft_of);
  return shared;
}

}  // namespace tandem::eval
