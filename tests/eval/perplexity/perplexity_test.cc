#include "eval/perplexity/perplexity.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/model/model.h"
#include "eval/run/run_dataset.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

constexpr std::uint32_t kTokens = 160, kScored = 24, kWindows = 3;

struct Asked : PerplexityOptions {
  std::vector<std::string> methods;
  std::uint32_t batch = 1;
  EngineOptions engine = {};
  std::function<void(std::uint64_t, std::uint64_t)> progress = {};
};

class DecodePerplexity : public ::testing::Test {
 protected:
  static Asked options(std::vector<std::string> methods, std::uint32_t batch = 2) {
    Asked o;
    o.methods = std::move(methods);
    o.text = invented_prose(7, 6000);
    o.text_file = "prose";
    o.context = kTokens;
    o.scored = kScored;
    o.windows = kWindows;
    o.batch = batch;
    return o;
  }
  Manifest manifest(const Asked& o) const {
    Manifest m = example_manifest();
    m.tokenizer_hash = model_.tokenizer->hash();
    m.clock = tandem::testing::sim()->clock_name();
    Perplexity(o, model_).fill_manifest(o.methods, m);
    return m;
  }
  void fill(const Asked& o, RunFolder& folder, unsigned threads = 2) const {
    const auto device = tandem::testing::sim();
    ThreadPool pool(threads);
    DatasetRunOptions run;
    run.methods = o.methods;
    run.batch = o.batch;
    run.engine = o.engine;
    run.progress = o.progress;
    run_dataset(Perplexity(o, model_), run, model_, *device, pool, folder);
  }
  /// A whole run in the folder `name`.
  PerplexitySummary run(const char* name, const Asked& o, unsigned threads = 2) {
    RunFolder folder = RunFolder::create(root_ / name, manifest(o));
    fill(o, folder, threads);
    return summarise_perplexity(folder);
  }
  std::string bytes(const char* name, const char* file) const { return read_bytes((root_ / name) / file); }

  TemporaryFolder root_;
  Model model_ = load_model("embedded");
};

TEST_F(DecodePerplexity, FullAttentionAgreesWithThePrefillPath) {
  const PerplexitySummary result = run("a", options({"full"}));
  const std::vector<WindowLoss> windows = RunFolder::open(root_ / "a").windows();
  ASSERT_EQ(windows.size(), kWindows);
  const auto device = tandem::testing::sim();
  ThreadPool pool(2);
  Engine engine(model_, *device, pool, {});
  const auto bos = model_.tokenizer->encode("", true), all = model_.tokenizer->encode(invented_prose(7, 6000), false);
  for (std::size_t w = 0; w < kWindows; ++w) {
    auto tokens = bos;
    const std::size_t length = kTokens + kScored - bos.size();
    EXPECT_EQ(windows[w].first_token, w * length);
    tokens.insert(tokens.end(), all.begin() + std::ptrdiff_t(w * length),
                  all.begin() + std::ptrdiff_t((w + 1) * length));
    const std::vector<float> logits = engine.prefill_logits(tokens);
    std::vector<double> by_position(kPositionStretches);
    for (std::size_t t = kTokens; t < kTokens + kScored; ++t) {
      const float* row = logits.data() + (t - 1) * model_.config.vocab;
      double sum = 0;
      for (std::uint32_t v = 0; v < model_.config.vocab; ++v) sum += std::exp(double{row[v]});
      by_position[(t - kTokens) / 3] += (std::log(sum) - double{row[tokens[t]]}) / 3;
    }
    EXPECT_NEAR(result.methods[0].nll[w], mean(by_position), 1e-5);
    EXPECT_EQ(windows[w].scored, kScored);
    ASSERT_EQ(windows[w].nll_by_position.size(), kPositionStretches);
    for (std::size_t b = 0; b < kPositionStretches; ++b)
      EXPECT_NEAR(windows[w].nll_by_position[b], by_position[b], 1e-5) << b;
  }
  for (std::size_t b = 0; b < kPositionStretches; ++b) {
    const double all_windows =
        (windows[0].nll_by_position[b] + windows[1].nll_by_position[b] + windows[2].nll_by_position[b]) / 3;
    EXPECT_NEAR(result.methods[0].nll_by_position[b], all_windows, 1e-12);
  }
}

