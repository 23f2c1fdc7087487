// tandem fluxion collect as a user meets it: the folder, ending and going on, and what bad options say.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "tests/cli/background.h"
#include "tests/cli/program.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kCollect = "fluxion collect --quiet --tasks niah_single_1 --lengths 512 --samples 2 --decode-steps 4 "
                             "--steps 2 --out ";

TEST(FluxionCollect, WritesTheSameFolderWhateverTheThreads) {
  const TemporaryFolder folder;
  const cli::Outcome first = cli::run(kCollect + (folder.path() / "a").string());
  const cli::Outcome second = cli::run(kCollect + (folder.path() / "b").string() + " --threads 1");
  ASSERT_EQ(first.code, 0) << first.text;
  ASSERT_EQ(second.code, 0) << second.text;
  EXPECT_THAT(first.text, HasSubstr("2 prompts, 128 rows of 41 features"));
  for (const char* file : {"manifest.json", "niah_single_1-512-0000.safetensors", "niah_single_1-512-0001.safetensors"})
    EXPECT_EQ(read_bytes(folder.path() / "a" / file), read_bytes(folder.path() / "b" / file));
  const Json manifest = Json::parse(read_bytes(folder.path() / "a" / "manifest.json"));
  EXPECT_EQ(manifest.at("schema"), "tandem-fluxion-1");
  EXPECT_EQ(manifest.at("finished"), true);
  EXPECT_EQ(manifest.at("plan").at("features").size(), 41u);
  EXPECT_EQ(manifest.at("shards").size(), 2u);
  // Nothing is left to do.
  const cli::Outcome again = cli::run(kCollect + (folder.path() / "a").string() + " --resume");
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_EQ(read_bytes(folder.path() / "a" / "manifest.json"), read_bytes(folder.path() / "b" / "manifest.json"));
}

struct Bad {
  const char* arguments;
  const char* says;
};
void PrintTo(const Bad& bad, std::ostream* out) {
  *out << bad.arguments;
}
class BadFluxion : public ::testing::TestWithParam<Bad> {};
INSTANTIATE_TEST_SUITE_P(
    Sentences, BadFluxion,
    ::testing::Values(Bad{"fluxion", "see tandem fluxion --help."},
                      Bad{"fluxion colect", "tandem fluxion has no 'colect'. Did you mean 'collect'?"},
                      Bad{"fluxion collect", "--out is missing"},
                      Bad{"fluxion collect --out /tmp/x --steps 40", "--steps is 40: give 1 to --decode-steps (32)."},
                      Bad{"fluxion collect --out /tmp/x --tau 0", "--tau is 0"},
                      Bad{"fluxion collect --out /tmp/x --mass 1.5", "--mass is 1.5"},
                      Bad{"fluxion collect --out /tmp/x --samples 0", "--samples is 0"},
                      Bad{"fluxion collect --out /tmp/x --window 0", "a window of at least 1"},
                      Bad{"fluxion collect --out /tmp/x --lengths 320", "of 320 tokens, sinks (64) and window (256)"},
                      Bad{"fluxion collect --out /tmp/x --lengths 512", "512 is too short for cwe"},
                      Bad{"fluxion collect --out /tmp/x --lengths 8K", "are more than the 8192 positions"},
                      Bad{"fluxion collect --out /tmp/x --tasks niah_singel_1", "Did you mean 'niah_single_1'?"},
                      Bad{"fluxion collect --out /tmp/x --text-file /no/such", "'/no/such' cannot be read"},
                      Bad{"fluxion collect --out /tmp/x --force --resume", "give one of them"},
                      Bad{"fluxion collect --out /no/such/folder --resume", "there is no collection in"},
                      Bad{"fluxion collect --out /dev/null", "'/dev/null' is no folder"},
                      Bad{"fluxion collect --out /usr", "none of them is a collection's manifest.json"}));

TEST_P(BadFluxion, EndsWithTwoAndOneSentence) {
  const cli::Outcome outcome = cli::run(GetParam().arguments, cli::kOnlyErrors);
  EXPECT_EQ(outcome.code, 2) << outcome.text;
  EXPECT_THAT(outcome.text, ::testing::AllOf(::testing::StartsWith("tandem: "), HasSubstr(GetParam().says)));
  EXPECT_EQ(outcome.text.find('\n'), outcome.text.size() - 1) << outcome.text;
}

}  // namespace
}  // namespace tandem::testing
