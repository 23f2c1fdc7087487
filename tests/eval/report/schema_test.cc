#include "eval/report/schema.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

/// `text` with the first `from` replaced by `to`.
std::string change(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Schema, SampleLineIsThisText) {
  // Golden bytes: other programs read this file.
  EXPECT_EQ(
      to_line(example_sample()),
      R"({"benchmark":"ruler","task":"niah_single_1","length":1024,"index":0,"method":"full","prompt_tokens":890,)"
      R"("tokens":[17,-1,2047],"prediction":"1234567\n\"quoted\" é","answers":["1234567","b"],)"
      R"("score":0.3333333333333333,"near_ties":[{"step":2,"margin":0.000123},{"step":7,"margin":0.0}],"depth":0.1})");
}

TEST(Schema, ASampleHasItsDocumentWhereSeveralAreAboutOne) {
  SampleResult sample = example_sample();
  sample.document = 0;
  const std::string line = to_line(sample);
  EXPECT_TRUE(line.ends_with(R"("depth":0.1,"document":0})")) << line;
  EXPECT_EQ(parse_line<SampleResult>(line, "samples.jsonl:1"), sample);
  EXPECT_NE(sample, example_sample());
  EXPECT_THROW(parse_line<SampleResult>(change(line, R"("document":0)", R"("document":-1)"), "samples.jsonl:1"),
               InputError);
}

TEST(Schema, ASampleHasTheRuleThatFoundItsAnswer) {
  SampleResult sample = example_sample();
  sample.by_rule = {{"strict-match", 1}, {"flexible-extract", 0.5}};
  for (const std::optional<std::string>& rule :
       {std::optional<std::string>("strict-match"), std::optional<std::string>()}) {
    sample.rule = rule;
    const std::string graded = to_line(sample);
    EXPECT_TRUE(graded.ends_with(R"("by_rule":{"strict-match":1.0,"flexible-extract":0.5}})")) << graded;
    EXPECT_EQ(parse_line<SampleResult>(graded, "samples.jsonl:1"), sample);
    EXPECT_THROW(parse_line<SampleResult>(change(graded, "0.5}", "1.5}"), "samples.jsonl:1"), InputError);
  }
}

TEST(Schema, ASampleSaysWhereALosslessMethodParted) {
  SampleResult sample = example_sample();
  sample.parted = Parting{4, {{17, -1}, {12.5, 12.25}}, {{3, 17}, {12.75, 12}}};
  const std::string line = to_line(sample);
  EXPECT_TRUE(line.ends_with(R"("parted":{"step":4,"gap":0.25,"full":{"tokens":[17,-1],"logits":[12.5,12.25]},)"
                             R"("own":{"tokens":[3,17],"logits":[12.75,12.0]}}})"))
      << line;
  EXPECT_EQ(parse_line<SampleResult>(line, "samples.jsonl:1"), sample);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{R"("step":4)", R"("step":-4)"},
                                                                                 {R"("gap":0.25)", R"("gap":0.5)"},
                                                                                 {"[17,-1]", "[17]"},
                                                                                 {"[12.75,12.0]", "[12.75,null]"},
                                                                                 {"[12.75,12.0]", "[12.75,1e99]"},
                                                                                 {R"("own":{)", R"("own":{"more":1,)"}})
    EXPECT_THROW(parse_line<SampleResult>(change(line, from, to), "samples.jsonl:1"), InputError) << to;
}

TEST(Schema, WindowLineIsThisText) {
  EXPECT_EQ(
      to_line(example_window(2)),
      R"({"benchmark":"perplexity","task":"book.txt","length":1024,"index":2,"method":"full",)"
      R"("first_token":2558,"scored":256,"nll":0.6666666666666666,"nll_by_position":[0.5,0.3333333333333333,1.25]})");
}

TEST(Schema, TimingLineIsThisText) {
  EXPECT_EQ(to_line(example_timing()),
            R"({"benchmark":"ruler","task":"niah_single_1","length":1024,"index":0,"method":"full",)"
            R"("clock":"simulated for h200","prefill_ns":4000000,"setup_ns":500000,"first_step_ns":1500000,)"
            R"("step_ns":[1000000,3000000],"window_ns":5500000,"busy_ns":3300000,"idle_ns":2200000,)"
            R"("idle_by_cause":{"host attention":1200000,"launch":1000000},"layer0_idle_ns":700000,)"
            R"("bytes":{"hbm":3000000,"dram":600000,"h2d":30000,"d2h":3000},"flops":1048576,"steps":3,)"
            R"("device_kv_bytes":1000000,"host_kv_bytes":2000000,"tokens_attended_device":300,)"
            R"("tokens_attended_host":2370})");
}