TEST_F(DecodePerplexity, StretchesCoverUnevenAndFewTokens) {
  for (const std::uint32_t scored : {1u, 5u, 11u}) {
    Asked o = options({"full"}, 1);
    o.scored = scored;
    o.windows = 1;
    const std::string name = "s" + std::to_string(scored);
    run(name.c_str(), o);
    const WindowLoss window = RunFolder::open(root_ / name.c_str()).windows().front();
    const std::size_t stretches = std::min(scored, kPositionStretches);
    ASSERT_EQ(window.nll_by_position.size(), stretches);
    double sum = 0;
    for (std::size_t b = 0; b < stretches; ++b) {
      const std::size_t tokens = (b + 1) * scored / stretches - b * scored / stretches;
      sum += window.nll_by_position[b] * double(tokens);
    }
    EXPECT_NEAR(sum / scored, window.nll, 1e-12);
  }
}

TEST_F(DecodePerplexity, LosslessSettingsEqualFullAndStarvedOnesDoNot) {
  const PerplexitySummary result = run("a", options({"full", "hybrid-fixed:budget=1,window=32,sinks=16",
                                                     "hgca:beta=0,device_kv=64", "streaming:sinks=1,window=4"},
                                                    3));
  ASSERT_EQ(result.methods.size(), 4u);
  EXPECT_TRUE(result.run.complete);
  for (std::size_t w = 0; w < kWindows; ++w) {
    EXPECT_NEAR(result.methods[1].nll[w], result.methods[0].nll[w], 1e-4);
    EXPECT_NEAR(result.methods[2].nll[w], result.methods[0].nll[w], 1e-4);
    EXPECT_GT(std::abs(result.methods[3].nll[w] - result.methods[0].nll[w]), 1e-2);
  }
  EXPECT_EQ(result.methods[0].difference.n, 0u);
  EXPECT_EQ(result.methods[3].difference.n, kWindows);
  EXPECT_NEAR(result.methods[3].difference.value, mean(result.methods[3].nll) - mean(result.methods[0].nll), 1e-12);
  EXPECT_NEAR(result.run.methods[0].latency->attended_device, kTokens + (kScored - 1) / 2.0, 1e-9);
  EXPECT_EQ(result.run.methods[3].latency->attended_device, 5);
  EXPECT_GT(result.run.methods[2].latency->attended_host, 0);
}

TEST_F(DecodePerplexity, RepeatsByteByByteWhateverTheBatchAndTheThreads) {
  run("a", options({"full", "hgca:device_kv=64"}, 2), 1);
  run("b", options({"full", "hgca:device_kv=64"}, 2), 3);
  for (const char* file : {"windows.jsonl", "timings.jsonl"}) EXPECT_EQ(bytes("a", file), bytes("b", file));
  run("c", options({"full", "hgca:device_kv=64"}, 1));
  const auto sorted = [&](const char* name) {
    auto windows = RunFolder::open(root_ / name).windows();
    std::sort(windows.begin(), windows.end(),
              [](const WindowLoss& a, const WindowLoss& b) { return a.key() < b.key(); });
    return windows;
  };
  EXPECT_EQ(sorted("a"), sorted("c"));
}

TEST_F(DecodePerplexity, AStoppedOrDamagedRunIsResumedToTheSameBytes) {
  Asked o = options({"full", "streaming:sinks=1,window=4"}, 2);
  run("whole", o);
  int polls = 0;
  o.engine.interrupted = [&] { return ++polls > 40; };  // in the second batch
  std::size_t done = 0;
  {
    RunFolder folder = RunFolder::create(root_ / "a", manifest(o));
    EXPECT_THROW(fill(o, folder), Interrupted);
    done = folder.finished().size();
  }
  EXPECT_GT(done, 0u);
  EXPECT_LT(done, 6u);
  o.engine.interrupted = {};
  std::string text = bytes("a", "windows.jsonl");
  write_bytes((root_ / "a") / "windows.jsonl", text.replace(0, 20, std::string(20, '\0')) + "{\"benchm");
  RunFolder resumed = RunFolder::resume(root_ / "a", manifest(o));
  EXPECT_EQ(resumed.finished().size(), done - 1);
  ASSERT_EQ(resumed.repairs().size(), 1u);
  EXPECT_THAT(resumed.repairs()[0], AllOf(HasSubstr("windows.jsonl:1"), HasSubstr("windows.jsonl.damaged")));
  fill(o, resumed);
  for (const char* file : {"windows.jsonl", "timings.jsonl"}) EXPECT_EQ(bytes("a", file), bytes("whole", file));
}

// The time left is counted from there.
TEST_F(DecodePerplexity, ProgressBeginsWithAllThatWasThere) {
  Asked o = options({"full"}, 1);
  run("a", o);
  const std::string text = bytes("a", "windows.jsonl");
  write_bytes((root_ / "a") / "windows.jsonl", text.substr(0, text.rfind('\n', text.size() - 2) + 1));
  std::vector<std::uint64_t> counted;
  o.progress = [&](std::uint64_t done, std::uint64_t) { counted.push_back(done); };
  RunFolder resumed = RunFolder::resume(root_ / "a", manifest(o));
  fill(o, resumed);
  EXPECT_THAT(counted, ::testing::ElementsAre(2, 3));
}

