// Conversations: what is computed in a turn, and that it is what prefilling the whole conversation anew gives.
#include "engine/runtime/conversation.h"

#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens behind(Tokens tokens, const Tokens& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

const Tokens& said_by(const Conversation::Reply& reply) {
  return reply.result.sequences[0].tokens;
}

TEST(Conversation, TurnsThatGoOnComputeOnlyTheirOwnTokens) {
  for (const char* spec :
       {"full", "hgca:beta=0,device_kv=64,block=16", "hgca:device_kv=64,block=16", "streaming", "hybrid-fixed", "quest",
        "gpu-fetch", "h2o", "full-offload", "full-host", "infinigen", "infinigen:dense_layers=1",
        "scoutattention:budget=96,block=16,sinks=16,recall=2", "scoutattention"}) {
    Bench bench(tiny_model_for(spec)), anew(tiny_model_for(spec));
    const auto method = make_method(spec), full = make_method("full");
    const bool lossless = method->needs(bench.engine.shape()).lossless;
    Conversation conversation(bench.engine, *method);
    Tokens tokens = random_prompt(150, 5);
    for (std::uint32_t turn = 0; turn < 3; ++turn) {
      const Conversation::Reply reply = conversation.reply(tokens, 8);
      EXPECT_EQ(said_by(reply).size(), 8u);
      // After the first turn: the last reply's last token, which was never taken in, and the turn without its last.
      EXPECT_EQ(reply.prefilled, turn == 0 ? 149u : 20u + turn) << spec;
      EXPECT_GT(reply.prefill_ns, 0);
      if (lossless) {
        const DecodeResult expected = anew.decode(*full, {tokens}, 8);
        EXPECT_EQ(said_by(reply), expected.sequences[0].tokens) << spec << ", turn " << turn;
      }
      tokens = behind(behind(tokens, said_by(reply)), random_prompt(21 + turn, 7 + turn));
    }
  }
}

TEST(Conversation, AStopTokenIsPartOfWhatWasSaid) {
  const Tokens first = random_prompt(60, 2);
  Bench probe(tiny_model());
  const auto full = make_method("full");
  const Tokens unstopped = probe.decode(*full, {first}, 6).sequences[0].tokens;
  const std::int32_t stop = unstopped[3];
  Model model = tiny_model();
  model.config.stop_tokens = {95, stop};
  Bench bench(std::move(model));
  Conversation conversation(bench.engine, *full);
  const Conversation::Reply reply = conversation.reply(first, 6);
  ASSERT_TRUE(reply.result.sequences[0].stopped);
  EXPECT_EQ(reply.result.sequences[0].stop_token, stop);
  const Tokens next = behind(behind(behind(first, said_by(reply)), {stop}), random_prompt(9, 3));
  const Conversation::Reply second = conversation.reply(next, 6);
  EXPECT_EQ(second.prefilled, 9u);
  EXPECT_EQ(said_by(second), bench.decode(*full, {next}, 6).sequences[0].tokens);
}

TEST(Conversation, ARewrittenOneIsPrefilledAnew) {
  Bench bench(tiny_model());
  const auto full = make_method("full");
  {
    Conversation conversation(bench.engine, *full);
    Tokens tokens = random_prompt(60, 2);
    conversation.reply(tokens, 5);
    const Tokens without_the_reply = behind(tokens, random_prompt(30, 4));  // as a format that drops reasoning does
    const Conversation::Reply reply = conversation.reply(without_the_reply, 5);
    EXPECT_EQ(reply.prefilled, 89u);
    EXPECT_EQ(said_by(reply), bench.decode(*full, {without_the_reply}, 5).sequences[0].tokens);
    const Conversation::Reply same = conversation.reply(without_the_reply, 5);  // nothing new: also from the start
    EXPECT_EQ(same.prefilled, 89u);
    EXPECT_EQ(said_by(same), said_by(reply));
  }
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), 0u);
}

TEST(Conversation, GoesOnAfterAnError) {
  Bench bench(tiny_model());
  const auto method = make_method("hgca:device_kv=64,block=16");
  Conversation conversation(bench.engine, *method);
  const Tokens tokens = random_prompt(100, 2);
  const Tokens reply = said_by(conversation.reply(tokens, 5));
  EXPECT_THROW(conversation.reply(behind(behind(tokens, reply), {4000}), 5), InputError);
  DecodeOptions interrupted;
  interrupted.on_token = [](std::size_t, std::int32_t) { throw_input_error("The reader went away."); };
  EXPECT_THROW(conversation.reply(tokens, 5, interrupted), InputError);
  EXPECT_EQ(said_by(conversation.reply(tokens, 5)), reply);
}

}  // namespace
}  // namespace tandem::testing
