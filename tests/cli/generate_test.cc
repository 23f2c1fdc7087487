// `tandem generate`: a prompt and a conversation as a user sees them.
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cli/background.h"
#include "tests/cli/program.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;

TEST(GenerateProgram, EveryMethodStreamsAndTellsItsTimes) {
  const std::string prompt = "generate --max-new 4 --prompt 'The secret number for a-b is 1234567.' --method ";
  for (const char* method : {"full", "streaming", "hybrid-fixed:budget=0.5"}) {
    const cli::Outcome text = cli::run(prompt + method, cli::kOnlyOutput);
    EXPECT_EQ(text.code, 0);
    EXPECT_TRUE(text.text.ends_with("\n") && text.text.size() > 1) << text.text;
    EXPECT_THAT(cli::run(prompt + method, cli::kOnlyErrors).text,
                ::testing::AllOf(HasSubstr("simulated for"), HasSubstr("TTFT"), HasSubstr("TPOT"), HasSubstr("idle")));
  }
}

TEST(GenerateProgram, AConversationPrefillsOnlyWhatIsNew) {
  // The model is no chat model: what it says does not matter here (but for a space that it begins with, which the
  // template takes away, so that all is prefilled anew), how the turns are prefilled does.
  const std::string command = "generate --model seed --chat --chat-format qwen2 --max-new 3 --prompt 'First words' < ";
  const TemporaryFolder folder;
  const std::string turns = (folder.path() / "turns").string();
  write_bytes(turns, "Second\n\nnever read\n");
  const cli::Outcome figures = cli::run(command + turns + " 2>&1 >/dev/null #", "");
  EXPECT_EQ(figures.code, 0) << figures.text;
  std::vector<int> prefilled;
  for (std::size_t at = 0; (at = figures.text.find("prefill of ", at)) != std::string::npos; ++at)
    prefilled.push_back(std::atoi(figures.text.c_str() + at + 11));
  ASSERT_EQ(prefilled.size(), 2u) << figures.text;
  EXPECT_GT(prefilled[0], 40);  // the default system message in a small vocabulary
  EXPECT_LT(prefilled[1], prefilled[0]);
  // Under an answer stands how fast this machine was, and simulated times only where they are asked for.
  EXPECT_THAT(figures.text, ::testing::ContainsRegex("first token [0-9.]+ s, then [0-9.]+ tokens/s\n"));
  EXPECT_THAT(figures.text, ::testing::Not(HasSubstr("simulated")));
  const cli::Outcome simulated = cli::run(
      "generate --model seed --hw h200 --chat --chat-format qwen2 --max-new 3 < " + turns + " 2>&1 >/dev/null #", "");
  EXPECT_THAT(simulated.text, ::testing::AllOf(HasSubstr("simulated for"), HasSubstr("TTFT"), HasSubstr("TPOT")));
  const cli::Outcome text = cli::run(command + turns + " 2>/dev/null #", "");
  EXPECT_EQ(std::count(text.text.begin(), text.text.end(), '\n') >= 2, true) << text.text;
}

TEST(GenerateProgram, AFoldersOwnTemplateIsRun) {
  const TemporaryFolder folder;
  const std::string model = (folder / "model").string();
  std::filesystem::copy(source_folder() / "models/tiny", model, std::filesystem::copy_options::recursive);
  const auto chat = [&](const std::string& text, const std::string& more) {
    write_bytes(folder / "model/chat_template.jinja", text);
    return cli::run("generate --chat --max-new 2 --model '" + model + "' --prompt 'One two' " + more, cli::kOnlyErrors);
  };
  const auto prefilled = [](const cli::Outcome& outcome) {
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    return std::atoi(outcome.text.substr(outcome.text.find("prefill of ") + 11).c_str());
  };
  const std::string text = "{{ bos_token }}{{ messages[-1].content }}{% if enable_thinking is false %} no{% endif %}";
  const int plain = prefilled(chat(text, ""));
  EXPECT_GT(prefilled(chat(text, "--no-thinking")), plain);
  EXPECT_GT(prefilled(chat("{{ messages[0].content }}" + text, "--system 'be brief'")), plain);
  const cli::Outcome nothing = chat("{{ messages[-1].content }}", "--no-thinking");
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.text, HasSubstr("--no-thinking changes nothing"));
  const cli::Outcome refused = chat("{{ raise_exception('only questions') }}", "");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.text, HasSubstr(model + "/chat_template.jinja: the chat template refuses this conversation: "
                                              "only questions."));
}

