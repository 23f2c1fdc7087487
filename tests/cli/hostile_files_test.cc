// Files that are none, in every place that takes a file: a pipe without a writer, a device without an end, a file
// larger than any memory, a link round to itself. One sentence that names the file, soon and in little memory, and
// nothing else is changed.
#include <fcntl.h>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/common/paths.h"
#include "tests/cli/background.h"
#include "tests/cli/program_fixture.h"
#include "tests/files.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr long kMostMemory = 200'000;  // KB

enum class Kind { pipe, link_to_device, huge, round_link };
constexpr Kind kKinds[] = {Kind::pipe, Kind::link_to_device, Kind::huge, Kind::round_link};

void make(Kind kind, const fs::path& file) {
  fs::remove(file);
  if (kind == Kind::pipe) {
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  } else if (kind == Kind::link_to_device) {
    fs::create_symlink("/dev/zero", file);
  } else if (kind == Kind::round_link) {
    fs::create_symlink(file.filename(), file);
  } else {
    write_bytes(file, "");
    fs::resize_file(file, std::uintmax_t{1} << 40);  // takes no place on the disk
  }
}

class HostileFiles : public ProgramTest {
 protected:
  /// What lies in a folder: kinds, sizes and times of writing.
  static std::map<std::string, std::string> contents(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      struct stat status {};
      EXPECT_EQ(lstat(entry.path().c_str(), &status), 0);
      all[entry.path().string()] = std::to_string(status.st_mode) + " " + std::to_string(status.st_size) + " " +
                                   std::to_string(status.st_ino) +
                                   (S_ISDIR(status.st_mode) ? "" : " " + std::to_string(status.st_mtim.tv_nsec));
    }
    return all;
  }

  /// The command with `file` as each kind. `named`: what the sentence names.
  void refuses(const std::string& arguments, const fs::path& file, const std::string& named) {
    const fs::path errors = root_ / "errors";
    for (const Kind kind : kKinds) {
      const std::string what = arguments + ", kind " + std::to_string(static_cast<int>(kind));
      make(kind, file);
      const auto before = contents(data_);
      const pid_t child = cli::start(arguments, errors.string());
      EXPECT_TRUE(cli::ends_within(child, std::chrono::seconds(10))) << what;
      int status = 0;
      rusage used{};
      ASSERT_EQ(wait4(child, &status, 0, &used), child);
      const std::string said = read_bytes(errors);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2) << what << "\n" << said;
      EXPECT_THAT(said, HasSubstr(named)) << what;
      EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << what << "\n" << said;
      EXPECT_LT(used.ru_maxrss, kMostMemory) << what;
      EXPECT_EQ(contents(data_), before) << what;
    }
    fs::remove(file);
  }

  void refuses(const std::string& arguments, const fs::path& file) { refuses(arguments, file, file.string()); }

  /// A folder of ours in the one that commands are to leave as it is.
  fs::path data_folder(const fs::path& name) const {
    fs::create_directories(data_ / name);
    return data_ / name;
  }

  fs::path data_ = folder_of(root_);

 private:
  static fs::path folder_of(const TemporaryFolder& root) {
    fs::create_directory(root / "data");
    return root / "data";
  }
};

TEST_F(HostileFiles, OptionsThatTakeAFile) {
  const fs::path file = data_ / "aime.json";
  const std::string out = (data_ / "out").string();
  for (const char* command : {
           "generate --prompt-file ",
           "generate --prompt hi --method scoutattention:recall=",
           "generate --prompt hi --method fluxion:heads=",
           "eval perplexity --quiet --out {} --text ",
           "eval needle --quiet --out {} --ruler-essays ",
           "eval reasoning --quiet --out {} --data ",
           "profile heads --text-file ",
           "fluxion collect --out {} --text-file ",
           "compare --quiet --out {} --ruler-data ",
           "compare --quiet --out {} --ruler-essays ",
           "compare --quiet --out {} --tasks qa --ruler-qa ",
           "compare --quiet --out {} --as llama-3.1-8b --workload ",
           "compare --quiet --out {} --hw ",
           "simulate --as llama-3.1-8b --workload ",
           "simulate --as llama-3.1-8b --hw ",
           "plan --as llama-3.1-8b --hw ",
           "info --hw ",
           "calibrate --out {}.json --base h200 --probe ",
       }) {
    std::string arguments = command;
    if (const std::size_t at = arguments.find("{}"); at != std::string::npos) arguments.replace(at, 2, out);
    refuses(arguments + file.string(), file);
  }
  const std::string probe = (source_folder() / "results" / "probe-cpu-zen5-2core.json").string();
  for (const char* option : {"--base ", "--base h200 --kernels "})
    refuses("calibrate --out " + out + ".json --probe " + probe + " " + option + file.string(), file);
}

TEST_F(HostileFiles, FilesOfAModelFolder) {
  const fs::path model = data_folder("model");
  const auto fill = [&] {
    for (const auto& entry : fs::directory_iterator(data_path("models/tiny")))
      if (entry.is_regular_file())
        fs::copy_file(entry.path(), model / entry.path().filename(), fs::copy_options::overwrite_existing);
  };
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.model", "model.safetensors"}) {
    fill();
    refuses("info --model " + model.string(), model / name);
  }
  fill();
  fs::remove(model / "model.safetensors");
  refuses("info --model " + model.string(), model / "model.safetensors.index.json");
}

TEST_F(HostileFiles, FilesOfDataFolders) {
  const fs::path longbench = data_folder("longbench/config").parent_path(),
                 leval = data_folder("leval/Open-ended-tasks");
  refuses("eval longbench --quiet --data " + longbench.string(), longbench / "config/dataset2prompt.json",
          longbench.string());
  write_bytes(longbench / "config/dataset2prompt.json", R"({"qasper": "{context} {input}"})");
  write_bytes(longbench / "config/dataset2maxlen.json", R"({"qasper": 8})");
  refuses("eval longbench --quiet --data " + longbench.string(), data_folder("longbench/data") / "qasper.jsonl",
          (longbench / "data").string());
  refuses("eval leval --quiet --data " + leval.parent_path().string(), leval / "financial_qa.jsonl",
          leval.parent_path().string());
  refuses("eval reasoning --quiet --data " + data_folder("reasoning").string(), data_ / "reasoning/aime24.jsonl",
          data_folder("reasoning").string());
  refuses("compare --quiet --ruler-data " + data_folder("ruler").string(), data_folder("ruler/4096") / "vt.jsonl",
          "ruler");
}

TEST_F(HostileFiles, FilesOfARun) {
  const fs::path run = data_ / "run", first = root_ / "first";
  const std::string command =
      "compare --model tiny --quiet --no-plot --tasks niah_single_1 --lengths 512 --samples 1 --out ";
  ASSERT_EQ(cli::run(command + first.string()).code, 0);
  for (const char* name : {"manifest.json", "samples.jsonl", "timings.jsonl"}) {
    fs::remove_all(run);
    fs::copy(first, run);
    refuses("report " + run.string(), run / name, run.string());
    fs::remove_all(run);
    fs::copy(first, run);
    refuses("gate --baseline " + first.string() + " --run " + run.string(), run / name, run.string());
    fs::remove_all(run);
    fs::copy(first, run);
    refuses(command + run.string() + " --resume", run / name, run.string());
  }
  fs::remove_all(run);
  refuses("simulate --as llama-3.1-8b --resume --out " + data_folder("sweep").string(), data_ / "sweep/sweep.json",
          "sweep.json");
}

}  // namespace
}  // namespace tandem::testing
