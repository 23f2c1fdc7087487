// Two runs: whether they can be judged by one another, their samples by method, and times of the same samples.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "eval/gate/gate.h"

namespace tandem::eval {

/// InputError where a difference between the runs could be due to something else than the program: another benchmark,
/// protocol, model, tokenizer, seed, batch, clock or hardware profile, or for measured times another machine (unless
/// `any_machine`); also where one of them is unfinished. It names what differs, with both values.
void check_comparable(const RunFolder& baseline, const RunFolder& run, bool any_machine);

/// InputError where the run lacks a task, a length or samples of the baseline: losses there would not show.
void check_has_samples_of(const RunFolder& baseline, const RunFolder& run);

/// A sentence for each difference that may be the one under test.
std::vector<std::string> differences_to_note(const Manifest& baseline, const Manifest& run);

using Place = Scores::key_type;

inline Place place_of(const SampleKey& key) {
  return {key.task, key.length, key.index};
}

/// One method's results in one run; they belong to its Run.
struct Samples {
  std::map<Place, const SampleResult*> results;
  std::map<Place, const SampleTiming*> timings;
};

/// A run's files in memory. InputError for what RunFolder::samples() and timings() refuse.
struct Run {
  explicit Run(const RunFolder& folder)
      : manifest(folder.manifest()), results(folder.samples()), timings(folder.timings()) {
    for (const SampleResult& s : results) by_method[s.method].results[place_of(s)] = &s;
    for (const SampleTiming& t : timings) by_method[t.method].timings[place_of(t)] = &t;
  }
  Run(const Run&) = delete;
  const Samples& of(const MethodEntry& method) const { return by_method.at(method.label); }

  const Manifest manifest;
  const std::vector<SampleResult> results;
  const std::vector<SampleTiming> timings;
  std::map<std::string, Samples> by_method;
};

struct TimeMargins {
  double tpot = 0, ttft = 0;  // shares of 1
};

/// Without times of batches that have other samples in the other run: all samples of a batch have its times.
Samples in_equal_batches(Samples samples, const Manifest& own, const Manifest& other);

/// Times of those of `own` that `other` has too, summed up as reports do, but TPOT over the steps that a sample has in
/// both, and without idle time where that would be of others: it is known of all of a sample's steps together.
MethodSummary shared_latency(const Samples& own, const Samples& other, const Manifest& manifest,
                             const std::string& label);

/// Whether all samples that both have took as many steps in each. `length` 0: of all lengths.
bool same_steps(const Samples& a, const Samples& b, std::uint32_t length);

/// TPOT and TTFT at each length; of what one of the runs alone has, nothing can be told. A longer idle time is no
/// verdict of its own: where a step takes no longer for it, the device has become faster. It says why where one does.
std::vector<TimeVerdict> judge_virtual_times(const MethodSummary& before, const MethodSummary& after, double margin);

/// TPOT and TTFT, all lengths together; the samples of a batch, which have the same steps, count once.
std::vector<TimeVerdict> judge_measured_times(const Samples& before, const Samples& now, std::uint32_t batch,
                                              const TimeMargins& margins);

/// "Cannot tell" where the runs share samples, but no time that may be compared: at each length, or of all together.
/// `before_timed`, `now_timed`: what in_equal_batches() leaves of them.
std::vector<TimeVerdict> untimed(const Samples& before, const Samples& now, const Samples& before_timed,
                                 const Samples& now_timed, bool by_length, double margin);

/// Raises the margins to what `again`, a run of the same program, differs by. False where they share no time.
bool allow_noise(const Samples& baseline, const Samples& again, std::uint32_t batch, TimeMargins& margins);

}  // namespace tandem::eval
