#include "methods/scoutattention/scoutattention.h"

#include <algorithm>
#include <utility>

#include "engine/common/error.h"
#include "engine/mechanisms/residency/residency.h"
#include "methods/common_options.h"
#include "methods/scoutattention/recall_intervals.h"

namespace tandem {
namespace {

struct ScoutOptions {
  std::uint32_t budget = 2048, block = 32, sinks = 64, true_layers = 1;
  RecallIntervals recall;
  std::string ahead = "next", pred_norm = "next", scope = "layer", device_scope = "resident", layer0 = "true_query",
              digest = "bounds";
  OptionSet bind() {
    OptionSet set("scoutattention");
    set.tokens(
        "budget", budget,
        "tokens of the device's part of a layer, whole blocks, rounded down: sinks, the newest block and the best "
        "others; with device_scope=resident the CPU attends those that are chosen and not resident on top");
    set.number_of("block", block, {16, 32, 64, 128}, "tokens that are chosen together");
    set.tokens("sinks", sinks, "first tokens that never leave the device, rounded up to whole blocks");
    set.value(
        "recall", "steps, a-b-c or a file",
        "decode steps between two recalls of a layer, 0: never; one number, one per layer, or the file of `tandem "
        "profile scout-recall`",
        [this](const std::string& text) {
          recall = parse_recall_intervals(text);
          return true;
        },
        [this] { return recall.text(); });
    set.choice(
        "ahead", ahead, {"next", "none"},
        "whose part the CPU begins while a layer runs: the next layer's, by a predicted query, or its own, by the "
        "true one");
    set.count("true_layers", true_layers, "layers",
              "first layers whose blocks their own true query chooses, for models whose queries cannot be predicted "
              "there; layer 0 is always one");
    set.choice("pred_norm", pred_norm, {"next", "own"},
               "input norm under which a layer's query is predicted: its own layer's, or that of the layer before");
    set.choice("scope", scope, {"layer", "kv_head"}, "who chooses blocks together");
    set.choice(
        "device_scope", device_scope, {"resident", "selected"},
        "whether the device attends all residents, or those that were chosen; under layer0=resident always all in "
        "layer 0");
    set.choice("layer0", layer0, {"true_query", "resident"},
               "layer 0 has no layer before it: the CPU attends by the true query, or not at all");
    add_digest_option(set, digest);
    return set;
  }
  std::uint32_t sink_tokens() const { return (sinks + block - 1) / block * block; }
  std::uint32_t slots() const { return (budget - sink_tokens()) / block - 1; }
  /// No more than a context of `tokens` has blocks for.
  std::uint32_t slots(std::uint32_t tokens) const {
    return std::min(slots(), std::max(tokens - std::min(sink_tokens(), tokens), block) / block);
  }
};

struct ScoutState {
  ResidentRef residents;
  std::uint32_t steps = 0;  // that this sequence has decoded
};

/// ScoutAttention: the CPU attends what is chosen and not resident, by a query predicted one layer ahead; recalls
/// follow the choice now and then (papers: ScoutAttention, algorithm 1).
class Scout : public Method {
 public:
  explicit Scout(ScoutOptions options) : options_(std::move(options)) {}

  std::string spelled_out() const override {
    ScoutOptions copy = options_;
    return copy.bind().spelled_out();
  }
  std::string trained_for() const override { return options_.recall.weights_hash; }
  Needs needs(const ModelShape& shape) const override {
    if (const std::size_t given = options_.recall.steps.size(); given != 1 && given != shape.layers) {
      throw_input_error(
          "Option 'recall' of method 'scoutattention' has intervals for {} layers and the model has {}: run `tandem "
          "profile scout-recall` on this model.",
          given, shape.layers);
    }
    return {.last_queries = 1};
  }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    sequence.method = ScoutState{ops.use<Residency>().keep(sequence, {.sinks = options_.sink_tokens(),
                                                                      .block = options_.block,
                                                                      .slots = options_.slots(sequence.max_tokens),
                                                                      .per_kv_head = options_.scope == "kv_head",
                                                                      .digests = digest_kind_of(options_.digest)})};
  }

  void before_layer(const LayerContext& context, Ops& ops) override {
    if (context.layer == 0) next_ = {};  // a step that failed may have left its own
    now_ = std::exchange(next_, {});
    if (!by_own_query(context.layer) || !cpu_attends(context.layer)) look_ahead(context, ops);
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    if (by_own_query(context.layer) && any_open(context)) {
      now_.split = ops.use<Residency>().split(context, ops.layer_query(context), residents(context));
      if (cpu_attends(context.layer)) {
        now_.partial = ops.use<Residency>().host_partial(context, now_.split);
        look_ahead(context, ops);  // behind this layer's own part, which is needed first
      }
    }
    AttendPlan plan;
    plan.ready = now_.partial;
    for (const SequenceState* sequence : context.batch) {
      const std::uint32_t newest = newest_begin(*sequence), sinks = options_.sink_tokens();
      plan.items.push_back({.row = sequence->row, .kv = Ranges::around({sinks, newest}, sequence->tokens)});
      if (newest <= sinks) continue;
      const bool chosen_only = options_.device_scope == "selected" && now_.partial.has_value();
      plan.items.push_back({.row = sequence->row,
                            .kv = ops.use<Residency>().kv(state(*sequence).residents, context.layer, chosen_only)});
    }
    return plan;
  }

