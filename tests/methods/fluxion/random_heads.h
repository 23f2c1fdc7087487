// Fluxion with heads whose needs look random, on prompts of mixed lengths.
#pragma once

#include "methods/fluxion/fluxion.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {

using Logits = std::vector<std::vector<float>>;

inline std::uint32_t mix(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

/// Properties that change with layer, head and step; a third of the heads stream.
inline HeadProperties random_properties(std::uint32_t layer, std::uint32_t head, std::uint32_t tokens) {
  const std::uint32_t r = mix(mix(layer * 64 + head) + tokens);
  return {static_cast<float>(r % 64) / 256, (static_cast<float>(r / 64 % 16) - 4) / 256, r / 4096 % 3 == 0};
}

class RandomHeads : public HeadSource {
 public:
  Cost cost(const ModelShape&, std::uint32_t) const override { return {}; }
  void properties(const ModelShape& shape, const HeadInputs& in, HeadProperties* out) const override {
    for (std::uint32_t h = 0; h < shape.q_heads; ++h) out[h] = random_properties(in.view.layer, h, in.view.tokens);
  }
  void launch(LaunchContext& ctx, const ModelShape& shape, std::span<const HeadInputs> inputs,
              float* out) const override {
    launch_known(ctx, *this, shape, inputs, out);
  }
};

inline std::unique_ptr<Method> with_random_heads(const std::string& spec) {
  return make_fluxion(parse_method_spec(spec), std::make_shared<RandomHeads>());
}

inline const std::vector<std::vector<std::int32_t>> kMixed = {random_prompt(1500, 1), random_prompt(400, 2),
                                                              random_prompt(30, 3), random_prompt(900, 4)};

}  // namespace tandem::testing
