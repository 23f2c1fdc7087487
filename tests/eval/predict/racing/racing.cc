// A method with a race: it attends to what it fetches without waiting for it.
#include "racing.h"

#include <any>
#include <memory>

namespace tandem {
namespace {

struct RacingOptions {
  std::string waits = "no";
  OptionSet bind() {
    OptionSet set("racing");
    set.choice("waits", waits, {"no", "yes"}, "whether attention waits for what is fetched");
    return set;
  }
};

struct RacingState {
  Range host;
  StagingRef staging;
};

class Racing : public Method {
 public:
  explicit Racing(const RacingOptions& options) : options_(options) {}

  std::string spelled_out() const override {
    RacingOptions copy = options_;
    return copy.bind().spelled_out();
  }
  Needs needs(const ModelShape&) const override { return {}; }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    const Range host{0, sequence.tokens / kPageTokens * kPageTokens};
    ops.move_to_host(sequence, host);
    sequence.method = RacingState{host, ops.make_staging(sequence, host.end, 1)};
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    AttendPlan plan;
    std::vector<FetchRequest> requests;
    for (const SequenceState* sequence : context.batch) {
      const auto& state = std::any_cast<const RacingState&>(sequence->method);
      requests.push_back({sequence, state.staging, Ranges{state.host}});
      plan.items.push_back({.row = sequence->row, .kv = Ranges{{state.host.end, sequence->tokens}}});
    }
    std::vector<KvSource> fetched = ops.fetch(context.layer, requests);
    for (std::size_t i = 0; i < fetched.size(); ++i) {
      if (options_.waits == "no") std::get<Packed>(fetched[i]).ready = Event{};
      plan.items.push_back({.row = requests[i].sequence->row, .kv = fetched[i]});
    }
    return plan;
  }

 private:
  RacingOptions options_;
};

}  // namespace

MethodInfo racing_info() {
  MethodInfo info;
  info.name = "racing";
  info.summary = "attends to what it fetches without waiting for it";
  info.description = "For tests.";
  info.source = "tests/eval/predict/racing";
  info.options = RacingOptions{}.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    RacingOptions options;
    options.bind().parse(spec);
    return std::make_unique<Racing>(options);
  };
  return info;
}

}  // namespace tandem