  void after_layer(const LayerContext& context, Ops& ops) override {
    // One layer after the other: recalls of all layers in one step would ask for more than the link moves in it (98 ms
    // of transfers in a step of 41 ms at Qwen3-14B's shape, batch 40 and an interval of 8).
    const std::uint32_t interval = options_.recall.of(context.layer), phase = context.layer;
    std::vector<std::uint32_t> due;
    for (SequenceState* sequence : context.batch) {
      if (interval > 0 && (state(*sequence).steps + 1 + phase) % interval == 0) due.push_back(sequence->row);
    }
    if (!due.empty() && !now_.split.rows.empty()) ops.use<Residency>().recall(context, now_.split, due);
    for (SequenceState* sequence : context.batch) {
      ScoutState& own = state(*sequence);
      if (sequence->tokens % options_.block == 0 && sequence->tokens > options_.sink_tokens())
        ops.use<Residency>().block_filled(*sequence, own.residents, context.layer);
      if (context.layer + 1 == context.shape.layers) ++own.steps;
    }
  }

  void goes_on(SequenceState& sequence, Ops& ops) override {
    ops.use<Residency>().extend(sequence, state(sequence).residents, options_.slots(sequence.max_tokens));
  }

  void appended(SequenceState& sequence, Range, Ops& ops) override {
    ops.use<Residency>().renew(sequence, state(sequence).residents, options_.slots(sequence.max_tokens));
  }

 private:
  struct Layer {  // what is under way of one layer, inside a step
    SplitRef split;
    std::optional<HostPart> partial;
  };
  static ScoutState& state(SequenceState& sequence) { return std::any_cast<ScoutState&>(sequence.method); }
  static const ScoutState& state(const SequenceState& sequence) {
    return std::any_cast<const ScoutState&>(sequence.method);
  }
  /// First token of the newest block, in a step: the step's own token is in it.
  std::uint32_t newest_begin(const SequenceState& sequence) const {
    return (sequence.tokens - 1) / options_.block * options_.block;
  }
  /// Whether some row has more blocks than are resident at a time.
  bool any_open(const LayerContext& context) const {
    return std::any_of(context.batch.begin(), context.batch.end(), [&](const SequenceState* sequence) {
      return newest_begin(*sequence) > options_.sink_tokens() + options_.slots() * options_.block;
    });
  }
  static std::vector<ResidentRef> residents(const LayerContext& context) {
    std::vector<ResidentRef> sets;
    sets.reserve(context.batch.size());
    for (const SequenceState* sequence : context.batch) sets.push_back(state(*sequence).residents);
    return sets;
  }
  /// Whether a layer's blocks are chosen by its true query, not by one that the layer before predicted.
  bool by_own_query(std::uint32_t layer) const { return options_.ahead == "none" || layer < options_.true_layers; }
  bool cpu_attends(std::uint32_t layer) const { return layer > 0 || options_.layer0 == "true_query"; }
  void look_ahead(const LayerContext& context, Ops& ops) {
    const std::uint32_t layer = context.layer + 1;
    if (layer == context.shape.layers || by_own_query(layer) || !any_open(context)) return;
    const QueryRef query = ops.predict_query(context, layer, options_.pred_norm == "next" ? layer : context.layer);
    next_.split = ops.use<Residency>().split(context, query, residents(context));
    next_.partial = ops.use<Residency>().host_partial(context, next_.split);
  }

  ScoutOptions options_;
  Layer now_, next_;
};

void check(const ScoutOptions& options) {
  if (options.true_layers == 0) {
    throw_input_error(
        "Option 'true_layers' of method 'scoutattention' is 0, but layer 0 has no layer before it that could predict "
        "its query: the least is 1.");
  }
  if (const std::uint32_t least = options.sink_tokens() + 2 * options.block; options.budget < least) {
    throw_input_error(
        "Option 'budget' of method 'scoutattention' is {} tokens: the sinks ({}), the newest block and one that is "
        "chosen, of {} tokens each, need {}.",
        options.budget, options.sink_tokens(), options.block, least);
  }
}

}  // namespace

MethodInfo scoutattention_info() {
  MethodInfo info;
  info.name = "scoutattention";
  info.summary = "the best blocks resident on the device, chosen ones that are not attended on the CPU a layer ahead";
  info.description =
      "All filled blocks but the sinks are in host memory; sinks and the newest, partly filled block are on the device "
      "alone. Digests of all blocks (per channel min and max of their keys, or with digest=mean their mean), and the "
      "blocks that the last prefilled query scores best (the last prompt token is the first step), as many as `budget` "
      "has room for, are on the device. While layer i runs, layer i+1's query is predicted from layer i's input and "
      "chooses the best blocks of layer i+1, as many as the budget has room for beside sinks and newest block; those "
      "that are not resident are attended on the CPU by the predicted query, the residents on the device by the true "
      "one (ahead=none: all by the true one, while the device attends; "
      "true_layers: so in the first layers). Every "
      "`recall` steps a layer's residents become what it chose; the default is one number for all layers, about the "
      "paper's mean, where the paper profiles an interval for each (section 3.4), which `tandem profile scout-recall` "
      "does and recall=FILE loads. "
      "Budget: tokens per layer, the same for all heads under scope=layer; sinks and the newest, partly filled block "
      "count inside it. New tokens: on the device until their block is full; then it goes to host memory, gets a "
      "digest, and becomes resident at a recall. A new prompt in a session chooses the residents anew by its last "
      "prefilled query.";
  info.source = "ScoutAttention (papers: ScoutAttention, section 3, algorithm 1)";
  info.budget = "tokens-per-layer";
  info.budget_options = {{.option = "budget", .step = kPageTokens}};
  info.at_short_contexts = "budget=512";
  ScoutOptions defaults;
  info.options = defaults.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    ScoutOptions options;
    options.bind().parse(spec);
    check(options);
    return std::make_unique<Scout>(options);
  };
  return info;
}

}  // namespace tandem
