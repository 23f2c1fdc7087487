#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/mechanisms/partial_key_index/partial_key_indexes.h"
#include "methods/baselines/baselines.h"
#include "methods/baselines/layer_stream.h"

namespace tandem {
namespace {

constexpr std::uint32_t kBlock = 32;  // tokens that leave the device together

struct InfinigenOptions {
  TokenShare budget{0.2, 0};
  double partial = 0.3, alpha = 4;
  std::uint32_t dense_layers = 2;
  std::string fetch = "page", scope = "kv_head";
  OptionSet bind() {
    OptionSet set("infinigen");
    set.share("budget", budget,
              "most tokens fetched per KV head (scope=query_head: per query head) and layer behind the dense ones: "
              "tokens, or a share of the context; with "
              "fetch=page whole blocks of 32, rounded down; at least one token or block");
    set.ratio("partial", partial, 0, 1, "share of the head dimension that the index on the device keeps");
    set.number("alpha", alpha, 0, 1e9,
               "a token is wanted where its speculated score is at most so far below the best; the authors' is 4 for "
               "OPT, 5 for Llama-2");
    set.count("dense_layers", dense_layers, "layers",
              "first layers that fetch all their KV and attend to everything; the authors' are 2");
    set.choice("fetch", fetch, {"token", "page"}, "what is fetched together: a token, or 32 tokens");
    set.choice(
        "scope", scope, {"kv_head", "layer", "query_head"},
        "who chooses together; a layer's pages of 32 tokens are one transfer; where each query head chooses, its "
        "KV head fetches what any of them chose, and `budget` is of each");
    return set;
  }
  std::uint32_t unit() const { return fetch == "token" ? 1 : kBlock; }
  std::uint32_t columns(std::uint32_t dim) const { return static_cast<std::uint32_t>(std::ceil(partial * dim - 1e-9)); }
  std::uint32_t units(std::uint32_t tokens) const { return std::max(1u, std::min(budget.of(tokens), tokens) / unit()); }
  /// Of a KV head in one fetch, of a context of so many tokens at most.
  std::uint32_t most_units(std::uint32_t tokens, const ModelShape& shape) const {
    if (scope != "query_head") return units(tokens);
    return std::max(1u, std::min(units(tokens) * shape.group(), tokens / unit()));
  }
  Scope choosers() const {
    return scope == "layer" ? Scope::layer : scope == "query_head" ? Scope::query_head : Scope::kv_head;
  }
};

/// Of a sequence.
struct InfinigenState {
  KeyIndexRef index;   // of the layers behind the dense ones
  LayerStream stream;  // of the dense ones, where there are any
};

/// InfiniGen: KV in host memory; while a layer runs, the next one's query is speculated, scored against a partial index
/// of skewed keys, and what it would look at is fetched ahead of use. The first layers, whose input says little about
/// the next one's query, are fetched whole (arXiv 2406.19707 and its code).
class Infinigen : public Method {
 public:
  explicit Infinigen(InfinigenOptions options) : options_(std::move(options)) {}

  std::string spelled_out() const override {
    InfinigenOptions copy = options_;
    return copy.bind().spelled_out();
  }
  Needs needs(const ModelShape& shape) const override {
    const bool all = dense_layers(shape) == shape.layers;
    return {.lossless = all, .last_queries = all ? 0u : 64u, .eigenvectors = !all};
  }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    const std::uint32_t dense = dense_layers(ops.shape());
    InfinigenState state;
    state.index = ops.use<PartialKeyIndexes>().index_keys(
        sequence, {.columns = options_.columns(ops.shape().head_dim),
                   .unit = options_.unit(),
                   .most = options_.most_units(sequence.max_tokens, ops.shape()),
                   .scope = options_.choosers(),
                   .first_layer = dense});
    if (dense > 0) state.stream = open_layer_stream(sequence, std::min(dense, 2u), kBlock, ops);
    sequence.method = std::move(state);
  }

  void before_layer(const LayerContext& context, Ops& ops) override {
    if (context.layer == 0) next_ = std::nullopt;  // a step that failed may have left its own
    now_ = std::exchange(next_, std::nullopt);
    if (is_dense(context)) stream(context, ops);
    if (context.layer > 0 || is_dense(context)) look_ahead(context, ops);
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    if (context.layer == 0 && !is_dense(context)) {  // no layer before it: fetched by its own query, and waited for
      now_ = fetch(context, ops.layer_query(context), ops);
      look_ahead(context, ops);
    }
    AttendPlan plan;
    for (SequenceState* sequence : context.batch) {
      plan.items.push_back({.row = sequence->row, .kv = Ranges{{newest_begin(*sequence), sequence->tokens}}});
      if (is_dense(context) && newest_begin(*sequence) > 0)
        plan.items.push_back({.row = sequence->row, .kv = state_of(*sequence).stream.of(context.layer)});
    }
    if (!now_) return plan;
    for (std::size_t i = 0; i < now_->rows.size(); ++i)
      plan.items.push_back({.row = now_->rows[i], .kv = now_->fetched[i]});
    return plan;
  }

