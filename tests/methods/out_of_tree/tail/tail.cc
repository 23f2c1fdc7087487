#include "tail.h"

#include <algorithm>
#include <memory>

namespace tandem {
namespace {

struct TailOptions {
  std::uint32_t keep = 512;
  OptionSet bind() {
    OptionSet set("tail");
    set.tokens("keep", keep, "most recent tokens that are attended, the step's own included");
    return set;
  }
};

class Tail : public Method {
 public:
  explicit Tail(const TailOptions& options) : options_(options) {}

  std::string spelled_out() const override {
    TailOptions copy = options_;
    return copy.bind().spelled_out();
  }
  Needs needs(const ModelShape&) const override { return {}; }

  AttendPlan plan_attend(const LayerContext& context, Ops&) override {
    AttendPlan plan;
    for (const SequenceState* sequence : context.batch) {
      const std::uint32_t begin = sequence->tokens - std::min(std::max(options_.keep, 1u), sequence->tokens);
      plan.items.push_back({.row = sequence->row, .kv = Ranges{{begin, sequence->tokens}}});
    }
    return plan;
  }

 private:
  TailOptions options_;
};

}  // namespace

MethodInfo tail_info() {
  MethodInfo info;
  info.name = "tail";
  info.summary = "the most recent tokens only";
  info.description =
      "Attends the last `keep` tokens on the device; all KV stays there. "
      "Budget: keep tokens, whatever the context. New tokens: appended on the device.";
  info.source = "docs/add_a_method.md";
  info.budget = "recent-tokens";
  info.budget_options = {{.option = "keep"}};
  info.options = TailOptions{}.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    TailOptions options;
    options.bind().parse(spec);
    return std::make_unique<Tail>(options);
  };
  return info;
}

}  // namespace tandem
