#include "methods/asyncspade/asyncspade.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/mechanisms/cache_rank/cache_ranks.h"

namespace tandem {
namespace {

struct AsyncSpadeOptions {
  TokenShare budget{0, 2048};
  std::string place = "stream", weights = "eq2", windows = "all", rope = "pre";
  std::uint32_t pack = 6, window = 16, theta = 0;
  double epsilon = 1e-3;
  OptionSet bind() {
    OptionSet set("asyncspade");
    set.share("budget", budget,
              "tokens that a KV head attends, or a share of the context; the newest page is among them");
    set.choice("place", place, {"stream", "host", "peer"},
               "the cache rank: a side stream of the device, CPU threads and host memory, or another device");
    set.number_of("pack", pack, {1, 2, 4, 6, 8, 12}, "consecutive layers that share a message each way");
    set.count("window", window, "queries", "most predecessors that the newest query is regressed on (W), 1 to 32");
    set.choice("weights", weights, {"eq2", "ridge_softmax", "alg1", "raw"},
               "equation 2 as printed, softmax of the ridge solution, appendix C to the letter, or no softmax");
    set.choice("windows", windows, {"all", "W"}, "mean over the windows of 1 to W queries, or the longest alone");
    set.choice("rope", rope, {"pre", "post"}, "queries are regressed as they were before RoPE, or as roped");
    set.number("epsilon", epsilon, 1e-9, 1e3,
               "of the ridge, relative to the mean squared norm of the window's queries");
    set.count("theta", theta, "tokens",
              "tokens since the first prompt, later prompts' included, before attention gets sparse");
    return set;
  }
  void check() const {
    if (window < 1 || window > kMaxWindow) {
      throw_input_error("Option 'window' of method 'asyncspade' is {}; it must lie in 1 .. {}.", window, kMaxWindow);
    }
  }
  RankPlace rank_place() const {
    return place == "stream" ? RankPlace::stream : place == "host" ? RankPlace::host : RankPlace::peer;
  }
  PredictionRule rule() const {
    PredictionRule rule;
    rule.weights = weights == "eq2"    ? LagWeights::eq2
                   : weights == "alg1" ? LagWeights::alg1
                   : weights == "raw"  ? LagWeights::raw
                                       : LagWeights::ridge_softmax;
    rule.all_windows = windows == "all";
    rule.epsilon = epsilon;
    rule.window = window;
    rule.pre_rope = rope == "pre";
    return rule;
  }
};

/// AsyncSpade: while one step runs, the cache rank predicts the next step's queries from the latest ones and sends the
/// tokens that they would attend most; no step waits for its own query.
class AsyncSpade : public Method {
 public:
  explicit AsyncSpade(AsyncSpadeOptions options) : options_(std::move(options)) {}

  std::string spelled_out() const override {
    AsyncSpadeOptions copy = options_;
    return copy.bind().spelled_out();
  }
  Needs needs(const ModelShape&) const override {
    return {.lossless = options_.budget.ratio >= 1, .last_queries = options_.rule().room()};
  }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    sequence.method = ops.use<CacheRanks>().open(sequence, {options_.rank_place(), options_.rule(), most(sequence)});
    select_by_prompt(sequence, ops);
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    AttendPlan plan;
    for (const SequenceState* sequence : context.batch) {
      const std::uint32_t tokens = sequence->tokens, newest = is_sparse(*sequence, tokens) ? newest_page(tokens) : 0;
      plan.items.push_back({.row = sequence->row, .kv = Ranges{{newest, tokens}}});
      if (newest > 0 && selected(tokens) > 0)
        plan.items.push_back(
            {.row = sequence->row, .kv = ops.use<CacheRanks>().selected(rank_of(*sequence), context.layer)});
    }
    return plan;
  }

  void after_layer(const LayerContext& context, Ops& ops) override {
    std::vector<RankRef> ranks;
    ranks.reserve(context.batch.size());
    for (const SequenceState* sequence : context.batch) ranks.push_back(rank_of(*sequence));
    ops.use<CacheRanks>().keep_queries(context, ranks);
    const std::uint32_t end = context.layer + 1;
    if (end % options_.pack != 0 && end != context.shape.layers) return;
    std::vector<AheadRequest> requests;
    requests.reserve(context.batch.size());
    for (const SequenceState* sequence : context.batch) requests.push_back(next_step(*sequence));
    ops.use<CacheRanks>().select_ahead({context.layer / options_.pack * options_.pack, end}, requests, false);
  }

