#include <vector>

#include "methods/baselines/baselines.h"

namespace tandem {
namespace {

/// All KV in host memory and all attention on the CPU; the device does the rest of the layer.
class FullHost : public Method {
 public:
  std::string spelled_out() const override { return "full-host"; }
  Needs needs(const ModelShape&) const override { return {.lossless = true}; }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    const std::uint32_t whole = sequence.tokens / kPageTokens * kPageTokens;
    if (whole > 0) ops.move_to_host(sequence, {0, whole});
    if (whole < sequence.tokens) copy(sequence, {whole, sequence.tokens}, ops);
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    AttendPlan plan;
    std::vector<CopyRequest> newest;
    newest.reserve(context.batch.size());
    for (const SequenceState* sequence : context.batch) {
      newest.push_back({sequence, {sequence->tokens - 1, sequence->tokens}});
      plan.items.push_back({.row = sequence->row, .kv = Ranges({{0, sequence->tokens}}, Side::host)});
    }
    ops.copy_to_host(context.layer, newest);
    return plan;
  }

  // Not after the step: a sequence that ends with it is not seen there.
  void after_layer(const LayerContext& context, Ops& ops) override {
    if (context.layer + 1 < context.shape.layers) return;
    for (SequenceState* sequence : context.batch) {
      if (sequence->tokens % kPageTokens == 0) ops.drop(*sequence, {sequence->tokens - kPageTokens, sequence->tokens});
    }
  }

  void appended(SequenceState& sequence, Range tokens, Ops& ops) override {
    if (tokens.begin < tokens.end) copy(sequence, tokens, ops);
    ops.drop(sequence, {tokens.begin / kPageTokens * kPageTokens, sequence.tokens});
  }

 private:
  static void copy(const SequenceState& sequence, Range tokens, Ops& ops) {
    const CopyRequest request{&sequence, tokens};
    for (std::uint32_t layer = 0; layer < ops.shape().layers; ++layer) ops.copy_to_host(layer, {&request, 1});
  }
};

}  // namespace

MethodInfo full_host_info() {
  MethodInfo info;
  info.name = "full-host";
  info.summary = "all KV in host memory, all attention on the CPU";
  info.description =
      "After the prefill all KV moves to host memory. Each step sends the query and the new token's K and V to the "
      "host, whose CPU attends to everything; only the output comes back. Lossless. New tokens: written to host memory "
      "at once; the device keeps the page that is being filled.";
  info.source = "FlexGen's CPU attention (arXiv 2303.06865), with exact attention";
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    OptionSet("full-host").parse(spec);
    return std::make_unique<FullHost>();
  };
  return info;
}

}  // namespace tandem
