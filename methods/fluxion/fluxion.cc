#include "methods/fluxion/fluxion.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/head_network.h"
#include "methods/fluxion/drawn_heads.h"
#include "methods/fluxion/fluxion_options.h"
#include "methods/fluxion/oracle_heads.h"
#include "methods/fluxion/predicted_heads.h"
#include "methods/fluxion/selector.h"

namespace tandem {
namespace {

constexpr std::uint32_t kWidth = kHeadOutputs;           // floats of a head's properties
constexpr std::uint32_t kSpill = kGranularities.back();  // tokens that leave the device together
constexpr Nanos kChooseGroupNs = 100;                    // of the control thread: Eq. 3 for one KV group, assumed

void write_properties(const ModelShape& shape, const HeadSource& source, const HeadInputs& inputs, float* out) {
  std::vector<HeadProperties> properties(shape.q_heads);
  source.properties(shape, inputs, properties.data());
  for (const HeadProperties& head : properties) {
    *out++ = head.budget;
    *out++ = head.slope;
    *out++ = head.streaming ? 1.0f : 0.0f;
  }
}

/// Every head needs the same, but for a share of them that stream, whatever the sequence and the step.
class FixedHeads : public HeadSource {
 public:
  FixedHeads(HeadProperties retrieval, double streaming, bool lossless)
      : retrieval_(retrieval), streaming_(streaming), lossless_(lossless) {}
  Cost cost(const ModelShape&, std::uint32_t) const override { return {}; }
  void properties(const ModelShape& shape, const HeadInputs& inputs, HeadProperties* out) const override {
    for (std::uint32_t h = 0; h < shape.q_heads; ++h) {
      out[h] = retrieval_;
      // Multiples of the golden ratio spread evenly over [0, 1).
      const double at = (inputs.view.layer * shape.q_heads + h + 1) * 0.6180339887498949;
      out[h].streaming = at - std::floor(at) < streaming_;
    }
  }
  void launch(LaunchContext& ctx, const ModelShape& shape, std::span<const HeadInputs> inputs,
              float* out) const override {
    launch_known(ctx, *this, shape, inputs, out);
  }
  bool lossless() const override { return lossless_; }

 private:
  HeadProperties retrieval_;
  double streaming_;
  bool lossless_;
};

/// Where the options say that head properties come from.
std::shared_ptr<const HeadSource> head_source(const FluxionOptions& options) {
  const bool skips = options.streaming > 0 && options.selector_stage() == SelectorStage::skip;
  auto fixed = std::make_shared<FixedHeads>(
      HeadProperties{static_cast<float>(options.bgt), static_cast<float>(options.slope), false}, options.streaming,
      options.bgt >= 1 && options.slope >= 0 && !skips);
  const BudgetPolicy policy = options.budget_policy();
  std::shared_ptr<const Predictor> predictor;
  if (options.heads != "fixed" && options.heads != "published" && options.heads != "oracle")
    predictor = Predictor::find(options.heads, policy);
  options.check_looked_at();
  if (options.heads == "fixed") return fixed;
  if (options.heads == "published") {
    const HeadSpreads spreads = published_head_spreads();
    if (options.tau == 0.1) return drawn_heads(spreads, policy);
    if (policy != BudgetPolicy::fluxion)
      throw_input_error(
          "Method fluxion, option 'tau': heads=published knows other errors than 0.1 for budgets=fluxion alone.");
    return drawn_heads(at_error(spreads, options.tau), policy);
  }
  if (options.heads == "oracle") {
    BudgetLimits limits;
    limits.tau = options.tau;
    return oracle_heads(policy, limits, options.line == "cover" ? BudgetLine::cover : BudgetLine::measured,
                        std::move(fixed));
  }
  if (std::abs(predictor->limits().tau - options.tau) >= 1e-6) {
    throw_input_error(
        "Method fluxion, option 'tau': it is {:.4g}, but the predictor '{}' was trained for {:.4g}: give tau={:.4g}.",
        options.tau, options.heads, predictor->limits().tau, predictor->limits().tau);
  }
  if (predictor->policy() != policy) {
    const auto rule = kBudgetPolicyNames[static_cast<std::size_t>(predictor->policy())];
    throw_input_error(
        "Method fluxion, option 'budgets': it is {}, but the predictor '{}' was trained for {}: give budgets={}.",
        options.budgets, options.heads, rule, rule);
  }
  return predicted_heads(std::move(predictor), policy, std::move(fixed));
}

struct FluxionState {
  Range host;                // tokens in host memory; empty: all are on the device
  std::uint32_t prompt = 0;  // tokens of the prefill
  std::array<DigestRef, kGranularities.size()> digests;
  std::shared_ptr<void> memory;  // of the head source

