// A sweep's files and tables: what was written is read back, damage is a sentence, figures are in their places.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "tests/eval/predict/sweeps.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SweepFile, RefusesFiguresOfOtherSettings) {
  SweepOptions options = a_sweep();
  options.methods = {"full", "fluxion:heads=embedded"};
  options.hardware[1].device.memory_gb = 2;  // points without figures are read back, too
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  const std::string text = json_of(sweep);
  EXPECT_EQ(refusal(text, settings_of(options)), "no InputError");
  Sweep again = settings_of(options);
  again.points = known_points(text, "sweep.json", again, kProgram);
  EXPECT_EQ(json_of(again), text);

  Sweep other = settings_of(options);
  other.model = "qwen3-8b";
  EXPECT_THAT(refusal(text, other), HasSubstr("its model is \"llama-3.2-1b\", and this command's is \"qwen3-8b\""));
  other = settings_of(options);
  other.shape += " and more";
  EXPECT_THAT(refusal(text, other), HasSubstr("its shape is \"hidden 2048, 32 query heads"));
  other = settings_of(options);
  other.options.steps = 8;
  EXPECT_THAT(refusal(text, other), HasSubstr("its steps is 4, and this command's is 8"));
  other = settings_of(options);
  other.workload.layers[0][0].group = 0.25;
  EXPECT_THAT(refusal(text, other), HasSubstr("its workload is"));
  other = settings_of(options);
  other.options.hardware[0].link.piece_ns += 1;
  EXPECT_THAT(refusal(text, other), HasSubstr("its machine 'fluxion-a100' has other figures"));
  EXPECT_THAT(refusal(text, settings_of(options), "tandem other"), HasSubstr("its program is"));
  other = settings_of(options);
  other.options.contexts = {512};
  EXPECT_THAT(refusal(text, other), HasSubstr("does not ask for and would lose"));
  for (const char* nothing : {"", "{}", "[]", "{\"schema_version\": 1}"})
    EXPECT_THAT(refusal(nothing, settings_of(options)), HasSubstr("sweep.json")) << nothing;
}

TEST(SweepFile, DamagedFilesAreRefusedInSentences) {
  SweepOptions options = a_sweep();
  options.hardware.resize(1);
  const std::string text = json_of(simulate_sweep(load_shape(kShape), a_workload(), options));
  for (std::size_t bytes = 0; bytes + 3 < text.size(); bytes += 97)
    EXPECT_THAT(refusal(text.substr(0, bytes), settings_of(options)), HasSubstr("sweep.json")) << bytes;
  const auto broken = [&](const std::string& part, const std::string& by) {
    std::string changed = text;
    changed.replace(changed.find(part), part.size(), by);
    return refusal(changed, settings_of(options));
  };
  EXPECT_THAT(broken("\"step_ms\": ", "\"step_ms\": -"), AllOf(HasSubstr("point 1"), HasSubstr("'step_ms'")));
  EXPECT_THAT(broken("\"lossless\": true", "\"lossless\": 1"), HasSubstr("'lossless' must be true or false"));
  EXPECT_THAT(broken("\"batch\": 2", "\"batch\": 0"), HasSubstr("'batch'"));
  EXPECT_THAT(broken("\"sequences\": 2", "\"sequence\": 2"), HasSubstr("'sequences' is missing"));
}

TEST(SweepFile, IsReadBackWhole) {
  SweepOptions options = a_sweep();
  options.methods.emplace_back("fluxion:heads=embedded");  // refused
  options.hardware[1].device.memory_gb = 2;
  const std::string text = json_of(simulate_sweep(load_shape(kShape), a_workload(), options));
  const SweepFile file = parse_sweep(text, "sweep.json");
  EXPECT_TRUE(file.complete);
  EXPECT_EQ(sweep_json(file.sweep, file.command, file.program), text);
  const auto broken = [&](const std::string& part, const std::string& by) {
    std::string changed = text;
    changed.replace(changed.find(part), part.size(), by);
    return sentence_of([&] { parse_sweep(changed, "sweep.json"); });
  };
  EXPECT_THAT(broken("\"schema_version\": 2", "\"schema_version\": 1"), HasSubstr("'schema_version' must be 2"));
  EXPECT_THAT(broken("\"layers\": 16", "\"layers\": 0"), HasSubstr("'layers' must be 1 or more"));
  EXPECT_THAT(broken("\"fluxion-a100\": {", "\"another\": {"),
              HasSubstr("machine 'fluxion-a100', which 'hardware' does not have"));
  EXPECT_THAT(broken("\"hardware\": \"fluxion-a100\"", "\"hardware\": \"a200\""),
              HasSubstr("of the machine 'a200', which 'hardware' does not have"));
  EXPECT_THAT(broken("\"sequences\": 2", "\"sequences\": 3"), HasSubstr("'sequences' must be the batch"));
  EXPECT_THAT(broken("\"clock\": \"simulated\"", "\"clock\": \"measured\""), HasSubstr("'clock' must be"));
  EXPECT_THAT(broken("\"complete\"", "\"more\": 1, \"complete\""), HasSubstr("'more'"));
  EXPECT_THAT(broken("\"context\": 1024", "\"context\": 512"), HasSubstr("the same point is there twice"));
  for (const char* nothing : {"", "{}", "[]", "{\"schema_version\": 2}"})
    EXPECT_THAT(sentence_of([&] { parse_sweep(nothing, "sweep.json"); }), HasSubstr("sweep.json")) << nothing;
}

