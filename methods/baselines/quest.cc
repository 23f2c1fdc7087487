#include <algorithm>
#include <vector>

#include "engine/mechanisms/device_budget/device_budget.h"
#include "methods/baselines/baselines.h"
#include "methods/common_options.h"

namespace tandem {
namespace {

struct QuestOptions {
  TokenShare budget{0, 2048};
  std::uint32_t page = 16, dense_layers = 0, sinks = 0;
  std::string group_reduce = "max", digest = "bounds", evict = "lru-topk";
  double device = 1;
  /// `shown`: without what means nothing where all KV is on the device.
  OptionSet bind(bool shown = false) {
    OptionSet set("quest");
    set.share(
        "budget", budget,
        "tokens that a KV head attends (with group_reduce=per_head: a query head), or a share of the context; whole "
        "pages, rounded up");
    set.number_of("page", page, {16, 32, 64, 128}, "tokens of a page");
    set.count("dense_layers", dense_layers, "layers", "first layers that attend to everything");
    set.tokens("sinks", sinks, "first tokens that are always among those attended; rounded up to a page");
    set.choice("group_reduce", group_reduce, {"max", "mean", "per_head", "layer"},
               "a KV head's score of a page from its query heads'; per_head: each query head chooses its own; layer: "
               "all heads of a layer choose together, by their mean");
    add_digest_option(set, digest);
    if (shown && device == 1) return set;
    add_device_option(set, device, "and comes when it is chosen");
    add_evict_option(set, evict, {"fixed", "lru", "lru-topk", "attention"});
    return set;
  }
  Scope scope() const {
    if (group_reduce == "layer") return Scope::layer;
    return group_reduce == "per_head" ? Scope::query_head : Scope::kv_head;
  }
  Reduce reduce() const { return group_reduce == "mean" || group_reduce == "layer" ? Reduce::mean : Reduce::max; }
  DeviceShare share() const {
    return {device,
            {.eviction = eviction_of(evict), .block = page, .sinks = sinks, .window = 0, .look_ahead = 0},
            MassFrom::choices};
  }
};

/// Quest: each step reads the pages whose digests promise the largest scores. All KV is on the device, or a share of
/// it, and what a step chose and does not find there comes from host memory first.
class Quest : public Method {
 public:
  explicit Quest(QuestOptions options) : options_(std::move(options)) {}

  std::string spelled_out() const override {
    QuestOptions copy = options_;
    return copy.bind(true).spelled_out();
  }
  Needs needs(const ModelShape& shape) const override {
    return {.lossless = options_.dense_layers >= shape.layers || options_.budget.ratio >= 1,
            .host_prompts = offloads()};
  }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    sequence.method = ops.build_digests(sequence, {.tokens = {0, sequence.tokens},
                                                   .block = options_.page,
                                                   .side = Side::device,
                                                   .grows = true,
                                                   .first_layer = std::min(options_.dense_layers, ops.shape().layers),
                                                   .kind = digest_kind_of(options_.digest)});
    if (offloads()) ops.use<DeviceBudget>().open(sequence, options_.share());
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    AttendPlan plan;
    std::vector<ScoreRequest> requests;
    for (const SequenceState* sequence : context.batch) {
      // The newest page, which the step's own token is in, is attended always and scored never.
      const std::uint32_t newest = (sequence->tokens - 1) / options_.page * options_.page;
      const std::uint32_t others = newest / options_.page;
      const std::uint32_t keep = std::max(pages(options_.budget.of(sequence->tokens)), 1u) - 1;
      const bool everything = context.layer < options_.dense_layers || keep >= others;
      plan.items.push_back({.row = sequence->row, .kv = Ranges{{everything ? 0 : newest, sequence->tokens}}});
      if (everything || keep == 0) continue;
      requests.push_back({.sequence = sequence,
                          .digests = std::any_cast<DigestRef>(sequence->method),
                          .blocks = keep,
                          .always_first = pages(options_.sinks),
                          .scope = options_.scope(),
                          .reduce = options_.reduce()});
    }
    if (!requests.empty()) {
      const std::vector<Blocks> selections = ops.score_topk(context, requests);
      for (std::size_t i = 0; i < requests.size(); ++i)
        plan.items.push_back({.row = requests[i].sequence->row, .kv = selections[i]});
    }
    if (offloads()) ops.use<DeviceBudget>().bring(context, plan);
    return plan;
  }

  void after_layer(const LayerContext& context, Ops& ops) override {
    if (context.layer >= options_.dense_layers) {
      std::vector<DigestExtension> extensions;
      extensions.reserve(context.batch.size());
      for (const SequenceState* sequence : context.batch) extensions.push_back(extension(*sequence));
      ops.extend_digests(context.layer, extensions);
    }
    if (offloads()) ops.use<DeviceBudget>().after_layer(context);
  }

  void after_step(const StepContext& context, Ops& ops) override {
    if (offloads()) ops.use<DeviceBudget>().after_step(context);
  }

  AppendRequest before_append(SequenceState& sequence, Range, Ops& ops) override {
    if (!offloads()) return {};
    ops.use<DeviceBudget>().refit(sequence, options_.share());
    return {.keeper = ops.use<DeviceBudget>().keeper()};
  }

  void appended(SequenceState& sequence, Range, Ops& ops) override {
    const DigestExtension own = extension(sequence);
    for (std::uint32_t layer = options_.dense_layers; layer < ops.shape().layers; ++layer)
      ops.extend_digests(layer, {&own, 1});
    if (offloads()) ops.use<DeviceBudget>().refit(sequence, options_.share());
  }

  void goes_on(SequenceState& sequence, Ops& ops) override {
    if (offloads()) ops.use<DeviceBudget>().refit(sequence, options_.share());
  }

 private:
  bool offloads() const { return options_.device < 1; }
  std::uint32_t pages(std::uint32_t tokens) const { return (tokens + options_.page - 1) / options_.page; }
  static DigestExtension extension(const SequenceState& sequence) {
    return {&sequence, std::any_cast<DigestRef>(sequence.method), sequence.tokens};
  }

  QuestOptions options_;
};

}  // namespace

MethodInfo quest_info() {
  MethodInfo info;
  info.name = "quest";
  info.summary = "all KV on the device; each step attends the pages whose digests promise most";
  info.description =
      "All KV stays on the device, with digests (per channel min and max of a page's keys, or with digest=mean their "
      "mean). Each step scores all pages "
      "with the true query and attends the best ones; choosing is on the critical path. With device=SHARE only that "
      "share of KV stays there, digests on top, and a step waits for the chosen pages that are in host memory. Budget: "
      "tokens per KV head, "
      "the newest page and the sinks included; a ratio is of the context, new tokens included. New tokens: appended on "
      "the device; a page "
      "gets its digest when it is full, until then it is attended anyway.";
  info.source = "Tang et al. 2024, Quest (arXiv 2406.10774)";
  info.budget = "tokens-attended";
  info.budget_options = {{.option = "budget", .step = 16, .least = 32, .turns_device = false}};
  info.at_short_contexts = "budget=512";
  QuestOptions defaults;
  info.options = defaults.bind().describe();
  info.remarks = {
      {"dense_layers", "0",
       "quest with dense_layers=0 chooses pages in every layer; Quest's own evaluation leaves the first two "
       "layers dense (dense_layers=2)."}};
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    QuestOptions options;
    options.bind().parse(spec);
    return std::make_unique<Quest>(options);
  };
  return info;
}

}  // namespace tandem