  std::uint32_t host_tokens() const { return host.end - host.begin; }
};

/// Fluxion: head properties on the device, a block size per KV group by Eq. 3, and tasks that CPU and device pull from
/// one queue.
class Fluxion : public Method {
 public:
  Fluxion(FluxionOptions options, std::shared_ptr<const HeadSource> heads)
      : options_(std::move(options)),
        stage_(options_.selector_stage()),
        policy_(options_.schedule_policy()),
        heads_(std::move(heads)) {}

  std::string spelled_out() const override {
    FluxionOptions copy = options_;
    return copy.bind().spelled_out();
  }
  std::uint64_t content() const override { return heads_->content(); }
  std::string trained_for() const override { return heads_->trained_for(); }
  Needs needs(const ModelShape& shape) const override {
    heads_->check(shape, options_.sinks, options_.window);
    return {.lossless = heads_->lossless(), .last_queries = heads_->last_queries()};
  }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    FluxionState state;
    const std::uint32_t begin = blocks_for(options_.sinks) * kPageTokens;
    std::uint32_t end =
        sequence.tokens > options_.window ? (sequence.tokens - options_.window) / kPageTokens * kPageTokens : 0;
    if (spills() && end > begin) end -= (end - begin) % kSpill;  // whole blocks of every size
    state.host = {begin, std::max(begin, end)};
    state.prompt = sequence.tokens;
    state.memory = heads_->prepare(sequence, state.host, ops);
    if (state.host_tokens() > 0) {
      sequence.device_bytes = heads_->kept_bytes(ops.shape());
      ops.move_to_host(sequence, state.host);
    }
    std::optional<DigestRef> finer;  // only the smallest blocks' digests read the keys
    for (std::size_t i = 0; i < kGranularities.size(); ++i) {
      if (!has_digests(kGranularities[i]) || (state.host_tokens() == 0 && !spills())) continue;
      finer = state.digests[i] = ops.build_digests(
          sequence, {.tokens = state.host, .block = kGranularities[i], .grows = spills(), .finer = finer});
    }
    sequence.method = state;
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    AttendPlan plan;
    PulledTasks tasks;
    struct Row {
      std::uint32_t row = 0, request = 0;
      FluxionState state;
    };
    std::vector<Row> rows;
    for (const SequenceState* sequence : context.batch) {
      const auto& state = std::any_cast<const FluxionState&>(sequence->method);
      if (state.host_tokens() == 0) {
        plan.items.push_back({.row = sequence->row, .kv = Ranges{{0, sequence->tokens}}});
        continue;
      }
      const auto attend = [&](std::vector<AttendItem>& to, Range tokens) {
        if (tokens.begin < tokens.end) to.push_back({.row = sequence->row, .kv = Ranges{tokens}});
      };
      // What spilling takes of the prompt's window, new tokens make up for: it leaves more than a window behind itself.
      const std::uint32_t window_end = std::max(state.host.end + options_.window, state.prompt);
      attend(plan.apart[0], {0, state.host.begin});
      attend(plan.apart[1], {state.host.end, window_end});
      attend(plan.items, {window_end, sequence->tokens});
      rows.push_back({sequence->row, sequence->request, state});
    }
    if (rows.empty()) return plan;
    const ModelShape shape = context.shape;
    tasks.workers = options_.workers;
    tasks.heads.width = kWidth;
    tasks.heads.cost = heads_->cost(shape, static_cast<std::uint32_t>(rows.size()));
    std::vector<HeadInputs> inputs(context.batch.size(), HeadInputs{{}, {0, 0}, nullptr, 0});
    std::vector<std::shared_ptr<void>> memories;
    memories.reserve(rows.size());
    for (const Row& row : rows) {
      inputs[row.row].host = row.state.host;
      inputs[row.row].memory = row.state.memory.get();
      inputs[row.row].request = row.request;
      memories.push_back(row.state.memory);
    }
    tasks.heads.launch = [shape, heads = heads_, inputs, memories](LaunchContext& ctx, std::span<const HeadView> views,
                                                                   float* out) {
      std::vector<HeadInputs> asked;
      asked.reserve(views.size());
      for (const HeadView& view : views) {
        if (inputs[view.row].host.begin >= inputs[view.row].host.end) continue;
        asked.push_back(inputs[view.row]);
        asked.back().view = view;
      }
      heads->launch(ctx, shape, asked, out);
    };
    tasks.heads.estimate = [shape, heads = heads_, inputs = std::move(inputs), memories = std::move(memories)](
                               const HeadView& view, float* out) {
      HeadInputs own = inputs[view.row];
      if (own.host.begin >= own.host.end) return;  // nothing is asked of this row
      own.view = view;
      write_properties(shape, *heads, own, out);
    };
    if (options_.guard == "yes" && policy_ == SchedulePolicy::priority) {
      tasks.pace[static_cast<int>(Side::host)] = 1 - options_.cpu_share;
      tasks.pace[static_cast<int>(Side::device)] = options_.cpu_share;
    }
    tasks.choose_ns = static_cast<Nanos>(rows.size()) * shape.kv_heads * kChooseGroupNs;
    tasks.choose = [this, shape, rows = std::move(rows)](std::span<const float> estimates) {
      std::vector<PullTask> made;
      std::vector<ScheduleTask> volumes;
      std::vector<HeadProperties> group(shape.group());
      for (const Row& row : rows) {
        for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
          const float* from = estimates.data() + (std::size_t{row.row} * shape.q_heads + g * shape.group()) * kWidth;
          for (std::size_t h = 0; h < group.size(); ++h, from += kWidth) group[h] = {from[0], from[1], from[2] != 0};
          GroupChoice choice = choose_granularity(group, row.state.host_tokens(), stage_, heads_->least_blocks());
          if (std::all_of(choice.keep.begin(), choice.keep.end(), [](std::uint32_t keep) { return keep == 0; }))
            continue;
          made.push_back({row.row, g, digests_of(row.state, choice.block), std::move(choice.keep), true, true,
                          static_cast<std::uint64_t>(choice.volume), options_.own_only()});
          volumes.push_back({choice.volume, row.state.host_tokens()});
        }
      }
      std::vector<PullTask> ordered;
      ordered.reserve(made.size());
      for (const ScheduleEntry& entry : schedule(policy_, volumes, options_.cpu_share)) {
        PullTask& task = ordered.emplace_back(std::move(made[entry.task]));
        task.host = (entry.workers & kCpuBit) != 0;
        task.device = (entry.workers & kDeviceBit) != 0;
      }
      return ordered;
    };
    plan.finisher = ops.use<WorkQueue>().with(std::move(tasks));
    return plan;
  }