TEST(Schema, APeersBytesAreThereWhereThereIsOne) {
  SampleTiming timing = example_timing();
  timing.peer_kv_bytes = 3000000;
  EXPECT_NE(to_line(timing).find(R"("host_kv_bytes":2000000,"peer_kv_bytes":3000000,)"), std::string::npos);
  timing.bytes.peer_link = 5000;
  timing.bytes.peer_hbm = 7000;
  timing.peer_flops = 11;
  EXPECT_EQ(to_line(timing).find("touched"), std::string::npos);
  EXPECT_NE(to_line(timing).find(R"("d2h":3000,"peer_link":5000,"peer_hbm":7000},"flops":1048576,"peer_flops":11,)"),
            std::string::npos);
  EXPECT_EQ(parse_line<SampleTiming>(to_line(timing), "x"), timing);
}

TEST(Schema, TouchedBytesAreWrittenWhereTheyAreCounted) {
  SampleTiming timing = example_timing();
  timing.bytes.touched = 77;
  EXPECT_NE(to_line(timing).find(R"("d2h":3000,"touched":77},)"), std::string::npos) << to_line(timing);
  EXPECT_EQ(parse_line<SampleTiming>(to_line(timing), "x"), timing);
}

TEST(Schema, BytesOfABufferAreThereWhereSomeWereLookedUp) {
  SampleTiming timing = example_timing();
  EXPECT_EQ(to_line(timing).find("looked_up"), std::string::npos);
  timing.bytes.looked_up = 99;
  timing.bytes.missed = 33;
  EXPECT_NE(to_line(timing).find(R"("d2h":3000,"looked_up":99,"missed":33},)"), std::string::npos) << to_line(timing);
  EXPECT_EQ(parse_line<SampleTiming>(to_line(timing), "x"), timing);
}

TEST(Schema, LaterProgramsAreWrittenWhereThereAreAny) {
  Manifest manifest = example_manifest();
  EXPECT_EQ(to_json_text(manifest).find("later_programs"), std::string::npos);
  manifest.programs.insert(manifest.programs.end(), {{"0.1.0", "def"}, {"0.2.0", "ghi"}});
  EXPECT_EQ(parse_manifest(to_json_text(manifest), "x"), manifest);
}

TEST(Schema, ManifestsOfOlderVersionsAreRead) {
  Manifest manifest = example_manifest();
  manifest.schema_version = 7;
  const std::string seventh = to_json_text(manifest);
  for (const char* later : {"precision", "prefill_chunk", "config_hash", "openblas"})
    EXPECT_EQ(seventh.find(later), std::string::npos);
  manifest.config_hash.clear();
  manifest.openblas.clear();
  manifest.precision.clear();
  manifest.prefill_chunk = 0;
  EXPECT_EQ(parse_manifest(seventh, "x"), manifest);
  manifest.schema_version = 1;
  manifest.hardware_hash.clear();
  manifest.isa.clear();
  EXPECT_EQ(parse_manifest(to_json_text(manifest), "x"), manifest);
}

TEST(Schema, TasksMayHaveDifferentNumbersOfSamples) {
  Manifest manifest = example_manifest();
  EXPECT_EQ(to_json_text(manifest).find("task_samples"), std::string::npos);
  EXPECT_EQ(manifest.samples_of("niah_single_1"), 4u);
  manifest.tasks = {"qasper", "lcc"};
  manifest.lengths = {0, 1024};
  manifest.task_samples = {4, 2};
  EXPECT_EQ(manifest.samples_of("qasper"), 4u);
  EXPECT_EQ(manifest.samples_of("lcc"), 2u);
  EXPECT_EQ(manifest.samples_of("trec"), 0u);
  EXPECT_EQ(manifest.all_samples(), 12u);
  EXPECT_EQ(parse_manifest(to_json_text(manifest), "f"), manifest);
  manifest.task_samples = {4, 5};
  EXPECT_THROW(parse_manifest(to_json_text(manifest), "f"), InputError);
  manifest.task_samples = {4};
  EXPECT_THROW(parse_manifest(to_json_text(manifest), "f"), InputError);
}

TEST(Schema, WhatIsWrittenIsReadBack) {
  EXPECT_EQ(parse_line<SampleResult>(to_line(example_sample()), "x"), example_sample());
  EXPECT_EQ(parse_line<WindowLoss>(to_line(example_window()), "x"), example_window());
  EXPECT_EQ(parse_line<SampleTiming>(to_line(example_timing()), "x"), example_timing());
  EXPECT_EQ(parse_manifest(to_json_text(example_manifest()), "x"), example_manifest());
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    SampleResult sample = example_sample();
    sample.score = std::ldexp(static_cast<double>(random() >> 11), -53);
    sample.depth = std::ldexp(static_cast<double>(random() >> 11), -53);
    sample.near_ties = {{static_cast<std::uint32_t>(random()), std::ldexp(1.0 + sample.score, -int(random() % 300))}};
    sample.prediction.clear();
    for (int c = 0; c < 20; ++c) sample.prediction += static_cast<char>(random() % 128);
    SampleTiming timing = example_timing();
    timing.bytes = {random(), random(), random(), random()};
    timing.flops = random();
    const std::string line = to_line(sample);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_EQ(parse_line<SampleResult>(line, "x"), sample);
    EXPECT_EQ(parse_line<SampleTiming>(to_line(timing), "x"), timing);
  }
}

