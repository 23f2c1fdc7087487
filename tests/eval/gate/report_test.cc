// What a gate says, for people and as JSON.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "eval/report/table.h"
#include "tests/eval/gate/fixtures.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using GateReport = TwoRuns;

TEST_F(GateReport, AllProgramsThatMadeSamplesAreNamed) {
  Changes mixed;
  mixed.manifest = [](Manifest& m) { m.programs.insert(m.programs.end(), {{"0.1.0", "def"}, {"0.2.0", "ghi"}}); };
  GateOptions options;
  options.same_tokens = true;  // which is no difference between the runs
  const Gate result = gate(mixed, {}, options);
  const std::string text = gate_text(result, true), json = gate_json(result);
  EXPECT_THAT(text, AllOf(HasSubstr("/baseline: tandem 0.1.0 (abc), finished"),
                          HasSubstr("/run: tandem 0.1.0 (abc), 0.1.0 (def) and 0.2.0 (ghi), finished"),
                          HasSubstr("Note: The run was resumed, so that its samples are a mixture of what 3 programs"),
                          Not(HasSubstr("The baseline was resumed"))));
  const nlohmann::json parsed = parse_json(json, "JSON");
  EXPECT_EQ(parsed["run"]["later_programs"][1]["git_commit"], "ghi");
  EXPECT_FALSE(parsed["baseline"].contains("later_programs"));
  EXPECT_THAT(json, HasSubstr("The run was resumed"));
  EXPECT_THAT(gate_text(gate({}), false), Not(HasSubstr("was resumed")));
}

TEST_F(GateReport, TextFitsTheTerminalAndJsonHasTheSame) {
  Changes slow;
  slow.manifest = [](Manifest& m) { m.clock = "simulated for a machine with many words in its name, 24 cores"; };
  Changes baseline = slow;
  slow.timing = [](SampleTiming& t) { slow_down(t, 1.2); };
  slow.sample = [](SampleResult& s) { s.score = s.index % 3 == 0 ? 0 : 1; };
  const Gate result = gate(slow, baseline);
  const std::string text = gate_text(result, false);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    EXPECT_LE(text_columns(text.substr(begin, end - begin)), kTerminalWidth);
    begin = end + 1;
  }
  EXPECT_THAT(text, AllOf(HasSubstr("hybrid:budget=0.2"), HasSubstr("+20.0 %"), HasSubstr("simulated for"),
                          HasSubstr("Failed: the run is not as good as the baseline (6 failures).")));
  const nlohmann::json json = parse_json(gate_json(result), "JSON");
  EXPECT_EQ(json["verdict"], "failed");
  EXPECT_EQ(json["methods"][1]["method"], "hybrid:budget=0.2");
  EXPECT_EQ(json["methods"][1]["accuracy"]["verdict"], "failed");
  EXPECT_NEAR(json["methods"][1]["times"][0]["change"], 0.2, 1e-9);
  EXPECT_EQ(json["failures"].size(), 6u);
}

TEST_F(GateReport, JUnitHasACaseForEachMethod) {
  Changes slow;
  slow.timing = [](SampleTiming& t) { slow_down(t, 1.2); };
  Gate result = gate(slow, {});
  result.methods[0].verdict = Verdict::cannot_tell;
  result.methods[0].label = "a<b>&\"c\"\x1b";
  ASSERT_EQ(result.methods[1].verdict, Verdict::failed);
  const std::string text = gate_junit(result);
  EXPECT_THAT(text, AllOf(HasSubstr(fmt::format("tests=\"{}\" failures=\"{}\" skipped=\"1\">", result.methods.size(),
                                                result.methods.size() - 1)),
                          HasSubstr("name=\"a&lt;b&gt;&amp;&quot;c&quot;\\u001b\">\n      <skipped message="),
                          HasSubstr("<failure message=\"hybrid:budget=0.2: "), HasSubstr(failures_of(result).back()),
                          Not(HasSubstr("\x1b"))));
  result.options.strict = true;
  EXPECT_THAT(gate_junit(result), AllOf(HasSubstr("skipped=\"0\""), Not(HasSubstr("<skipped"))));
  EXPECT_THAT(gate_junit(gate({})), AllOf(HasSubstr("failures=\"0\""), Not(HasSubstr("<failure"))));
}

}  // namespace
}  // namespace tandem::eval