TEST(GenerateProgram, ASeedIsATextAndTemperatureZeroIsGreedy) {
  const auto say = [](const std::string& options) {
    const cli::Outcome outcome = cli::run("generate --prompt 'Some words' --max-new 12 " + options, cli::kOnlyOutput);
    EXPECT_EQ(outcome.code, 0);
    return outcome.text;
  };
  const std::string drawn = say("--temperature 2 --seed 7 --top-p 0.99");
  EXPECT_EQ(say("--temperature 2 --seed 7 --top-p 0.99 --threads 1"), drawn);
  EXPECT_NE(say("--temperature 2 --seed 8 --top-p 0.99"), drawn);
  EXPECT_EQ(say("--temperature 0"), say(""));
  EXPECT_EQ(say("--temperature 2 --top-k 1"), say(""));
}

TEST(GenerateProgram, APromptIsReadOnceSoThatPipesWork) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "prompt").string();
  write_bytes(file, "Some words\n");
  const cli::Outcome piped =
      cli::run("generate --max-new 3 --prompt-file /dev/stdin 2>&1 <<'END'\nSome words\nEND\n#", "");
  EXPECT_EQ(piped.code, 0) << piped.text;
  EXPECT_EQ(piped.text, cli::run("generate --max-new 3 --prompt-file " + file).text);
}

TEST(GenerateProgram, WindowsLineEndsAreNoPartOfATurn) {
  const TemporaryFolder folder;
  const std::string turns = (folder.path() / "turns").string();
  const auto say = [&](const std::string& text) {
    write_bytes(turns, text);
    return cli::run("generate --chat --chat-format qwen2 --device sim --max-new 3 < " + turns + " 2>&1 #", "").text;
  };
  EXPECT_EQ(say("First\r\nSecond\r\n\r\nnever read\r\n"), say("First\nSecond\n\nnever read\n"));
}

TEST(GenerateProgram, ASignalEndsTheWaitForATurn) {
  const TemporaryFolder folder;
  const std::string turns = (folder.path() / "turns").string();
  ASSERT_EQ(mkfifo(turns.c_str(), 0600), 0);
  const int open_end = open(turns.c_str(), O_RDWR | O_CLOEXEC);  // nobody writes, and the input does not end
  ASSERT_GE(open_end, 0);
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string errors = (folder.path() / fmt::format("errors{}", signal)).string();
    const pid_t child =
        cli::start("generate --chat --chat-format qwen2 --max-new 2 --prompt 'First words' < " + turns, errors);
    // The figures are the last that it does before it waits.
    const auto said = [&](const char* text) { return read_bytes(errors).find(text) != std::string::npos; };
    cli::wait_until([&] { return std::filesystem::exists(errors) && said("this machine:"); });
    kill(child, signal);
    EXPECT_TRUE(cli::ends_within(child, std::chrono::seconds(10))) << strsignal(signal) << ": it waits on";
    EXPECT_EQ(cli::exit_code_of(child), 0);
    EXPECT_TRUE(said("Stopping"));
  }
  close(open_end);
}

TEST(GenerateProgram, SaysWhatItAssumes) {
  const auto errors = [](const std::string& options) {
    return cli::run("generate --max-new 1 " + options, cli::kOnlyErrors).text;
  };
  EXPECT_THAT(errors("--prompt 'one</s>two'"), HasSubstr("text of a special token"));
  EXPECT_THAT(errors("--prompt 'one</two'"), ::testing::Not(HasSubstr("special token")));
  EXPECT_THAT(cli::run("generate --help").text, HasSubstr("Special tokens written in it"));
}

TEST(GenerateProgram, SyntheticModelsSayIdsAndAreNotScored) {
  const cli::Outcome text =
      cli::run("generate --model synthetic:qwen3-0.6b --prompt hello --max-new 3", cli::kOnlyOutput);
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.text, ::testing::MatchesRegex("( [0-9]+)+\n"));
  const cli::Outcome refused = cli::run("compare --model synthetic:qwen3-0.6b --out /tmp/never", cli::kOnlyErrors);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.text, HasSubstr("random weights"));
}

}  // namespace
}  // namespace tandem::testing
