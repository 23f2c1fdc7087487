// Finished runs of invented samples, for the tests of eval/gate.
#pragma once

#include <functional>
#include <gtest/gtest.h>

#include "eval/gate/gate.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {

/// What a test changes in a run.
struct Changes {
  std::function<void(Manifest&)> manifest = [](Manifest&) {};
  std::function<void(SampleResult&)> sample = [](SampleResult&) {};
  std::function<void(SampleTiming&)> timing = [](SampleTiming&) {};
};

/// full and hybrid:budget=0.2 on two lengths, 240 samples each; every fifth is wrong.
inline Manifest gate_manifest() {
  Manifest manifest = example_manifest();
  manifest.lengths = {1024, 2048};
  manifest.samples = 120;
  manifest.finished_utc = "2026-01-31T13:00:00Z";
  return manifest;
}

inline RunFolder write_gate_run(const std::filesystem::path& path, const Changes& changes = {}) {
  Manifest manifest = gate_manifest();
  changes.manifest(manifest);
  std::filesystem::create_directories(path);
  write_bytes(path / "manifest.json", to_json_text(manifest));
  std::string samples, timings;
  for (const SampleKey& key : keys_in_order(manifest, 1)) {
    SampleResult sample = example_sample(key.index, key.method);
    sample.near_ties.clear();
    sample.score = key.index % 5 == 0 ? 0 : 1;
    SampleTiming timing = example_timing(key.index, key.method);
    timing.clock = manifest.clock;
    static_cast<SampleKey&>(sample) = static_cast<SampleKey&>(timing) = key;
    changes.sample(sample);
    changes.timing(timing);
    samples += to_line(sample) + "\n";
    if (!manifest.clock.empty()) timings += to_line(timing) + "\n";
  }
  write_bytes(path / "samples.jsonl", samples);
  write_bytes(path / "timings.jsonl", timings);
  return RunFolder::open(path);
}

inline bool is_hybrid(const SampleKey& key) {
  return key.method != "full";
}
inline const auto kOnACpu = [](Manifest& m) { m.clock = "measured on A CPU, 2 threads"; };

/// All decode steps but the first take `ratio` times as long: the device waits for the rest, or is busy for less.
inline void slow_down(SampleTiming& timing, double ratio) {
  std::int64_t more = 0;
  std::int64_t& changed = ratio > 1 ? timing.idle_ns : timing.busy_ns;
  for (std::int64_t& ns : timing.step_ns) {
    const auto longer = static_cast<std::int64_t>(double(ns) * ratio);
    more += longer - ns;
    ns = longer;
  }
  timing.window_ns += more;
  changed += more;
  if (ratio > 1) timing.idle_by_cause.front().second += more;  // "host attention"
}

/// Judges a run of fixtures against another.
class TwoRuns : public ::testing::Test {
 protected:
  Gate gate(const Changes& run, const Changes& baseline = {}, const GateOptions& options = {}) {
    return judge(write_gate_run(root_ / "baseline", baseline), write_gate_run(root_ / "run", run), {}, options);
  }

  TemporaryFolder root_;
};

}  // namespace tandem::eval
