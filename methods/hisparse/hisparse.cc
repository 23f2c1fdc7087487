#include "methods/hisparse/hisparse.h"

#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/mechanisms/residency/residency.h"
#include "methods/common_options.h"

namespace tandem {
namespace {

struct HiSparseOptions {
  std::uint32_t budget = 2048, buffer = 0, block = 16;
  std::string start = "empty", scope = "kv_head", digest = "bounds";
  OptionSet bind() {
    OptionSet set("hisparse");
    set.tokens("budget", budget,
               "tokens that a list attends, whole blocks, rounded up: the newest, partly filled block and the best "
               "others");
    set.tokens("buffer", buffer,
               "tokens of each list's device buffer, whole blocks, rounded up, at least the budget; 0: twice the "
               "budget");
    set.number_of("block", block, {16, 32, 64, 128}, "tokens that are chosen together");
    set.choice("start", start, {"empty", "prefix"},
               "what the buffer holds after a prompt that is longer: nothing, as where another machine prefills, or "
               "the first tokens");
    set.choice("scope", scope, {"kv_head", "layer"}, "lists: each KV head chooses, or all heads of a layer together");
    add_digest_option(set, digest);
    return set;
  }
  std::uint32_t blocks(std::uint32_t tokens) const { return (tokens + block - 1) / block; }
  std::uint32_t buffer_tokens() const { return buffer == 0 ? 2 * budget : buffer; }
};

/// HiSparse (SGLang, vLLM): all KV in host memory, and per list a device buffer of more blocks than a step attends,
/// which keeps the most recently chosen ones. A step waits for what it misses there.
class HiSparse : public Method {
 public:
  explicit HiSparse(HiSparseOptions options) : options_(std::move(options)) {}

  std::string spelled_out() const override {
    HiSparseOptions copy = options_;
    return copy.bind().spelled_out();
  }
  Needs needs(const ModelShape&) const override { return {}; }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    const RecentBlocks recent{.slots = options_.blocks(options_.buffer_tokens()), .filled = options_.start == "prefix"};
    sequence.method = ops.use<Residency>().keep(sequence, {.block = options_.block,
                                                           .slots = options_.blocks(options_.budget) - 1,
                                                           .per_kv_head = options_.scope == "kv_head",
                                                           .digests = digest_kind_of(options_.digest),
                                                           .reduce = Reduce::max,
                                                           .recent = recent});
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    auto& residency = ops.use<Residency>();
    std::vector<ResidentRef> sets;
    sets.reserve(context.batch.size());
    for (const SequenceState* sequence : context.batch) sets.push_back(blocks_of(*sequence));
    const SplitRef split = residency.split(context, ops.layer_query(context), sets);
    const Event copied = residency.recall(context, split, split.rows);
    AttendPlan plan;
    for (const SequenceState* sequence : context.batch) {
      const std::uint32_t newest = (sequence->tokens - 1) / options_.block * options_.block;
      plan.items.push_back({.row = sequence->row, .kv = Ranges{{newest, sequence->tokens}}});
      if (newest == 0) continue;
      Packed chosen = residency.kv(blocks_of(*sequence), context.layer, true);
      chosen.ready = copied.valid() ? copied : split.ready;
      plan.items.push_back({.row = sequence->row, .kv = std::move(chosen)});
    }
    return plan;
  }

  void after_layer(const LayerContext& context, Ops& ops) override {
    for (SequenceState* sequence : context.batch)
      if (sequence->tokens % options_.block == 0)
        ops.use<Residency>().block_filled(*sequence, blocks_of(*sequence), context.layer);
  }

  void appended(SequenceState& sequence, Range, Ops& ops) override {
    auto& residency = ops.use<Residency>();
    residency.renew(sequence, blocks_of(sequence), residency.get(blocks_of(sequence)).slots);
  }

 private:
  static ResidentRef blocks_of(const SequenceState& sequence) {
    return std::any_cast<const ResidentRef&>(sequence.method);
  }

  HiSparseOptions options_;
};

void check(const HiSparseOptions& options) {
  if (options.budget <= options.block)
    throw_input_error(
        "Option 'budget' of method 'hisparse' is {} tokens: the newest block and one that is chosen, of {} tokens "
        "each, "
        "need {}.",
        options.budget, options.block, options.block + 1);
  if (options.buffer_tokens() < options.budget)
    throw_input_error(
        "Option 'buffer' of method 'hisparse' is {} tokens, fewer than the {} that a step attends ('budget').",
        options.buffer, options.budget);
}

}  // namespace

MethodInfo hisparse_info() {
  MethodInfo info;
  info.name = "hisparse";
  info.summary = "all KV in host memory; a device buffer keeps recently chosen blocks, and misses are waited for";
  info.description =
      "All filled blocks are in host memory. On the device are their digests (per channel min and max of a block's "
      "keys, "
      "or with digest=mean their mean), the newest, partly filled block and, per list, a buffer of `buffer` tokens. A "
      "step chooses by its true query. What it chose and the buffer does not hold is copied there before the "
      "attention, "
      "in place of the blocks that were chosen longest ago. A context that fits in the buffer is there whole. Budget: "
      "tokens per list and step, the newest block included. New tokens: on the device until their block is full; then "
      "in host memory, and in the buffer while it has unused slots. A new prompt leaves buffer and order as they are. "
      "SGLang's choice of single tokens by a model's own indexer, the attention of hits during the copy, and vLLM's "
      "spilling are left out.";
  info.source = "HiSparse of SGLang (blog of 2026-04-10; pull requests 31446, 33075) and vLLM (53781)";
  info.budget = "tokens-per-list";
  info.budget_options = {{.option = "budget", .step = kPageTokens, .least = 2 * kPageTokens}};
  info.at_short_contexts = "budget=512";
  HiSparseOptions defaults;
  info.options = defaults.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    HiSparseOptions options;
    options.bind().parse(spec);
    check(options);
    return std::make_unique<HiSparse>(options);
  };
  return info;
}

}  // namespace tandem
