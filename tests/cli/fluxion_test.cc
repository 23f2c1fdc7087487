// tandem fluxion collect as a user meets it: the folder, ending and going on, and what bad options say.
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/json.h"
#include "tests/cli/background.h"
#include "tests/cli/program_fixture.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kCollect =
    "fluxion collect --quiet --tasks niah_single_1 --lengths 512 --samples 2 --decode-steps 4 "
    "--steps 2 --out ";

TEST(FluxionCollect, WritesTheSameFolderWhateverTheThreads) {
  const TemporaryFolder folder;
  const cli::Outcome first = cli::run(kCollect + (folder.path() / "a").string());
  const cli::Outcome second = cli::run(kCollect + (folder.path() / "b").string() + " --threads 1");
  ASSERT_EQ(first.code, 0) << first.text;
  ASSERT_EQ(second.code, 0) << second.text;
  EXPECT_THAT(first.text, HasSubstr("2 prompts, 192 rows of 41 features"));
  for (const char* file : {"manifest.json", "niah_single_1-512-0000.safetensors", "niah_single_1-512-0001.safetensors"})
    EXPECT_EQ(read_bytes(folder.path() / "a" / file), read_bytes(folder.path() / "b" / file));
  const Json manifest = parse_json(read_bytes(folder.path() / "a" / "manifest.json"), "JSON");
  EXPECT_EQ(manifest.at("schema"), "tandem-fluxion-2");
  EXPECT_EQ(manifest.at("finished"), true);
  EXPECT_EQ(manifest.at("plan").at("features").size(), 41u);
  EXPECT_EQ(manifest.at("shards").size(), 2u);
  // Nothing is left to do.
  const cli::Outcome again = cli::run(kCollect + (folder.path() / "a").string() + " --resume");
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_EQ(read_bytes(folder.path() / "a" / "manifest.json"), read_bytes(folder.path() / "b" / "manifest.json"));
}

TEST(FluxionCollect, GoesOnAfterAnInterrupt) {
  const TemporaryFolder folder;
  const std::string options =
      "fluxion collect --quiet --tasks niah_single_1 --lengths 512 --samples 12 --decode-steps 4 --steps 2 --out ";
  const fs::path cut = folder.path() / "cut", whole = folder.path() / "whole";
  const pid_t child = cli::start(options + cut.string());
  cli::wait_for_file(cut / "niah_single_1-512-0001.safetensors");
  kill(child, SIGINT);
  EXPECT_EQ(cli::exit_code_of(child), 3);
  EXPECT_EQ(parse_json(read_bytes(cut / "manifest.json"), "JSON").at("finished"), false);
  EXPECT_EQ(cli::run(options + cut.string() + " --resume").code, 0);
  EXPECT_EQ(cli::run(options + whole.string()).code, 0);
  EXPECT_EQ(read_bytes(cut / "manifest.json"), read_bytes(whole / "manifest.json"));  // with every file's hash
  EXPECT_EQ(std::distance(fs::directory_iterator(cut), {}), std::distance(fs::directory_iterator(whole), {}));
}

TEST(FluxionCollect, AnInterruptBeforeTheFirstPromptLeavesWhatWasToBeReplaced) {
  const TemporaryFolder folder;
  const fs::path out = folder.path() / "data", said = folder.path() / "said";
  ASSERT_EQ(cli::run(kCollect + out.string()).code, 0);
  const auto before = contents(out);
  const pid_t child = cli::start(
      "fluxion collect --quiet --tasks niah_single_1 --lengths 16K --samples 2 --decode-steps 4 --steps 2 --force "
      "--out " +
          out.string(),
      said.string());
  ASSERT_TRUE(cli::wait_until_locked(out)) << "/proc/locks does not have it";
  kill(child, SIGTERM);
  EXPECT_EQ(cli::exit_code_of(child), 3);
  EXPECT_THAT(read_bytes(said),
              HasSubstr("Interrupted before a prompt was finished; '" + out.string() + "' is as it was"));
  EXPECT_EQ(contents(out), before);
}

TEST(FluxionCollect, ATextThatChangedIsAnotherPlan) {
  const TemporaryFolder folder;
  const fs::path text = folder.path() / "text.txt", out = folder.path() / "data";
  std::string words;
  for (int i = 0; i < 600; ++i) words += "The tide came in at noon, and number " + std::to_string(i) + " was called. ";
  write_bytes(text, words);
  const std::string command = "fluxion collect --quiet --lengths 512 --samples 1 --decode-steps 2 --steps 1 --out " +
                              out.string() + " --text-file " + text.string();
  const cli::Outcome first = cli::run(command);
  ASSERT_EQ(first.code, 0) << first.text;
  EXPECT_EQ(cli::run(command + " --resume").code, 0);
  words[9] = 'x';
  write_bytes(text, words);
  const cli::Outcome changed = cli::run(command + " --resume");
  EXPECT_EQ(changed.code, 2);
  EXPECT_THAT(changed.text, HasSubstr("begun with another plan: 'prompts' is \"text.txt, "));
}