TEST_F(DecodePerplexity, ReportsSayWhatTheyShow) {
  const PerplexitySummary three = run("three", options({"full", "streaming:sinks=1,window=4"}));
  const std::string text = perplexity_report(three, /*markdown=*/false);
  EXPECT_THAT(text, AllOf(HasSubstr("3 windows"), HasSubstr("complete\n"), HasSubstr("simulated for"),
                          HasSubstr("22 to 24"), HasSubstr("too narrow: take 10 or more"), HasSubstr("TPOT")));
  EXPECT_THAT(perplexity_report(three, /*markdown=*/true),
              AllOf(HasSubstr("# Perplexity of tiny"), HasSubstr("## Loss by position")));
  auto json = parse_json(to_json_text(three), "JSON");
  for (const char* field : {"command", "git_commit", "seed", "batch", "machine", "clock"})
    EXPECT_TRUE(json.contains(field)) << field;
  EXPECT_EQ(json["methods"][1]["nll_difference"]["n"], 3);
  EXPECT_EQ(json["methods"][1]["nll"]["interval"].size(), 2u);
  EXPECT_NEAR(json["methods"][0]["perplexity"], std::exp(mean(three.methods[0].nll)), 1e-9);
  EXPECT_GT(json["methods"][0]["latency"]["tpot_p90_ms"], 0);

  Asked one = options({"full", "streaming"});
  one.windows = 1;
  const PerplexitySummary single = run("one", one);
  EXPECT_THAT(perplexity_report(single, false),
              AllOf(HasSubstr("[-]"), HasSubstr("so there is no interval"), Not(HasSubstr("1 windows"))));
  json = parse_json(to_json_text(single), "JSON");
  EXPECT_TRUE(json["methods"][0]["nll"]["interval"].is_null());
  EXPECT_TRUE(json["methods"][1]["nll_difference"]["interval"].is_null());
}

TEST_F(DecodePerplexity, WithoutAWindowOfTheFirstMethodThereAreNoDifferences) {
  Manifest manifest = example_manifest();
  manifest.benchmark = kPerplexity;
  manifest.tasks = {"book.txt"};
  manifest.clock.clear();
  const auto report = [&](const char* name, const std::vector<const char*>& methods) {
    RunFolder folder = begun_run(root_ / name, manifest);
    for (const char* method : methods) folder.append(example_window(0, method));
    return perplexity_report(summarise_perplexity(folder), /*markdown=*/true);
  };
  const std::string text = report("second", {"hybrid:budget=0.2"});
  EXPECT_THAT(text, AllOf(HasSubstr("full, the run's first method, has no window yet: there are no differences to it."),
                          Not(HasSubstr("more than the first")), HasSubstr("\n\nMean nats of a token.\n"),
                          HasSubstr("NOT COMPLETE")));
  EXPECT_THAT(report("both", {"full", "hybrid:budget=0.2"}),
              AllOf(HasSubstr("more than the first"), Not(HasSubstr("has no window yet")),
                    HasSubstr("Mean nats of a token of full; of the others, how much more.")));
}

