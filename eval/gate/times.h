// Times of the same samples in two runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/gate/rules.h"
#include "eval/gate/samples.h"

namespace tandem::eval {

struct TimeMargins {
  double tpot = 0, ttft = 0;  // shares of 1
};

/// Without the times of batches that the other run has with other samples (its --samples are others): all samples of a
/// batch have the batch's times.
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

/// Raises the margins to what `again`, a run of the baseline's program, differs from it.
/// False where they share no time.
bool allow_noise(const Samples& baseline, const Samples& again, std::uint32_t batch, TimeMargins& margins);

}  // namespace tandem::eval
