// Which method to run: the fastest of those that fit and are known to lose little. A pure function of predictions and
// losses, with no simulation in it; `tandem advise` makes both and prints the answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/predict/losses.h"
#include "eval/predict/precision.h"
#include "eval/predict/sweep.h"

namespace tandem::eval {

struct AdviceLimits {
  std::string model;  // that is to decode: a paper's row of it goes before rows of other models
  std::uint32_t context = 0;
  double lose = 0;                                // points of a score of 100
  double device_kv_bytes = 0, host_kv_bytes = 0;  // room for KV, without weights and reserves
  std::uint32_t positions = 0;                    // that the model was trained for
};

/// Losses count at a length within this share of the context, and for budgets whose shares are this factor apart.
inline constexpr double kSameLength = 0.1, kSameShare = 1.25;

/// A method beside the limits.
struct Judged {
  SweepPoint point;
  bool fits = false;
  Loss expected;                // at this length; of kind unknown where nothing was run there
  std::optional<Loss> nearest;  // measured at the equal or nearest length, with the same share of the context or more
  /// The least limit with which the method would be admitted, as `expected` and `nearest` have it; infinite for a loss
  /// that is not known.
  double admitted_from = 0;

  bool admitted(double lose) const { return fits && admitted_from <= lose; }
  /// Measured to lose more than that.
  bool loses_more(double lose) const { return nearest && nearest->points > lose; }
};

struct Advice {
  AdviceLimits limits;
  std::vector<Judged> methods;  // the fastest first; those without a predicted step last
  // Places in `methods`; nullopt: no method is admitted, or only one.
  std::optional<std::size_t> first, second;
  bool order_is_certain = false;  // the ranges of the two do not overlap
  /// Methods that a higher limit admits and that are faster than `first`, by that limit: each is faster than those
  /// that a lower limit admits.
  std::vector<std::size_t> with_higher_limit;
  std::vector<std::size_t> not_known;   // the loss at this length is not known, and no run speaks against them
  std::vector<std::size_t> lose_more;   // a run measured more than the limit
  std::vector<std::size_t> do_not_fit;  // known to lose at most the limit; not those refused for other reasons

  /// Place of a judged method; nullptr where there is none.
  const Judged* at(const std::optional<std::size_t>& place) const { return place ? &methods.at(*place) : nullptr; }
};

/// `predictions`: of one machine, batch and context, each method once. `losses`: their methods are the predictions'.
/// A method's expected loss is, in this order: none by construction, the user's run's, a shipped run's, a paper's. Of
/// several of a kind the largest counts, and of papers those of the same model alone where there are any. A method is
/// admitted where it fits, its expected loss is known and at most the limit, and so is its loss in `nearest`: in the
/// user's run if that has the method, else in the shipped ones.
Advice recommend(const std::vector<SweepPoint>& predictions, const std::vector<Loss>& losses,
                 const AdviceLimits& limits);

/// A setting that another answer belongs to.
struct WhatIf {
  std::string option;          // "--weight-bits 8"
  std::optional<Judged> best;  // none: still no method is admitted
  Precision precision;
};

/// An answer as it is shown.
struct ShownAdvice {
  Advice advice;
  HardwareProfile hardware;
  std::uint32_t batch = 1;
  Precision precision;
  std::size_t weight_bytes = 0;  // in bf16
  std::vector<WhatIf> what_ifs;
};

/// The highest --lose that an answer offers as a change, in points.
inline constexpr double kHighestTold = 20;

/// A table of the recommendation and the runner-up, the reason, and what would change the answer.
std::string advice_text(const ShownAdvice& shown);
/// The same of several answers as JSON: {"answers": [...]}.
std::string advice_json(const std::vector<ShownAdvice>& answers);

}  // namespace tandem::eval