/// A sweep whose figures are put in.
Sweep made_up() {
  SweepOptions options;
  options.methods = {"full", "quest:budget=256", "streaming"};
  options.hardware = {load_profile("fluxion-a100")};
  options.contexts = {1024, 2048};
  options.batches = {4, kAsManyAsFit};
  options.steps = 64;
  Sweep sweep{"a model", 10, 4096, "a shape", options, a_workload(), {}};
  for (const std::uint32_t batch : options.batches) {
    for (const std::uint32_t context : options.contexts) {
      for (std::size_t m = 0; m < options.methods.size(); ++m) {
        SweepPoint point{"fluxion-a100", options.methods[m], context, batch, batch == 4 ? 4u : 9u, m == 0, {}};
        point.row.method = point.method;
        point.row.step_ms = 8.0 / double(m + 1) * context / 1024;
        point.row.busy_ms = 0.75 * point.row.step_ms;
        point.row.idle_ms = 0.25 * point.row.step_ms;
        point.row.idle_ms_by_cause[static_cast<std::size_t>(Cause::recall)] = 0.25 * point.row.step_ms;
        point.row.prefill_ms = 100;
        sweep.points.push_back(point);
      }
    }
  }
  SweepPoint& large = sweep.points[3];  // full, 4 x 2K
  large.row = {};
  large.row.method = "full";
  large.row.refused = "its KV takes more";
  large.row.too_large = true;
  SweepPoint& refused = sweep.points[4];  // quest, 4 x 2K
  refused.row = {};
  refused.row.method = refused.method;
  refused.row.refused = "a reason";
  return sweep;
}

TEST(SweepReport, HasTheFiguresInTheirPlaces) {
  const std::string text = sweep_text(made_up(), /*markdown=*/true);
  // full at 4 x 1K: 8 ms, 500 tokens/s, a quarter of it idle, 0.2 ms in each of ten layers.
  EXPECT_THAT(text, HasSubstr("| full | 500 | does not fit |"));
  EXPECT_THAT(text, HasSubstr("| quest:budget=256 | 1000 | refused |"));
  EXPECT_THAT(text, HasSubstr("| streaming | 1500 | 750 |"));
  EXPECT_THAT(text, HasSubstr("| full | 1125 (9) | 562 (9) |"));
  EXPECT_THAT(text, HasSubstr("| full | 8.00 | does not fit |"));
  EXPECT_THAT(text, HasSubstr("| full | 25\u00a0% 0.20 recall | does not fit |"));
  EXPECT_THAT(text, HasSubstr("quest:budget=256: a reason"));
  EXPECT_THAT(text, HasSubstr("full: batch 4 x 2K does not fit on fluxion-a100, since its KV takes more."));
  EXPECT_THAT(text,
              HasSubstr("| fluxion-a100 | 4 | 1K | streaming 1500 | quest:budget=256 1000 | full 500 | full 500 |"));
  EXPECT_THAT(text, HasSubstr("| fluxion-a100 | 4 | 2K | streaming 750 | - | - | none |"));
  EXPECT_THAT(text, HasSubstr("at most 256"));
  for (const char* head : {"simulated: a model, batch 4, A100-80G", "simulated: a model, as many as fit, A100-80G"})
    EXPECT_THAT(text, HasSubstr(head));
}

TEST(SweepReport, ColumnsAreWhatVaries) {
  Sweep sweep = made_up();
  sweep.options.contexts = {1024};
  EXPECT_THAT(sweep_text(sweep, true), HasSubstr("contexts of 1K, A100-80G PCIe 4, EPYC 7V13 24 cores, level "
                                                 "machine.\n\n| method | batch 4 | as many as fit |"));
  sweep.options.batches = {4};
  sweep.options.hardware.push_back(load_profile("h200"));
  EXPECT_THAT(
      sweep_text(sweep, true),
      HasSubstr("Figures are simulated: a model, batch 4 x 1K, level machine.\n\n| method | fluxion-a100 | h200 |"));
  EXPECT_THAT(sweep_text(sweep, true), HasSubstr("| full | 500 | not run |"));
}

TEST(SweepReport, FitsATerminal) {
  Sweep sweep = made_up();
  sweep.options.methods.push_back("scoutattention:budget=2048,block=64,device_scope=selected,scope=kv_head");
  std::istringstream lines(sweep_text(sweep, /*markdown=*/false));
  for (std::string line; std::getline(lines, line);) {
    std::size_t columns = 0;
    for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    EXPECT_LE(columns, 100u) << line;
  }
}

TEST(SweepFile, CsvHasAllFieldsOnEveryLine) {
  std::istringstream lines(sweep_csv(made_up()));
  std::string line;
  std::getline(lines, line);
  const auto fields = std::count(line.begin(), line.end(), ',');
  EXPECT_THAT(line, AllOf(HasSubstr("idle_ms_host_attention"), HasSubstr("idle_ms_recall")));
  std::size_t count = 0;
  for (; std::getline(lines, line); ++count) EXPECT_EQ(std::count(line.begin(), line.end(), ','), fields) << line;
  EXPECT_EQ(count, 12u);
  EXPECT_THAT(sweep_csv(made_up()),
              HasSubstr("\na model,fluxion-a100,simulated,4,4,1024,full,1,,100.000000,8.000000,500.000,"
                        "6.000000,2.000000,0.250000,0.200000,"));
  Sweep quoted = made_up();
  quoted.points[0].method = "quest:budget=256,block=\"16\"";
  EXPECT_THAT(sweep_csv(quoted), HasSubstr(",1024,\"quest:budget=256,block=\"\"16\"\"\",1,"));
}

}  // namespace
}  // namespace tandem::eval
