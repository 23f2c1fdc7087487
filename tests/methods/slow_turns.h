// Two turns of a session beside a slow model of the method's rules.
#pragma once

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {

/// Decodes `steps` tokens behind a prompt, and as many behind a further prompt of 21 tokens. Logits must be the slow
/// model's. `Slow` has prefill(token), place() at a prompt's end, and step(token). Calls after_step() after each step
/// and after_turn(result) after each turn.
template <class Slow, class AfterStep, class AfterTurn>
void expect_slow_turns(Bench& bench, Slow& slow, const std::string& spec, std::uint32_t prompt_tokens,
                       std::uint32_t steps, const AfterStep& after_step, const AfterTurn& after_turn) {
  const auto method = make_method(spec);
  const std::vector<std::int32_t> prompt = random_prompt(prompt_tokens, prompt_tokens);
  const auto prefix = bench.engine.prefill(prompt);
  const DecodeRequest request{prefix.get(), steps};
  const auto session = bench.engine.open_session(*method, {&request, 1});
  bench.engine.release(*prefix);
  for (std::size_t t = 0; t + 1 < prompt.size(); ++t) slow.prefill(prompt[t]);
  slow.place();
  std::int32_t next = prompt.back();
  for (const std::uint32_t turn : {0u, 21u}) {
    if (turn > 0) {
      const std::vector<std::int32_t> more = random_prompt(turn, turn);
      session->append(0, more, steps);
      slow.prefill(next);
      for (std::size_t t = 0; t + 1 < more.size(); ++t) slow.prefill(more[t]);
      slow.place();
      next = more.back();
    }
    std::vector<std::vector<float>> logits;
    const DecodeResult result = session->decode({.logits = &logits});
    for (std::size_t n = 0; n < logits.size(); ++n) {
      const SlowModel::Vector expected = slow.step(next);
      after_step();
      double worst = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        worst = std::max(worst, std::abs(expected[i] - double(logits[n][i])));
      ASSERT_LT(worst, 3e-4) << "step " << n << " after a turn of " << turn;
      next = result.sequences[0].tokens[n];
    }
    EXPECT_EQ(result.sequences[0].tokens.size(), steps);
    after_turn(result);
  }
}

}  // namespace tandem::testing
