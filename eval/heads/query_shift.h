// How well the next token's choice of tokens is known before its query is (AsyncSpade section 3, figures 4 and 5): what
// earlier queries would choose, by their distance, and what queries predicted from them would.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/kernels/thread_pool.h"
#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"
#include "engine/runtime/engine.h"
#include "eval/heads/heads.h"

namespace tandem::eval {

struct ShiftOptions {
  std::uint32_t window = 16;  // W, and the longest distance
  double share = 0.125;       // of the tokens before the query that a head chooses: the paper's
  double epsilon = 1e-3;
};

/// Overlap ratios: share of the tokens that a query head's true query scores best that another query chooses too.
struct ShiftOverlaps {
  std::vector<double> by_distance;          // [distance - 1]: the query so many tokens before
  std::vector<double> with_shift, without;  // by variant: weights found one token earlier, and for the query itself
};

/// Means over prompts, queries and heads.
struct ShiftProfile {
  ShiftOptions options;
  std::uint64_t prompts = 0, queries = 0, tokens = 0;  // tokens: sum over the prompts
  std::vector<std::vector<double>> by_distance;        // [layer][distance - 1]
  /// One reading of the prediction.
  struct Variant {
    PredictionRule rule;
    std::vector<double> with_shift, without;  // by layer
    std::string name() const;                 // as options of the method: "weights=raw,windows=W,rope=pre"
  };
  std::vector<Variant> variants;
  struct Prompt : ShiftOverlaps {  // means over layers, heads and queries
    std::string name;              // HeadPrompt's
    std::uint32_t tokens = 0, queries = 0;
  };
  std::vector<Prompt> each_prompt;

  const Variant& best() const;  // with shift
  /// Standard deviation over the prompts of what `of` takes from each; 0 of a single one.
  double spread(const std::function<double(const Prompt&)>& of) const;
  /// Prompts in which no other variant is better with shift.
  std::size_t wins(std::size_t variant) const;
};

/// Full attention over the prompts, answers given. A query needs W + 1 before it.
ShiftProfile profile_query_shift(const Model& model, Engine& engine, ThreadPool& pool,
                                 const std::vector<HeadPrompt>& prompts, const ShiftOptions& options,
                                 const ProfileProgress& progress = {});

}  // namespace tandem::eval