  void after_layer(const LayerContext& context, Ops& ops) override {
    if (!spills()) return;
    for (SequenceState* sequence : context.batch) {
      spill(*sequence, context.layer, ops);
      if (context.layer + 1 == context.shape.layers) advance(*sequence);
    }
  }

  void appended(SequenceState& sequence, Range, Ops& ops) override {
    if (!spills()) return;
    for (std::uint32_t layer = 0; layer < ops.shape().layers; ++layer) spill(sequence, layer, ops);
    advance(sequence);
  }

 private:
  bool spills() const { return options_.spill > 0; }
  bool has_digests(std::uint32_t block) const {
    if (stage_ == SelectorStage::fixed16) return block == 16;
    if (stage_ == SelectorStage::fixed32) return block == 32;
    return true;
  }
  static DigestRef digests_of(const FluxionState& state, std::uint32_t block) {
    const auto* found = std::find(kGranularities.begin(), kGranularities.end(), block);
    return state.digests[static_cast<std::size_t>(found - kGranularities.begin())];
  }

  /// Tokens that are due to leave the device, whole blocks of the largest size.
  std::uint32_t due(const SequenceState& sequence) const {
    const auto& state = std::any_cast<const FluxionState&>(sequence.method);
    const std::uint32_t stay = state.host.end + blocks_for(options_.window) * kPageTokens + options_.spill;
    return sequence.tokens > stay ? (sequence.tokens - stay) / kSpill * kSpill : 0;
  }
  void spill(SequenceState& sequence, std::uint32_t layer, Ops& ops) const {
    const auto& state = std::any_cast<const FluxionState&>(sequence.method);
    const std::uint32_t tokens = due(sequence);
    if (tokens == 0) return;
    ops.move_to_host(sequence, {state.host.end, state.host.end + tokens}, layer);
    std::vector<DigestExtension> extensions;
    for (std::size_t i = 0; i < kGranularities.size(); ++i) {
      if (has_digests(kGranularities[i])) extensions.push_back({&sequence, state.digests[i], state.host.end + tokens});
    }
    ops.extend_digests(layer, extensions);
  }
  void advance(SequenceState& sequence) const {
    const std::uint32_t tokens = due(sequence);
    std::any_cast<FluxionState&>(sequence.method).host.end += tokens;
  }

