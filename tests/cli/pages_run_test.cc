// Every command on a user's page is run, page by page in the page's order, in a scratch folder that looks like a clone
// with a build. Not run is what a reader sees to need something (needs()), and what another test or script runs
// (kRunElsewhere). docs/README.md says so to readers.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/common/paths.h"
#include "tests/cli/page_check.h"
#include "tests/cli/page_commands.h"
#include "tests/files.h"

namespace tandem::cli {
namespace {

using testing::TemporaryFolder;

/// Needs of a command that a comment may name.
constexpr const char* kNeeds[] = {"needs a GPU", "needs nvcc", "needs PyTorch", "needs Debian's python3-numpy"};

/// Commands that begin so are run by `file`, in the line that has `there`.
struct RunElsewhere {
  const char *begin, *file, *there;
};
constexpr RunElsewhere kRunElsewhere[] = {
    {"./scripts/quickstart.sh", ".ci/run", "scripts/quickstart.sh --"},
    {"scripts/test.sh", ".ci/run", "scripts/test.sh; }"},
    {"scripts/install_packages.sh", "scripts/test.sh", "scripts/install_packages.sh"},
    {"cmake --preset release", "scripts/common.sh", "cmake --preset"},
    {"cmake --build --preset release", "scripts/test.sh", "cmake --build --preset"},
    {"ctest --preset release", "scripts/test.sh", "ctest --test-dir"},
    {"build/release/tests/test_kernel_cases_emulated", "tests/CMakeLists.txt", "tandem_test(kernel_cases_emulated"},
    {"cmake --install", "tests/scripts/install_test.py", "--install"},
    {"tandem-probe", "tests/hardware/probe_program_test.cc", "TANDEM_PROBE_PROGRAM"},
    {"build/release/bin/tandem bench kernels --threads 1", "tests/cli/bench_test.cc",
     "bench kernels --quiet --kernel choose --rounds 1 --threads 1"},
    {"tandem validate --here", "tests/cli/validate_test.cc", "validate --here --quiet --methods full"},
};

/// In commands that begin so an option gets this value: if it is given there, if it is missing, or in any case.
enum class If { given, missing, any };
struct Shorter {
  const char *begin, *option, *value;
  If when;
  const char* unless = nullptr;  // not in commands that have this text
};
constexpr Shorter kShorter[] = {
    {"tandem compare", "--samples", "1", If::any},
    {"tandem compare --shard", "--samples", "2", If::given},
    {"tandem compare", "--lengths", "256", If::any},
    {"tandem compare", "--tasks", "niah_single_1", If::missing},
    {"tandem compare", "--methods", "full,streaming", If::missing},
    {"tandem compare", "--no-plot", "", If::missing},
    {"tandem compare", "--shard", "1/1", If::missing, "--as"},  // leaves out the steps that `tandem gate` predicts
    {"tandem compare --as", "--context", "2K", If::given},
    {"tandem eval", "--samples", "1", If::any},
    {"tandem eval longproc", "--tasks", "tom_tracking_0.5k", If::given},
    {"tandem eval", "--max-new", "16", If::given},
    {"tandem eval needle", "--lengths", "512", If::any},
    {"tandem eval needle", "--depths", "50", If::any},
    {"tandem eval leval", "--tasks", "tpo", If::missing},
    {"tandem eval", "--methods", "full", If::missing},
    {"tandem eval", "--no-plot", "", If::missing},
    {"tandem simulate", "--hw", "h100", If::given},
    {"tandem simulate", "--context", "4K", If::given},
    {"tandem simulate", "--batch", "1", If::any},
    {"tandem simulate", "--steps", "2", If::any},
    {"tandem simulate", "--methods", "full,quest", If::missing},
    {"tandem simulate", "--no-plot", "", If::missing},
    {"tandem advise", "--hw", "h100", If::given},
    {"tandem advise", "--context", "4K", If::given},
    {"tandem advise", "--batch", "1", If::given},
    {"tandem advise", "--methods", "full,streaming", If::missing},
    {"tandem validate", "--points", "points.json", If::any},
    {"tandem validate", "--no-plot", "", If::missing},
    {"tandem bench kernels", "--kernel", "choose", If::any},
    {"tandem bench kernels --threads", "--rounds", "1", If::missing},
    {"tandem bench kernels --out", "--rounds", "1", If::missing},
    {"tandem bench decode", "--model", "tiny", If::given},
    {"tandem bench decode", "--context", "256", If::given},
    {"tandem bench decode", "--steps", "2", If::any},
    {"tandem bench decode", "--rounds", "1", If::any},
    {"tandem bench prefill", "--tokens", "256", If::any},
    {"tandem bench prefill", "--rounds", "1", If::any},
    {"build/release/bench/bench_launches", "--context", "512", If::given},
    {"build/release/bench/bench_launches", "--layers", "1", If::missing},
    {"build/release/bench/bench_launches", "--steps", "1", If::missing},
    {"build/release/bench/bench_kernels", "--benchmark_list_tests=true", "", If::missing},
    {"build/release/bench/bench_attention", "--benchmark_list_tests=true", "", If::missing},
    {"build/release/bench/bench_tokenizer", "--benchmark_list_tests=true", "", If::missing},
    {"tandem fluxion collect", "--lengths", "512", If::given},
    {"tandem fluxion collect", "--samples", "1", If::given},
    {"tandem fluxion collect", "--decode-steps", "8", If::any},
    {"tandem fluxion collect --model DIR --out data/tasks", "--tasks", "niah_single_1", If::missing},
    {"tandem fluxion collect --model DIR --out data/new", "--tasks", "niah_single_1", If::missing},
    {"tandem generate", "--max-new", "8", If::any},
};

/// Files that a reader has and a command reads; `shell` makes them before the page's first command with `word` in it.
struct StandIn {
  const char *word, *shell;
};
constexpr StandIn kStandIns[] = {
    {"DIR", "cp -r models/seed DIR"},
    {"my-model", "ln -s models/tiny my-model"},
    {"~/models",
     "mkdir ~/models && (cd ~/models && cp -r ~/../models/tiny my-llama && ln -s my-llama Llama-3.1-8B-Instruct && "
     "ln -s my-llama Qwen3-8B && ln -s my-llama Qwen3-0.6B) && "
     R"(sed -i '1 a "chat_template": "Q: {{ messages[0].content }} A:",' ~/models/my-llama/tokenizer_config.json)"},
    {"LongBench", "scripts/small_datasets.py small && mkdir LongBench && mv small/longbench LongBench/LongBench"},
    {"LEval", "scripts/small_datasets.py small && mkdir LEval && mv small/leval LEval/LEval-data"},
    {"LongProc", "scripts/small_datasets.py small && mv small/longproc LongProc"},
    {"reasoning", "scripts/small_datasets.py small && mv small/reasoning ."},
    {"LEARN.txt", "scripts/small_datasets.py small && mv small/text.txt LEARN.txt"},
    {"squad.json", "scripts/small_datasets.py small && mv small/questions/* . && mv essays.json PaulGrahamEssays.json"},
    {"points.json", "head -6 hardware/validation/points.json | sed '$ s/,$/]}/' >points.json"},
    {"runs/a", "cp -r runs/mine runs/a && cp -r runs/mine runs/b"},
    {"gpu.json", "cp all.json gpu.json"},
    {"probe.json", "cp results/probe-cpu-zen5-2core.json probe.json"},
    {"base", "mv ci/baseline base && mv run less"},
};

/// Entries of the tables that a command used.
using Used = std::set<const void*>;

const RunElsewhere* elsewhere(const std::string& text) {
  const auto* const found =
      std::ranges::find_if(kRunElsewhere, [&](const RunElsewhere& entry) { return text.starts_with(entry.begin); });
  return found == std::end(kRunElsewhere) ? nullptr : found;
}

/// Whether `text` has `word` between spaces and the like.
bool has_word(const std::string& text, std::string_view word) {
  constexpr std::string_view kBorders = " =,/'";
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || kBorders.find(text[at - 1]) != std::string_view::npos) &&
        (end == text.size() || kBorders.find(text[end]) != std::string_view::npos))
      return true;
  }
  return false;
}

