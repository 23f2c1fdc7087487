// Head properties where no predictor of the simulated model is at hand: drawn from a file that says how the properties
// of a model's heads are spread (hardware/workloads/fluxion-heads.json). For simulations of published shapes.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>

#include "methods/fluxion/fluxion.h"
#include "methods/fluxion/labels.h"

namespace tandem {

/// Under one rule of what is enough. A head's need is a standard normal value z, in part that of its group; it decides
/// everything: budget = -mean ln(1 - Phi(z)), exponential; streaming where Phi(z) < streaming; slope = growth x budget.
struct HeadSpread {
  double mean = 0;       // budget at single tokens, of all heads, streaming ones included
  double growth = 0;     // slope of a head over its budget
  double streaming = 0;  // share of heads
};

struct HeadSpreads {
  std::string name, source;
  double group = 0;    // correlation of the needs of two heads of a KV group, in [0, 1]
  double lasting = 0;  // share of a need's variance that is the head's own, whatever the sequence and the step
  std::array<HeadSpread, kBudgetPolicies> rules{};  // by BudgetPolicy, at an error of 10 %
  std::map<double, HeadSpread> errors;              // by error, of BudgetPolicy::fluxion
  /// Of the network that would have said it, for its cost; 4 bytes each.
  std::uint64_t predictor_parameters = 0;
};

/// InputError naming file, field and value.
HeadSpreads parse_head_spreads(const std::string& text, const std::string& file);
/// The rule `fluxion` at another error than 10 %; InputError with those that there are.
HeadSpreads at_error(HeadSpreads spreads, double error);
/// The file that ships.
HeadSpreads published_head_spreads();

/// The same properties for the same sequence (by its query, or by its number where only shapes are simulated), layer,
/// head and number of tokens, in every run and in every batch.
std::shared_ptr<const HeadSource> drawn_heads(const HeadSpreads& spreads, BudgetPolicy policy);

}  // namespace tandem