  FluxionOptions options_;
  SelectorStage stage_;
  SchedulePolicy policy_;
  std::shared_ptr<const HeadSource> heads_;
};

}  // namespace

void HeadSource::launch(LaunchContext&, const ModelShape&, std::span<const HeadInputs>, float*) const {
  throw_not_on_gpu("Method fluxion, option 'heads': what is measured in the run, or drawn for simulations, has");
}

void launch_known(LaunchContext& ctx, const HeadSource& source, const ModelShape& shape,
                  std::span<const HeadInputs> inputs, float* out) {
  const std::size_t width = std::size_t{shape.q_heads} * kWidth;
  std::vector<float> values(inputs.size() * width);
  for (std::size_t i = 0; i < inputs.size(); ++i) write_properties(shape, source, inputs[i], values.data() + i * width);
  const float* const from = ctx.upload(values);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    cuda_copy(out + inputs[i].view.row * width, from + i * width, width * sizeof(float), ctx.stream());
}

std::unique_ptr<Method> make_fluxion(const MethodSpec& spec, std::shared_ptr<const HeadSource> source) {
  FluxionOptions options;
  options.bind().parse(spec);
  options.check_guard();
  if (source == nullptr) source = head_source(options);
  return std::make_unique<Fluxion>(std::move(options), std::move(source));
}

std::unique_ptr<Method> make_watched_fluxion(const MethodSpec& spec, HeadWatch watch) {
  FluxionOptions options;
  options.bind().parse(spec);
  options.check_guard();
  if (options.spill > 0) {
    throw_input_error(
        "Method fluxion: errors of heads are measured over what the prompt left in host memory: give spill=0.");
  }
  if (!options.own_only())
    throw_input_error("Method fluxion: errors of heads are those of the blocks that each chose: give union=masked.");
  const SelectorStage stage = options.selector_stage();
  auto source = watched_heads(head_source(options), stage, std::move(watch));
  return std::make_unique<Fluxion>(std::move(options), std::move(source));
}

MethodInfo fluxion_info() {
  MethodInfo info;
  info.name = "fluxion";
  info.summary = "per KV head a block size and per query head a budget, attended by CPU or device, whichever is free";
  info.description =
      "After the prefill, everything between the sinks and the window moves to host memory, with Quest digests of 16, "
      "32, 64 and 128 tokens. Each step the device attends to sinks, window and new tokens and says of every head "
      "whether that is enough (streaming) or which share of the host's tokens it needs; the CPU then picks the block "
      "size that reads least per KV head, and CPU and device pull the KV heads that need something, the largest first: "
      "the CPU attends in host memory, the device reads digests and chosen blocks over the link. Budget: bgt + slope x "
      "log2(block) of the host-resident tokens per query head; sinks, window and new tokens are on top. New tokens: "
      "stay on the device, or with spill go to host memory in blocks of 128, the oldest behind the host's first.";
  info.source = "Fluxion (papers: Fluxion, sections 5 and 6)";
  info.budget = "share-of-host-tokens";
  constexpr auto kShare = BudgetOption::Scale::share, kError = BudgetOption::Scale::error;
  info.budget_options = {{.option = "bgt", .scale = kShare, .turns_device = false, .where = "heads", .is = "fixed"},
                         {.option = "tau", .scale = kError, .turns_device = false, .where = "heads", .is = "oracle"},
                         {.option = "tau",
                          .scale = BudgetOption::Scale::listed,
                          .turns_device = false,
                          .where = "heads",
                          .is = "published",
                          .values = {"0.2", "0.15", "0.1", "0.05", "0.02"}},
                         {.option = "window", .step = kPageTokens, .turns_touched = false}};
  info.for_embedded_model = "heads=embedded";
  info.for_simulated_shapes = "heads=published";
  FluxionOptions defaults;
  info.options = defaults.bind().describe();
  info.remarks = {
      {"heads", "fixed",
       "fluxion with heads=fixed has no predictor: every head gets the same share of the host's tokens, bgt and slope. "
       "docs/train_a_predictor.md says how to train one for a model."},
      {"heads", "oracle",
       "fluxion with heads=oracle measures what every head needs, in every step, by brute force over all KV, which is "
       "not counted as cost: what a perfect predictor would say, not a method to use. Its line=measured, the paper's, "
       "leaves some heads short; line=cover does not."},
      {"heads", "published",
       "fluxion with heads=published draws what heads need from a spread that is fitted to times of the paper's "
       "models: "
       "it knows nothing of this model, and its accuracy here says nothing of the method."}};
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> { return make_fluxion(spec, nullptr); };
  return info;
}

}  // namespace tandem
