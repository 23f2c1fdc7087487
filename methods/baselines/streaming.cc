#include <algorithm>

#include "methods/baselines/baselines.h"

namespace tandem {
namespace {

struct StreamingOptions {
  std::uint32_t sinks = 64, window = 256;
  OptionSet bind() {
    OptionSet set("streaming");
    set.tokens("sinks", sinks, "first tokens of the sequence that are kept");
    set.tokens("window", window, "most recent tokens that are attended, the step's own included");
    return set;
  }
};

/// Sinks and a sliding window; everything else is given up for good. Keys keep the positions they were computed at.
class Streaming : public Method {
 public:
  explicit Streaming(const StreamingOptions& options) : options_(options) {}

  std::string spelled_out() const override {
    StreamingOptions copy = options_;
    return copy.bind().spelled_out();
  }
  Needs needs(const ModelShape&) const override { return {}; }

  void context_ready(SequenceState& sequence, Ops& ops) override { drop_left_behind(sequence, ops); }

  AttendPlan plan_attend(const LayerContext& context, Ops&) override {
    AttendPlan plan;
    for (const SequenceState* sequence : context.batch) {
      const std::uint32_t sinks = std::min(options_.sinks, sequence->tokens);
      const std::uint32_t window = window_begin(sequence->tokens);
      plan.items.push_back({.row = sequence->row, .kv = Ranges::around({sinks, window}, sequence->tokens)});
    }
    return plan;
  }

  void after_step(const StepContext& context, Ops& ops) override {
    for (SequenceState* sequence : context.batch) drop_left_behind(*sequence, ops);
  }

  AppendRequest before_append(SequenceState& sequence, Range, Ops& ops) override {
    drop_left_behind(sequence, ops);  // what the last step left behind: after_step is not called for a sequence's last
    return {};
  }
  void appended(SequenceState& sequence, Range, Ops& ops) override { drop_left_behind(sequence, ops); }

 private:
  std::uint32_t window_begin(std::uint32_t tokens) const {
    return tokens > options_.window ? tokens - options_.window : 0;
  }

  void drop_left_behind(SequenceState& sequence, Ops& ops) const {
    // The next step adds a token, so that its window begins one later.
    const std::uint32_t end = window_begin(sequence.tokens + 1);
    if (end > options_.sinks) ops.drop(sequence, {options_.sinks, end});
  }

  StreamingOptions options_;
};

}  // namespace

MethodInfo streaming_info() {
  MethodInfo info;
  info.name = "streaming";
  info.summary = "attention sinks and a sliding window only";
  info.description =
      "Keeps the first `sinks` tokens and the `window` most recent ones on the device, and gives up the rest for good. "
      "Budget: sinks + window tokens, whatever the context. New tokens: appended on the device; a page that the window "
      "has "
      "left is freed. Keys keep their original positions. The defaults are Fluxion's sinks and window; StreamingLLM's "
      "own are 4 sinks and a window of 1K to 2K tokens.";
  info.source = "Xiao et al. 2024, StreamingLLM (arXiv 2309.17453)";
  info.budget = "sinks-and-window";
  info.budget_options = {{.option = "window", .step = 4}};
  StreamingOptions defaults;
  info.options = defaults.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    StreamingOptions options;
    options.bind().parse(spec);
    if (options.window == 0) options.window = 1;  // a token always attends itself
    return std::make_unique<Streaming>(options);
  };
  return info;
}

}  // namespace tandem