TEST(Schema, AnUnknownDepthIsNull) {
  SampleResult sample = example_sample();
  sample.depth.reset();
  EXPECT_THAT(to_line(sample), HasSubstr("\"depth\":null"));
  EXPECT_EQ(parse_line<SampleResult>(to_line(sample), "x"), sample);
}

TEST(Schema, BytesThatAreNoUtf8BecomeReplacementCharacters) {
  SampleResult sample = example_sample();
  sample.prediction =
      "a\xff"
      "b";
  EXPECT_EQ(parse_line<SampleResult>(to_line(sample), "x").prediction,
            "a\xef\xbf\xbd"
            "b");
}

TEST(Schema, OurOwnMistakesAreNotWritten) {
  SampleResult sample = example_sample();
  sample.score = std::nan("");
  EXPECT_THROW(to_line(sample), LogicError);
  SampleTiming timing = example_timing();
  timing.clock = "h200";
  EXPECT_THROW(to_line(timing), LogicError);
  timing = example_timing();
  ++timing.idle_by_cause[0].second;
  EXPECT_THROW(to_line(timing), LogicError);
  timing = example_timing();
  ++timing.busy_ns;
  EXPECT_THROW(to_line(timing), LogicError);
  timing = example_timing();
  ++timing.steps;
  EXPECT_THROW(to_line(timing), LogicError);
  timing = example_timing();
  timing.layer0_idle_ns = timing.idle_ns + 1;
  EXPECT_THROW(to_line(timing), LogicError);
}

TEST(Schema, TimingsWithoutLayer0sIdleAreRead) {  // of version 3 and before
  std::string line = to_line(example_timing());
  const std::string field = R"("layer0_idle_ns":700000,)";
  line.erase(line.find(field), field.size());
  SampleTiming expected = example_timing();
  expected.layer0_idle_ns = 0;
  EXPECT_EQ(parse_line<SampleTiming>(line, "x"), expected);
}

TEST(Schema, BrokenSampleLinesAreSentences) {
  const std::string good = to_line(example_sample());
  const auto expect = [](const std::string& line, const char* message) {
    EXPECT_THAT([&] { parse_line<SampleResult>(line, "samples.jsonl:12"); },
                ThrowsMessage<InputError>(AllOf(StartsWith("samples.jsonl:12"), HasSubstr(message))))
        << line;
  };
  expect("", "not valid JSON");
  expect("{", "not valid JSON");
  expect(good + "}", "not valid JSON");
  expect(good.substr(0, good.size() / 2), "not valid JSON");
  expect(std::string(100000, '['), "nested more than 32 deep");
  expect("[]", "object was expected");
  expect("{}", "'benchmark' is missing");
  expect(change(good, "\"index\":0", "\"index\":0,\"index\":1"), "'index' occurs twice");
  expect(change(good, "\"index\":0", "\"index\":0,\"extra\":1"), "'extra' is unknown");
  expect(change(good, "\"index\":0", "\"index\":-1"), "'index'");
  expect(change(good, "\"index\":0", "\"index\":0.5"), "'index'");
  expect(change(good, "\"index\":0", "\"index\":4294967296"), "'index'");
  expect(change(good, "\"index\":0", "\"index\":\"0\""), "'index'");
  expect(change(good, "\"index\":0", "\"index\":null"), "'index'");
  expect(change(good, "\"ruler\"", "\"\""), "'benchmark'");
  expect(change(good, "[17,-1,2047]", "[17,2147483648]"), "'tokens'");
  expect(change(good, "[17,-1,2047]", "17"), "'tokens'");
  expect(change(good, "[\"1234567\",\"b\"]", "[1]"), "'answers'");
  expect(change(good, "\"depth\":0.1", "\"depth\":1.1"), "'depth'");
  expect(change(good, "\"depth\":0.1", "\"depth\":\"\""), "'depth'");
  expect(change(good, "\"score\":0.3333333333333333", "\"score\":1e999"), "not valid JSON");
  expect(change(good, "\"score\":0.3333333333333333", "\"score\":true"), "'score'");
  expect(change(good, "\"step\":2,", ""), "'step' is missing");
  expect(change(good, "\"step\":2,", "\"step\":2,\"a\":1,"), "'a' is unknown");
}