TEST(FluxionCollect, RulersTasksInEssaysOfAFileAreOtherPromptsAndAnotherPlan) {
  const TemporaryFolder folder;
  const fs::path essays = folder.path() / "essays.txt";
  std::string words;
  for (int i = 0; i < 900; ++i) words += "The tide came in at noon, and number " + std::to_string(i) + " was called. ";
  write_bytes(essays, words);
  const auto collect = [&](const char* name, const std::string& more) {
    return cli::run(
        "fluxion collect --quiet --tasks niah_single_2 --lengths 512 --samples 1 --decode-steps 2 --steps 1 --out " +
        (folder.path() / name).string() + more);
  };
  const std::string with = " --ruler-essays " + essays.string();
  ASSERT_EQ(collect("plain", "").code, 0);
  const cli::Outcome first = collect("essays", with);
  ASSERT_EQ(first.code, 0) << first.text;
  EXPECT_NE(read_bytes(folder.path() / "plain/niah_single_2-512-0000.safetensors"),
            read_bytes(folder.path() / "essays/niah_single_2-512-0000.safetensors"));
  const Json plan = parse_json(read_bytes(folder.path() / "essays/manifest.json"), "JSON").at("plan");
  EXPECT_THAT(plan.at("prompts").get<std::string>(),
              ::testing::MatchesRegex("RULER, embedded; essays: essays.txt, [0-9a-f]{16}"));
  EXPECT_EQ(collect("essays", " --resume").code, 2);
  EXPECT_EQ(collect("essays", with + " --resume").code, 0);
}

TEST(FluxionCollect, ANameThatIsNoTextCanBeResumed) {
  const TemporaryFolder folder;
  const fs::path text = folder.path() / "bad\xff.txt";
  std::string words;
  for (int i = 0; i < 600; ++i) words += "The tide came in at noon, and number " + std::to_string(i) + " was called. ";
  write_bytes(text, words);
  const std::string command = "fluxion collect --quiet --lengths 512 --samples 1 --decode-steps 2 --steps 1 --out " +
                              (folder.path() / "data").string() + " --text-file " + text.string();
  ASSERT_EQ(cli::run(command).code, 0);
  const cli::Outcome again = cli::run(command + " --resume");
  EXPECT_EQ(again.code, 0) << again.text;
}

INSTANTIATE_TEST_SUITE_P(
    Fluxion, RefusedUsage,
    ::testing::Values(
        cli::BadUsage{"fluxion", "see tandem fluxion --help."},
        cli::BadUsage{"fluxion colect", "tandem fluxion has no 'colect'. Did you mean 'collect'?"},
        cli::BadUsage{"fluxion collect", "--out is missing"},
        cli::BadUsage{"fluxion collect --out /proc/none --steps 40", "--steps is 40: give 1 to --decode-steps (32)."},
        cli::BadUsage{"fluxion collect --out /proc/none --tau 0", "--tau is 0"},
        cli::BadUsage{"fluxion collect --out /proc/none --mass 1.5", "--mass is 1.5"},
        cli::BadUsage{"fluxion collect --out /proc/none --samples 0", "--samples is 0"},
        cli::BadUsage{"fluxion collect --out /proc/none --window 0", "a window of at least 1"},
        cli::BadUsage{"fluxion collect --out /proc/none --lengths 320", "of 320 tokens, sinks (64) and window (256)"},
        cli::BadUsage{"fluxion collect --out /proc/none --lengths 400", "400 is too short for cwe"},
        cli::BadUsage{"fluxion collect --out /proc/none --lengths 1M", "positions of model 'embedded'"},
        cli::BadUsage{"fluxion collect --out /proc/none --tasks niah_singel_1", "Did you mean 'niah_single_1'?"},
        cli::BadUsage{"fluxion collect --out /proc/none --text-file /no/such", "'/no/such' cannot be read"},
        cli::BadUsage{"fluxion collect --out /proc/none --model synthetic:llama-3.1-8b", "has random weights"},
        cli::BadUsage{"fluxion collect --out /proc/none --force --resume", "give one of them"},
        cli::BadUsage{"fluxion collect --out /proc/none --text-file a --ruler-qa b", "change nothing with --text-file"},
        cli::BadUsage{"fluxion collect --out /proc/none --tasks niah_single_1 --ruler-essays a",
                      "none of --tasks hides"},
        cli::BadUsage{"fluxion collect --out /no/such/folder --resume", "there is no collection in"},
        cli::BadUsage{"fluxion collect --out /dev/null", "'/dev/null' is no folder"},
        cli::BadUsage{"fluxion collect --out /usr", "none of them is a collection's manifest.json"}));

}  // namespace
}  // namespace tandem::testing