/// A part of a word in capitals, which stands for something that the reader has; the name of a variable that is set is
/// none.
bool is_placeholder(std::string_view part) {
  return part.size() > 1 && std::ranges::all_of(part, [](char c) { return c >= 'A' && c <= 'Z'; });
}

bool has_stand_in(std::string_view part) {
  return std::ranges::any_of(kStandIns,
                             [&](const StandIn& one) { return std::string_view(one.word).starts_with(part); });
}

/// The visible reason why a command cannot be run as it stands; empty if it can.
std::string needs(const PageCommand& command, Used& used) {
  const auto has = [&](const char* text) { return command.text.find(text) != std::string::npos; };
  for (const auto& what : kNeeds)
    if (command.comment.find(what) != std::string::npos) {
      used.insert(&what);
      return what;
    }
  if (has("--device cuda")) return "needs a GPU";
  if (has("https://")) return "needs the network";
  if (has("<")) return "needs what stands <in brackets>";
  for (const std::string& word : shell_words(command.text)) {
    std::string value = word.starts_with("-") ? word : word.substr(word.find('=') + 1);
    std::ranges::replace_if(
        value, [](char c) { return std::string_view("=,/.").find(c) != std::string_view::npos; }, ' ');
    std::istringstream parts(value);
    for (std::string part; parts >> part;)
      if (is_placeholder(part) && !has_stand_in(part)) return "needs the reader's " + part;
  }
  return "";
}

