// Statistics of a model's attention heads at decode queries: what the methods' assumptions (sinks, streaming heads, few
// important tokens, similar neighbours, predictable queries) are worth on this model. Float32 states of the engine's
// own forward pass, full attention, answers given (teacher forcing), so that a wrong answer changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model.h"
#include "engine/runtime/engine.h"
#include "eval/heads/head_stats.h"

namespace tandem::eval {

struct HeadOptions {
  std::uint32_t sinks = 4;             // first tokens, for the sinks' mass
  std::uint32_t window = 256;          // most recent tokens, the query's own included, without the sinks
  std::uint32_t streaming_sinks = 64;  // what a streaming head keeps: Fluxion §3.2
  double tolerance = 0.10;             // tau of Fluxion's Eq. 2
};

/// Called after each prompt.
using ProfileProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// A prompt and what follows it. The queries are those that produce the tokens from `first_query + 1` on: the last
/// prompt token's and the answer's, but not the last one's.
struct HeadPrompt {
  std::string name;
  std::vector<std::int32_t> tokens;
  std::uint32_t first_query = 0;
};

/// RULER samples of the embedded source with their answers: `samples` per task, each of at most `length` tokens; the
/// queries produce the answer.
std::vector<HeadPrompt> ruler_head_prompts(const Model& model, const std::vector<std::string>& tasks,
                                           std::uint32_t length, std::uint32_t samples, std::uint64_t seed);

inline constexpr std::uint32_t kTextQueries = 32;

/// `samples` windows of `length` tokens at even distances; the queries are the last kTextQueries of each. InputError
/// where the text is no UTF-8 or shorter than one window; `name` stands for it in the sentence.
std::vector<HeadPrompt> text_head_prompts(const Model& model, std::string_view text, const std::string& name,
                                          std::uint32_t length, std::uint32_t samples);

/// Means over all queries of all prompts. NaN where there is nothing to take a mean of. Those of a KV head are of the
/// query heads that share it: masses are means over the group, budgets of the union of its choices, and it streams
/// where all its heads do, since only then no key on the host is needed.
struct KvHeadStats {
  double sink_mass = 0, window_mass = 0;
  double streaming = 0;  // share of queries at which the head is a streaming one
  Budgets budget{};      // share of tokens in the fewest blocks that reach the mass
};

struct HeadStats : KvHeadStats {
  double token_overlap = 0, block_overlap = 0;  // with the query before
  // Query predicted from the previous layer's input, under this layer's norm and under the previous layer's; layer 0
  // has none.
  double cosine_next = 0, cosine_own = 0;
};

/// How far a layer's input is from the previous layer's, which a query predicted a layer ahead is made of. Means over
/// the queries; NaN in layer 0.
struct InputChange {
  double cosine = 0;  // of the two
  double added = 0;   // what the previous layer adds to its input, in lengths of that input
};

struct LayerHeads {
  std::vector<HeadStats> q_heads;
  std::vector<KvHeadStats> kv_heads;
  InputChange input;
  HeadStats mean() const;  // over q_heads
};

struct HeadProfile {
  HeadOptions options;
  std::uint64_t prompts = 0, queries = 0, tokens = 0;  // tokens: sum of contexts over the prompts
  std::vector<LayerHeads> layers;
  HeadStats mean() const;  // over all layers and heads; the cosines over layers 1 and up
};

/// Runs the prompts one by one. `engine` has a device KV budget for the longest.
HeadProfile profile_heads(const Model& model, Engine& engine, ThreadPool& pool, const std::vector<HeadPrompt>& prompts,
                          const HeadOptions& options, const ProfileProgress& progress = {});

}  // namespace tandem::eval