  // The last step chose nothing: the window, which has its queries, chooses now.
  void goes_on(SequenceState& sequence, Ops& ops) override {
    ops.use<CacheRanks>().renew(rank_of(sequence), most(sequence));
    select_by_prompt(sequence, ops);
  }

  AppendRequest before_append(SequenceState&, Range, Ops&) override {
    if (options_.place == "peer") {
      throw_input_error(
          "asyncspade with place=peer takes no new prompt in a running session: the KV that the prompt must attend to "
          "is "
          "on the peer. Take place=stream or place=host.");
    }
    return {};
  }

  void appended(SequenceState& sequence, Range, Ops& ops) override {
    ops.use<CacheRanks>().renew(rank_of(sequence), most(sequence));
    select_by_prompt(sequence, ops);
  }

 private:
  static RankRef rank_of(const SequenceState& sequence) { return std::any_cast<RankRef>(sequence.method); }
  /// First token of the page that is being filled in a step that ends with so many tokens. It is on the device, and
  /// attended whatever was selected.
  static std::uint32_t newest_page(std::uint32_t tokens) { return (tokens - 1) / kPageTokens * kPageTokens; }
  bool is_sparse(const SequenceState& sequence, std::uint32_t tokens) const {
    return tokens - 1 - sequence.prefix_tokens >= options_.theta;
  }
  /// Tokens that a KV head attends of the pages before the newest one.
  std::uint32_t selected(std::uint32_t tokens) const {
    const std::uint32_t newest = newest_page(tokens), all = options_.budget.of(tokens);
    return std::min(newest, all - std::min(all, tokens - newest));
  }
  std::uint32_t most(const SequenceState& sequence) const {
    return std::min(options_.budget.of(sequence.max_tokens), sequence.max_tokens);
  }
  /// What the rank is asked after a step, for the one after it.
  AheadRequest next_step(const SequenceState& sequence) const {
    const std::uint32_t next = sequence.tokens + 1;
    if (!is_sparse(sequence, next)) return {&sequence, rank_of(sequence)};
    const bool ends = sequence.tokens >= sequence.max_tokens;
    return {&sequence, rank_of(sequence), newest_page(next), ends ? 0 : selected(next)};
  }
  void select_by_prompt(const SequenceState& sequence, Ops& ops) const {
    const AheadRequest request = next_step(sequence);
    const std::uint32_t layers = ops.shape().layers;
    for (std::uint32_t layer = 0; layer < layers; layer += options_.pack)
      ops.use<CacheRanks>().select_ahead({layer, std::min(layer + options_.pack, layers)}, {&request, 1}, true);
  }

  AsyncSpadeOptions options_;
};

}  // namespace

MethodInfo asyncspade_info() {
  MethodInfo info;
  info.name = "asyncspade";
  info.summary = "tokens chosen one step ahead, by queries predicted from the latest ones";
  info.description =
      "While a step runs, a cache rank takes in its queries, predicts the next token's from the last W + 1 of each "
      "head, "
      "scores every token of the whole pages exactly with them and sends the K and V of the best ones, packed, per KV "
      "head; the next step attends them and the newest page. No step waits for a choice that depends on it. KV lies at "
      "the rank: on the device (place=stream), in host memory (host), or on another device (peer), of which the device "
      "keeps the newest page and the selection. Budget: tokens per KV head, the newest page included. New tokens: in "
      "the "
      "newest page, which goes to the rank when it is full.";
  info.source = "AsyncSpade: Efficient Test-Time Scaling with Asynchronous Sparse Decoding";
  info.budget = "tokens-attended";
  info.budget_options = {{.option = "budget", .step = 4, .least = 32, .turns_device = false},
                         {.option = "budget", .step = 4, .least = 32, .where = "place", .is = "host"},
                         {.option = "budget", .step = 4, .least = 32, .where = "place", .is = "peer"}};
  info.at_short_contexts = "budget=512";
  AsyncSpadeOptions defaults;
  info.options = defaults.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    AsyncSpadeOptions options;
    options.bind().parse(spec);
    options.check();
    return std::make_unique<AsyncSpade>(options);
  };
  return info;
}

}  // namespace tandem