/// Mere names, and options that prose speaks of.
bool is_mention(const PageCommand& command) {
  const Words words = tandem_words(command.text);
  return command.in_prose && !words.empty() && (is_bare_name(words) || !refusal(words, /*whole=*/true).empty());
}

std::string shortened(std::string text, Used& used) {
  for (const Shorter& entry : kShorter) {
    const std::size_t begin = text.find(entry.begin);
    if (begin != 0 && (begin == std::string::npos || text[begin - 1] != '/')) continue;
    if (entry.unless != nullptr && text.find(entry.unless) != std::string::npos) continue;
    const std::string option = std::string(" ") + entry.option;
    const std::size_t at = (text + " ").find(option + " ");
    if (entry.when == (at == std::string::npos ? If::given : If::missing)) continue;
    used.insert(&entry);
    if (at == std::string::npos) {
      text += option + (*entry.value == '\0' ? "" : " ") + entry.value;
    } else {
      const std::size_t value = at + option.size() + 1;
      text.replace(value, std::min(text.find(' ', value), text.size()) - value, entry.value);
    }
  }
  return text;
}

/// A line of the page's script.
struct Step {
  std::string shell;
  std::string text;  // as on the page
};

/// The page as a script; what is not run is said on `log`.
std::vector<Step> steps_of(const std::vector<PageCommand>& commands, Used& used, std::ostream& log) {
  std::vector<Step> steps;
  Used made;
  for (const PageCommand& command : commands) {
    if (is_mention(command)) continue;
    if (const std::string what = needs(command, used); !what.empty()) {
      log << "not run, " << what << ": " << command.text << "\n";
      continue;
    }
    if (const RunElsewhere* const other = elsewhere(command.text); other != nullptr) {
      used.insert(other);
      log << "not run, but by " << other->file << ": " << command.text << "\n";
      continue;
    }
    const std::string shell = shortened(command.text, used);
    for (const StandIn& one : kStandIns)
      if (has_word(shell, one.word) && made.insert(&one).second) steps.push_back({one.shell, one.shell});
    steps.push_back({shell, command.text});
  }
  used.insert(made.begin(), made.end());
  return steps;
}

/// Runs the lines of ".run/steps" in one shell, so that variables and folders last. ".run/ends" gets each one's exit
/// code and milliseconds, ".run/N" what it printed. Debian's Python goes before others: the packages of
/// scripts/packages.txt are its.
constexpr const char* kRunner = R"bash(
cd "$1" && export HOME=$PWD/home PATH=$PWD/build/release/bin:/usr/bin:$PATH
run=$PWD/.run count=0
while IFS= read -r -u 9 line; do
  begin=${EPOCHREALTIME/./}
  eval "$line" >"$run/$count" 2>&1 9<&- <<<'Hello.'
  echo "$? $(((${EPOCHREALTIME/./} - begin) / 1000))" >>"$run/ends"
  count=$((count + 1))
done 9<"$run/steps"
)bash";

/// A folder in which a page's commands find what a clone with a build has.
void lay_out(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  fs::create_directories(folder / "build/release/bin");
  fs::create_directories(folder / "home");
  fs::create_directories(folder / ".run");
  // Folders of builds and runs stay out, or a page's command would write into them.
  const std::set<fs::path> left = {"build", ".git", ".cache", "runs"};
  for (const auto& entry : fs::directory_iterator(source_folder()))
    if (!left.contains(entry.path().filename())) fs::create_symlink(entry.path(), folder / entry.path().filename());
  fs::create_symlink(folder, folder / "tandem");
  fs::create_symlink(TANDEM_PROGRAM, folder / "build/release/bin/tandem");
  fs::create_symlink(TANDEM_BENCH_FOLDER, folder / "build/release/bench");
}

void expect_to_end_well(const std::vector<Step>& steps) {
  const TemporaryFolder scratch;
  lay_out(scratch.path());
  std::ostringstream lines;
  for (const Step& step : steps) lines << step.shell << "\n";
  testing::write_bytes(scratch / ".run/steps", lines.str());
  testing::write_bytes(scratch / ".run/runner", kRunner);
  const std::string command = "bash '" + (scratch / ".run/runner").string() + "' '" + scratch.path().string() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream results(scratch / ".run/ends");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    int code = -1, milliseconds = 0;
    results >> code >> milliseconds;
    std::cout << milliseconds << " ms: " << steps[i].shell << "\n";
    EXPECT_EQ(code, 0) << steps[i].text << "\nrun as: " << steps[i].shell << "\n"
                       << testing::read_bytes(scratch / (".run/" + std::to_string(i)));
  }
}

class PagesRun : public ::testing::TestWithParam<std::string> {};

