// The samples and times of one run, by method.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "eval/report/run_folder.h"
#include "eval/report/summary.h"

namespace tandem::eval {

using Place = Scores::key_type;

inline Place place_of(const SampleKey& key) {
  return {key.task, key.length, key.index};
}

/// What one of the runs has of one method; the samples are its Run's.
struct Samples {
  std::map<Place, const SampleResult*> results;
  std::map<Place, const SampleTiming*> timings;
};

/// A run's files in memory. InputError for what RunFolder::samples() and timings() refuse.
class Run {
 public:
  explicit Run(const RunFolder& folder)
      : manifest_(folder.manifest()), results_(folder.samples()), timings_(folder.timings()) {
    for (const SampleResult& s : results_) by_method_[s.method].results[place_of(s)] = &s;
    for (const SampleTiming& t : timings_) by_method_[t.method].timings[place_of(t)] = &t;
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  const Manifest& manifest() const { return manifest_; }
  const Samples& of(const MethodEntry& method) const { return by_method_.at(method.label); }
  Repeated repeated() const { return repeated_in(manifest_, results_); }

 private:
  Manifest manifest_;
  std::vector<SampleResult> results_;
  std::vector<SampleTiming> timings_;
  std::map<std::string, Samples> by_method_;
};

}  // namespace tandem::eval