  void after_layer(const LayerContext& context, Ops& ops) override {
    for (SequenceState* sequence : context.batch)
      ops.use<PartialKeyIndexes>().block_filled(*sequence, state_of(*sequence).index, context.layer);
  }

  void goes_on(SequenceState& sequence, Ops& ops) override {
    ops.use<PartialKeyIndexes>().renew(sequence, state_of(sequence).index,
                                       options_.most_units(sequence.max_tokens, ops.shape()));
  }

  void appended(SequenceState& sequence, Range, Ops& ops) override {
    ops.use<PartialKeyIndexes>().renew(sequence, state_of(sequence).index,
                                       options_.most_units(sequence.max_tokens, ops.shape()));
  }

 private:
  static InfinigenState& state_of(SequenceState& sequence) { return std::any_cast<InfinigenState&>(sequence.method); }
  /// First token that is on the device alone; the step's own is in it.
  static std::uint32_t newest_begin(const SequenceState& sequence) { return (sequence.tokens - 1) / kBlock * kBlock; }
  std::uint32_t dense_layers(const ModelShape& shape) const { return std::min(options_.dense_layers, shape.layers); }
  bool is_dense(const LayerContext& context) const { return context.layer < options_.dense_layers; }

  /// Dense layers, one ahead.
  void stream(const LayerContext& context, Ops& ops) const {
    std::vector<StreamedRow> rows;
    for (SequenceState* sequence : context.batch) {
      if (newest_begin(*sequence) > 0) rows.push_back({sequence, &state_of(*sequence).stream, newest_begin(*sequence)});
    }
    stream_layers(context, dense_layers(context.shape), rows, ops);
  }
  std::optional<SpeculatedKv> fetch(const LayerContext& context, const QueryRef& query, Ops& ops) const {
    std::vector<SpeculateRequest> requests;
    for (SequenceState* sequence : context.batch) {
      if (newest_begin(*sequence) == 0) continue;
      requests.push_back({sequence, state_of(*sequence).index, options_.units(sequence->tokens), options_.alpha});
    }
    if (requests.empty()) return std::nullopt;
    return ops.use<PartialKeyIndexes>().fetch(context, query, requests);
  }
  void look_ahead(const LayerContext& context, Ops& ops) {
    const std::uint32_t layer = context.layer + 1;
    const auto is_short = [](const SequenceState* sequence) { return newest_begin(*sequence) == 0; };
    if (layer == context.shape.layers || layer < options_.dense_layers) return;
    if (std::all_of(context.batch.begin(), context.batch.end(), is_short)) return;
    next_ = fetch(context, ops.predict_query(context, layer, context.layer), ops);
  }

  InfinigenOptions options_;
  std::optional<SpeculatedKv> now_, next_;  // inside a step
};

}  // namespace

MethodInfo infinigen_info() {
  MethodInfo info;
  info.name = "infinigen";
  info.summary = "KV in host memory; what the next layer's speculated query would look at is fetched ahead of use";
  info.description =
      "After the prefill all KV but the newest, partly filled block of 32 tokens is in host memory. Per KV head a "
      "skewing, from the prompt's keys and its last 64 queries, gathers what matters for scores in the first columns; "
      "the index on the device keeps partial x D columns of every skewed key. While layer i runs, layer i+1's query is "
      "speculated from layer i's normed input and scored against the index; as many tokens of each KV head are fetched "
      "as score within alpha of the best, the mean over the heads, at most `budget`. The first `dense_layers` have no "
      "index: each step streams all their KV to the device, the next one's while one runs, and attends to all of it; "
      "without any, layer 0 fetches by its own query. Under scope=layer all KV heads fetch the same tokens, under "
      "scope=query_head each query head chooses by itself and attends to what any head of its group chose. Budget: "
      "tokens fetched per KV head (scope=query_head: per query head) and layer behind the dense ones; the newest block "
      "is on top. New tokens: on the device until their block is full.";
  info.source = "InfiniGen (Lee et al., arXiv 2406.19707), with which ScoutAttention compares";
  info.budget = "most-fetched-share-of-context";
  info.budget_options = {{.option = "budget", .step = 32, .least = 32}};
  InfinigenOptions defaults;
  info.options = defaults.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    InfinigenOptions options;
    options.bind().parse(spec);
    if (options.budget.tokens > 0 && options.budget.tokens < options.unit()) {
      throw_input_error(
          "Option 'budget' of method 'infinigen' is {} tokens, less than the {} that fetch={} fetches together.",
          options.budget.tokens, options.unit(), options.fetch);
    }
    return std::make_unique<Infinigen>(options);
  };
  return info;
}

}  // namespace tandem