TEST_P(PagesRun, EveryCommandEndsWell) {
  if (GetParam() == "bench/README.md" && !std::filesystem::exists(TANDEM_BENCH_FOLDER))
    GTEST_SKIP() << "this build has no benchmarks (TANDEM_BENCH)";
  Used used;
  const std::vector<Step> steps = steps_of(commands_of(GetParam()), used, std::cout);
  if (!steps.empty()) expect_to_end_well(steps);
}

std::string as_test_name(const ::testing::TestParamInfo<std::string>& page) {
  std::string name = page.param;
  std::ranges::replace_if(
      name, [](char c) { return std::string_view("/.-").find(c) != std::string_view::npos; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Of, PagesRun, ::testing::ValuesIn(page_names()), as_test_name);

TEST(PagesRunTables, HaveNothingThatNoPageNeeds) {
  Used used;
  std::ostringstream log;
  for (const std::string& page : page_names()) steps_of(commands_of(page), used, log);
  for (const auto& entry : kNeeds) EXPECT_TRUE(used.contains(&entry)) << entry;
  for (const RunElsewhere& entry : kRunElsewhere) {
    EXPECT_TRUE(used.contains(&entry)) << entry.begin;
    EXPECT_THAT(testing::read_bytes(source_folder() / entry.file), ::testing::HasSubstr(entry.there)) << entry.file;
  }
  for (const Shorter& entry : kShorter) EXPECT_TRUE(used.contains(&entry)) << entry.begin << " " << entry.option;
  for (const StandIn& entry : kStandIns) EXPECT_TRUE(used.contains(&entry)) << entry.word;
}

/// A program of the repository that the command runs, or a script of it that Python does; empty where there is none.
std::string own_program(const PageCommand& command) {
  const Words words = shell_words(command.text);
  const auto at =
      std::ranges::find_if(words, [](const std::string& word) { return word.find('=') == std::string::npos; });
  if (at == words.end() || at->starts_with("build/")) return "";
  if (*at == "python3" && at + 1 != words.end()) return *(at + 1);
  return at->find('/') == std::string::npos ? "" : *at;
}

TEST(Pages, ProgramsAreThere) {
  for (const std::string& page : page_names()) {
    for (const PageCommand& command : commands_of(page)) {
      const std::string program = own_program(command);
      if (program.empty()) continue;
      ASSERT_TRUE(std::filesystem::exists(source_folder() / program)) << page << ": " << command.text;
      const auto allowed = std::filesystem::status(source_folder() / program).permissions();
      EXPECT_TRUE(command.text.starts_with("python3 ") ||
                  (allowed & std::filesystem::perms::owner_exec) != std::filesystem::perms::none)
          << page << ": " << command.text << ": it cannot be executed";
    }
  }
}

TEST(Pages, CommandsAreReadAsAReaderDoes) {
  std::istringstream page(
      "Prose with `tandem methods quest`, `tandem gate`, `a/file.h` and `scripts/lint.sh\n--fix`.\n\n"
      "    M=x  # why\n    tandem info --model $M \\\n        --json\n\n```\nno command\ntandem info\n```\n");
  std::vector<std::string> texts;
  for (const PageCommand& command : commands_of(page))
    if (!is_mention(command)) texts.push_back(command.text);
  EXPECT_THAT(texts, ::testing::ElementsAre("tandem methods quest", "scripts/lint.sh --fix", "M=x",
                                            "tandem info --model $M --json", "tandem info"));
}

TEST(Pages, NeedsAreSeen) {
  Used used;
  const auto of = [&](const char* text, const char* comment = "") { return needs({text, comment}, used); };
  EXPECT_EQ(of("scripts/a.sh", "# needs nvcc; fast"), "needs nvcc");
  EXPECT_EQ(of("tandem info", "# needs time"), "");
  EXPECT_EQ(of("tandem info --device cuda"), "needs a GPU");
  EXPECT_EQ(of("git clone https://a/b"), "needs the network");
  EXPECT_EQ(of("A=b c.py --in FILE.json"), "needs the reader's FILE");
  EXPECT_EQ(of("tandem info --model runs/FOLDER/a"), "needs the reader's FOLDER");
  for (const char* text : {"MODEL=models/seed", "tandem info --model $MODEL -DTANDEM=4K", "tandem info --model DIR"})
    EXPECT_EQ(of(text), "");
}

TEST(Pages, ACommandThatFailsIsFound) {
  EXPECT_NONFATAL_FAILURE(expect_to_end_well({{"cd home", ""}, {"false", "a wrong command"}}), "a wrong command");
  expect_to_end_well({{"A=b", ""}, {"cd home && test $A = b", ""}, {"test ${PWD##*/} = home && tandem --version", ""}});
}

}  // namespace
}  // namespace tandem::cli
