#include "eval/perplexity/perplexity.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/model/model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::eval {
namespace {

class DecodePerplexity : public ::testing::Test {
 protected:
  Perplexity run(std::vector<std::string> methods, std::uint32_t batch, unsigned threads = 2) const {
    const auto device = tandem::testing::sim();
    ThreadPool pool(threads);
    PerplexityOptions options;
    options.methods = std::move(methods);
    options.context = 160;
    options.scored = 24;
    options.windows = 3;
    options.batch = batch;
    return decode_perplexity(options, model_, *device, pool, invented_prose(7, 6000), "prose");
  }
  Model model_ = load_model("embedded");
};

TEST_F(DecodePerplexity, FullAttentionAgreesWithThePrefillPath) {
  const Perplexity result = run({"full"}, 2);
  const std::string text = invented_prose(7, 6000);
  const auto device = tandem::testing::sim();
  ThreadPool pool(2);
  Engine engine(model_, *device, pool, {});
  const auto bos = model_.tokenizer->encode("", true), all = model_.tokenizer->encode(text, false);
  for (std::size_t w = 0; w < 3; ++w) {
    auto tokens = bos;
    const std::size_t length = 184 - bos.size();
    tokens.insert(tokens.end(), all.begin() + std::ptrdiff_t(w * length),
                  all.begin() + std::ptrdiff_t((w + 1) * length));
    const std::vector<float> logits = engine.prefill_logits(tokens);
    double nll = 0;
    for (std::size_t t = 160; t < 184; ++t) {
      const float* row = logits.data() + (t - 1) * model_.config.vocab;
      double sum = 0;
      for (std::uint32_t v = 0; v < model_.config.vocab; ++v) sum += std::exp(double{row[v]});
      nll -= double{row[tokens[t]]} - std::log(sum);
    }
    EXPECT_NEAR(result.methods[0].nll[w], nll / 24, 1e-4);
  }
}

TEST_F(DecodePerplexity, LosslessSettingsEqualFullAndStarvedOnesDoNot) {
  const Perplexity result = run(
      {"full", "hybrid-fixed:budget=1,window=32,sinks=16", "hgca:beta=0,device_kv=64", "streaming:sinks=1,window=4"},
      3);
  for (std::size_t w = 0; w < 3; ++w) {
    EXPECT_NEAR(result.methods[1].nll[w], result.methods[0].nll[w], 1e-4);
    EXPECT_NEAR(result.methods[2].nll[w], result.methods[0].nll[w], 1e-4);
    EXPECT_GT(std::abs(result.methods[3].nll[w] - result.methods[0].nll[w]), 1e-2);
  }
  EXPECT_NEAR(result.methods[0].attended[0], 160 + 11.5, 1e-9);
  EXPECT_EQ(result.methods[3].attended[0], 5);
  EXPECT_GT(result.methods[2].attended[1], 0);
}

TEST_F(DecodePerplexity, RepeatsByteByByteWhateverTheBatchAndTheThreads) {
  const auto losses = [](const Perplexity& p) {
    std::vector<std::vector<double>> out;
    for (const MethodLoss& m : p.methods) out.push_back(m.nll);
    return out;
  };
  const Perplexity first = run({"full", "hgca:device_kv=64"}, 2, 1);
  EXPECT_EQ(perplexity_json(first), perplexity_json(run({"full", "hgca:device_kv=64"}, 2, 3)));
  EXPECT_EQ(losses(first), losses(run({"full", "hgca:device_kv=64"}, 1)));
  EXPECT_THAT(perplexity_text(first), ::testing::HasSubstr("simulated for"));
}

TEST_F(DecodePerplexity, MistakesAreSentences) {
  const auto device = tandem::testing::sim();
  ThreadPool pool(1);
  PerplexityOptions options;
  options.methods = {"full"};
  const auto error = [&] {
    try {
      decode_perplexity(options, model_, *device, pool, "short", "short.txt");
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(error(), ::testing::AllOf(::testing::HasSubstr("short.txt has"), ::testing::HasSubstr("need")));
  options.context = 1u << 20;
  EXPECT_THAT(error(), ::testing::HasSubstr("max_position_embeddings"));
}

}  // namespace
}  // namespace tandem::eval