TEST(Schema, BrokenWindowLinesAreSentences) {
  const std::string good = to_line(example_window());
  const auto expect = [](const std::string& line, const char* message) {
    EXPECT_THAT([&] { parse_line<WindowLoss>(line, "w:1"); }, ThrowsMessage<InputError>(HasSubstr(message))) << line;
  };
  expect(change(good, "\"nll\":0.6", "\"nll\":-0.6"), "'nll'");
  expect(change(good, "\"nll\":0.6", "\"nll\":\"0.6\",\"x\":0.6"), "'nll'");
  expect(change(good, "[0.5,", "[-0.5,"), "'nll_by_position'");
  expect(change(good, "[0.5,", "[true,"), "'nll_by_position'");
  expect(change(good, "[0.5,0.3333333333333333,1.25]", "[]"), "'nll_by_position'");
  expect(change(good, "\"scored\":256", "\"scored\":2"), "'nll_by_position'");
  expect(change(good, "\"first_token\":0", "\"first_token\":-1"), "'first_token'");
}

TEST(Schema, BrokenTimingLinesAreSentences) {
  const std::string good = to_line(example_timing());
  const auto expect = [](const std::string& line, const char* message) {
    EXPECT_THAT([&] { parse_line<SampleTiming>(line, "t:1"); }, ThrowsMessage<InputError>(HasSubstr(message))) << line;
  };
  expect(change(good, "simulated for h200", "h200"), "'clock'");
  expect(change(good, "simulated for h200", "simulated for "), "'clock'");
  expect(change(good, "simulated for h200", ""), "'clock'");
  expect(change(good, "\"busy_ns\":3300000", "\"busy_ns\":3300001"), "must be window_ns");
  expect(change(good, "\"launch\":1000000", "\"launch\":999999"), "idle_by_cause sum to");
  expect(change(good, "\"launch\":1000000", "\"launch\":-1"), "'idle_by_cause'");
  expect(change(good, "\"steps\":3", "\"steps\":4"), "steps is 4");
  expect(change(good, "\"h2d\":30000,", ""), "'h2d' is missing");
  expect(change(good, "\"prefill_ns\":4000000", "\"prefill_ns\":-1"), "'prefill_ns'");
  expect(change(good, "\"prefill_ns\":4000000", "\"prefill_ns\":9223372036854775807"), "'prefill_ns'");
  expect(change(good, "[1000000,3000000]", "[1000000,9223372036854775807]"), "'step_ns'");
}

TEST(Schema, EveryFieldOfEveryFileIsNeeded) {
  for (const std::string& text : {to_line(example_sample()), to_line(example_window()), to_line(example_timing()),
                                  to_json_text(example_manifest())}) {
    const auto json = parse_ordered_json(text, "JSON");
    for (const auto& item : json.items()) {
      if (item.key() == "layer0_idle_ns") continue;  // TimingsWithoutLayer0sIdleAreRead
      auto without = json;
      without.erase(item.key());
      const std::string line = json_text(without);
      const auto parse = [&] {
        if (json.contains("score"))
          parse_line<SampleResult>(line, "x");
        else if (json.contains("scored"))
          parse_line<WindowLoss>(line, "x");
        else if (json.contains("steps"))
          parse_line<SampleTiming>(line, "x");
        else
          parse_manifest(line, "x");
      };
      EXPECT_THAT(parse, ThrowsMessage<InputError>(HasSubstr("'" + item.key() + "' is missing")));
    }
  }
}

TEST(Schema, BrokenManifests) {
  const std::string good = to_json_text(example_manifest());
  const auto expect = [](const std::string& text, const char* message) {
    EXPECT_THAT([&] { parse_manifest(text, "m"); }, ThrowsMessage<InputError>(HasSubstr(message))) << text;
  };
  const std::string version = "\"schema_version\": ";
  expect(change(good, version + std::to_string(kSchemaVersion), version + std::to_string(kSchemaVersion + 1)),
         "the schema version is");
  expect(change(good, "\"label\": \"hybrid:budget=0.2\"", "\"label\": \"full\""), "two methods have the label 'full'");
  expect(change(good, "\"0.2\"", "0.2"), "'options'");
  expect(change(good, "simulated for h200", "guessed"), "'clock'");
  Manifest none = example_manifest();
  none.methods.clear();
  expect(to_json_text(none), "one or more methods");
}

TEST(Schema, ClocksSayWhereTheyComeFrom) {
  EXPECT_TRUE(is_clock("simulated for h200"));
  EXPECT_TRUE(is_simulated("simulated for h200"));
  EXPECT_TRUE(is_clock("measured on this"));
  EXPECT_FALSE(is_simulated("measured on this"));
  for (const char* bad : {"", "simulated for ", "simulated", "measured on ", "measured"})
    EXPECT_FALSE(is_clock(bad)) << bad;
}

}  // namespace
}  // namespace tandem::eval
