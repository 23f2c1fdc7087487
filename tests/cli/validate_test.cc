// tandem validate as a user meets it.
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/cpus.h"
#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "tests/cli/program.h"
#include "tests/cli/program_fixture.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kPoints = R"({"points": [
{"id": "attention", "kind": "decode_attention_kernel", "hardware": "NVIDIA H200 SXM 141GB", "engine": "mine",
 "model_shape": "32 query heads, 8 KV heads, head_dim 128", "batch": 16, "context": 32768, "value": 0.5,
 "unit": "ms per layer", "source": "a page"},
{"id": "step", "kind": "decode_end_to_end", "hardware": "NVIDIA RTX 4090 24GB", "engine": "mine", "model": "Llama-3-8B",
 "precision": "bf16", "batch": 1, "context": "0 -> 512 while generating", "value": 55, "unit": "tok/s", "source": "a page"},
{"id": "serving", "kind": "serving_end_to_end", "hardware": "NVIDIA H100 SXM 80GB", "engine": "mine",
 "model": "Llama-3.1-8B", "precision": "bf16", "batch": 8, "context": 1024, "value": 1, "unit": "ms", "source": "a page"},
{"id": "method", "kind": "method_decode", "hardware": "NVIDIA H100 SXM 80GB", "value": 1, "unit": "ms", "source": "a page"}
]})";

class Validate : public ProgramTest {
 protected:
  std::string points(const std::string& text = kPoints) const {
    const std::string file = folder("points.json");
    std::ofstream(file) << text;
    return file;
  }
};

TEST_F(Validate, PrintsErrorsByKindAndSaysWhatItLeftOut) {
  const cli::Outcome done = cli::run("validate --quiet --every --points " + points());
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(done.text,
              AllOf(HasSubstr("Errors by kind"), HasSubstr("decode attention"), HasSubstr("machine"),
                    HasSubstr("decode step"), HasSubstr("validation"), HasSubstr("1 do so by more than 10 %"),
                    HasSubstr("Skipped, 1 point: nothing here predicts the kind method_decode")));
}

TEST_F(Validate, WritesEveryPoint) {
  const cli::Outcome done = cli::run("validate --quiet --no-plot --points " + points() + " --out " + folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  const Json json = parse_json(bytes("a", "validation.json"), "JSON");
  ASSERT_EQ(json.at("points").size(), 4u);
  EXPECT_EQ(json.at("points")[0].at("device"), "h200-sxm-141gb");
  EXPECT_EQ(json.at("points")[0].at("use"), "validation");
  EXPECT_NEAR(json.at("points")[0].at("error").get<double>(), 0, 0.1);
  EXPECT_EQ(json.at("points")[2].at("use"), "upper bound");
  EXPECT_EQ(json.at("points")[3].at("use"), "skipped");
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr("## Errors by device"));
  EXPECT_THAT(bytes("a", "report.html"), HasSubstr("<table>"));
  EXPECT_EQ(cli::run("validate --quiet --points " + points() + " --out " + folder("a")).code, 2);
  EXPECT_EQ(cli::run("validate --quiet --no-plot --force --points " + points() + " --out " + folder("a")).code, 0);
}

TEST_F(Validate, BadFilesAreSentences) {
  EXPECT_THAT(cli::run("validate --points " + points("{}")).text, HasSubstr("an object with a list 'points'"));
  EXPECT_THAT(cli::run("validate --points " + folder("none") + ".json").text, HasSubstr("none.json"));
  EXPECT_THAT(cli::run("validate --force").text, HasSubstr("--force replaces what is in the folder of --out"));
}

TEST_F(Validate, RefusesOptionsOfTheOtherComparison) {
  EXPECT_THAT(cli::run("validate --here --every").text, HasSubstr("--every is for published points"));
  EXPECT_THAT(cli::run("validate --contexts 4K").text, HasSubstr("--contexts is for --here"));
  EXPECT_THAT(cli::run("validate --here --methods nothing").text, HasSubstr("There is no method 'nothing'"));
}

TEST_F(Validate, ComparesStepsOnThisMachine) {
  if (usable_cores().size() < 2) {
    EXPECT_THAT(cli::run("validate --here").text, HasSubstr("--here needs two cores"));
    return;
  }
  EXPECT_THAT(cli::run("validate --here --hw h100").text, HasSubstr("no CPU that plays a device"));
  Json profile = parse_json(read_file(data_path("hardware/profiles/fluxion-a100.json"), 1 << 20, "a profile"), "JSON");
  profile["name"] = "mine";
  profile["device"]["cpu_threads"] = 1;
  profile["sources"]["device.cpu_threads"] = "assumed: a test";
  std::ofstream(folder("mine.json")) << json_text(profile);
  const std::string command =
      "validate --here --quiet --methods full --contexts 300 --rounds 2 --hw " + folder("mine.json");
  const cli::Outcome done = cli::run(command + " --operations --out " + folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(done.text, AllOf(HasSubstr("Level: this machine"), HasSubstr("Part beyond streaming"), HasSubstr("worst"),
                               HasSubstr("Operations, ms per step")));
  const Json json = parse_json(bytes("a", "here.json"), "JSON");
  ASSERT_EQ(json.at("rows").size(), 2u);  // streaming was added
  EXPECT_EQ(json.at("rows")[1].at("round_ms").size(), 2u);
  EXPECT_GT(json.at("rows")[1].at("measured_ms").get<double>(), 0);
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr("## Decode step"));
  EXPECT_THAT(cli::run(command + " --out " + folder("a")).text, HasSubstr("has a validation already"));
}

}  // namespace
}  // namespace tandem::testing