TEST_F(DecodePerplexity, WindowsAreTheTextsFirstIdsAndNoMoreOfItIsEncoded) {
  Asked o = options({"full"});
  const auto all = model_.tokenizer->encode(invented_prose(7, 600'000), false);
  const std::size_t length = kTokens + kScored - 1;
  o.windows = 600;
  o.text = invented_prose(7, 600'000);
  o.seed = 7;
  const Perplexity of_text(o, model_);
  o.text.reset();
  const Perplexity of_prose(o, model_);
  const auto window = [](const Perplexity& of, std::uint32_t index) {
    DatasetSample sample = of.sample("prose", kTokens, index);
    sample.prompt.insert(sample.prompt.end(), sample.forced.begin(), sample.forced.end());
    return sample.prompt;
  };
  for (const std::uint32_t index : {0u, 1u, 400u, 599u}) {
    const auto first = all.begin() + std::ptrdiff_t(index * length);
    const std::vector<std::int32_t> tokens = window(of_text, index);
    EXPECT_EQ(tokens[0], model_.tokenizer->bos());
    EXPECT_TRUE(std::equal(tokens.begin() + 1, tokens.end(), first, first + std::ptrdiff_t(length))) << index;
    EXPECT_EQ(window(of_prose, index), tokens) << index;
  }
  // Whether it is to stop is asked between parts, also of the prose.
  int polls = 0;
  o.interrupted = [&] { return ++polls > 1; };
  EXPECT_THROW(Perplexity(o, model_), Interrupted);
  o.text = invented_prose(7, 600'000);
  polls = 0;
  EXPECT_THROW(Perplexity(o, model_), Interrupted);
  o.windows = 1;
  polls = 0;
  const Perplexity one_part(o, model_);
  EXPECT_EQ(polls, 1) << "one part is enough";
}

TEST_F(DecodePerplexity, TheProtocolNamesTheProseWhateverTheWindows) {
  Asked o = options({"full"});
  const auto text_of = [&] {
    const std::string id = manifest(o).protocol_id;
    return id.substr(0, id.find("+tok:"));
  };
  const std::string file = text_of();
  o.text->push_back('.');
  EXPECT_NE(text_of(), file);
  o.text.reset();
  o.seed = 9;
  const std::string prose = text_of();
  EXPECT_THAT(prose, ::testing::MatchesRegex("perplexity/decode\\+text:invented-9-[0-9a-f]+"));
  o.windows = 100;
  EXPECT_EQ(text_of(), prose);
  o.seed = 10;
  EXPECT_NE(text_of(), prose);
}

TEST_F(DecodePerplexity, WhatIsTheSameInAllWindowsHasNoInterval) {
  const PerplexitySummary result = run("a", options({"full", "hgca:beta=0,device_kv=1", "streaming:sinks=1,window=4"}));
  ASSERT_EQ(result.methods[1].nll, result.methods[0].nll);
  const std::string text = perplexity_report(result, /*markdown=*/true);
  EXPECT_THAT(text, AllOf(HasSubstr("+0.0000 [the same in all 3]"), Not(HasSubstr("[+0.0000, +0.0000]")),
                          HasSubstr("they do not say how far off others may be")));
  const auto json = parse_json(to_json_text(result), "JSON");
  EXPECT_TRUE(json["methods"][1]["nll_difference"]["interval"].is_null());
  EXPECT_EQ(json["methods"][1]["nll_difference"]["interval_kind"], "none");
  EXPECT_EQ(json["methods"][2]["nll_difference"]["interval_kind"], "paired bootstrap");
}

TEST_F(DecodePerplexity, MistakesAreSentences) {
  const auto expect = [&](const std::function<void(Asked&)>& edit, const auto& says) {
    Asked o = options({"full"});
    edit(o);
    EXPECT_THAT([&] { Perplexity(o, model_); }, ThrowsMessage<InputError>(says));
  };
  expect([](auto& o) { o.text = "short"; }, AllOf(HasSubstr("'prose' has"), HasSubstr("need")));
  expect([](auto& o) { o.context = 1u << 20; }, HasSubstr("max_position_embeddings"));
  expect([](auto& o) { o.windows = 0; }, HasSubstr("nothing to score"));
  expect([](auto& o) { o.context = 1; }, HasSubstr("--context is 1"));
  expect([](auto& o) { o.text->at(1000) = '\xff'; }, HasSubstr("'prose': byte 1000 (0xff) is no UTF-8"));
  expect([](auto& o) { *o.text += "\xe2\x82"; }, HasSubstr("(0xe2) is no UTF-8"));
  expect([](auto& o) { o.text = ""; }, HasSubstr("'prose' has 0 tokens"));
  expect([](auto& o) { o.windows = 1u << 20; }, AllOf(HasSubstr("--windows 1048576 of"), HasSubstr("give fewer")));
  Asked twice = options({"full", "hgca", "full"});
  EXPECT_THAT([&] { manifest(twice); }, ThrowsMessage<InputError>(HasSubstr("'full' is listed twice")));
}

TEST_F(DecodePerplexity, WindowsOfAnotherShapeAreRefused) {
  const Asked o = options({"full"});
  RunFolder folder = begun_run(root_ / "a", manifest(o));
  EXPECT_THAT([&] { summarise_perplexity(folder); }, ThrowsMessage<InputError>(HasSubstr("no finished window")));
  EXPECT_THROW(folder.append(example_sample()), LogicError);
  for (const std::uint32_t index : {0u, 1u}) {
    WindowLoss window{kPerplexity, "prose", kTokens, index, "full", 0, kScored + index, 1.5, {1, 2}};
    folder.append(window);
  }
  EXPECT_THAT([&] { summarise_perplexity(folder); },
              ThrowsMessage<InputError>(HasSubstr("windows.jsonl:2: the window scores 25 tokens")));
}

}  // namespace
}  // namespace tandem::eval
