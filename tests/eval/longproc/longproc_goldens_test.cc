// LongProc against upstream's Python: longproc_goldens.json, made by longproc_goldens.py.
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "eval/longproc/tasks.h"
#include "eval/ruler_tasks/random.h"
#include "tests/engine/model/model_folder.h"
#include "tests/test_data.h"

namespace tandem::eval {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class LongProcGoldens : public ::testing::Test {
 protected:
  LongProcGoldens() {
    const char* other = std::getenv("TANDEM_LONGPROC_GOLDENS");
    std::ifstream file(other != nullptr ? other : source_folder() / "tests/eval/longproc/longproc_goldens.json");
    goldens_ = Json::parse(file);
    for (const auto& [name, text] : goldens_.at("files").items()) write(name, text.get<std::string>());
  }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name, std::ios::binary) << text;
  }
  std::string file(const std::string& name) const { return goldens_.at("files").at(name).get<std::string>(); }
  std::string refused(std::vector<std::string> tasks = {}) const {
    try {
      read_longproc(folder_.path(), tasks);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  testing::TemporaryFolder folder_;
  Json goldens_;
};

TEST_F(LongProcGoldens, PromptsAndReferencesAreUpstreams) {
  std::vector<std::string> tasks;
  const auto files = read_longproc(folder_.path(), tasks);
  EXPECT_EQ(tasks.size(), 12u) << "those with files";
  std::size_t samples = 0;
  for (const Json& golden : goldens_.at("samples")) {
    const PromptSample& sample =
        files.at(golden.at("task").get<std::string>()).samples.at(golden.at("index").get<std::size_t>());
    EXPECT_EQ(sample.prompt, golden.at("prompt").get<std::string>());
    EXPECT_EQ(sample.reference, golden.at("reference").get<std::string>());
    ++samples;
  }
  std::size_t read = 0;
  for (const auto& [task, one] : files) read += one.samples.size();
  EXPECT_EQ(read, samples);
  EXPECT_EQ(files.at("countdown_0.5k").max_new_tokens, 1024u);
  EXPECT_EQ(files.at("countdown_2k").max_new_tokens, 3072u);
  EXPECT_EQ(files.at("countdown_8k").max_new_tokens, 9216u);
  EXPECT_NE(files.at("countdown_2k").hash, files.at("countdown_8k").hash);
}

TEST_F(LongProcGoldens, ScoresAreUpstreams) {
  std::map<std::string, int> between;  // answers that are neither right nor worthless
  int compared = 0, refused = 0;
  for (const Json& golden : goldens_.at("samples")) {
    const auto task = golden.at("task").get<std::string>(), reference = golden.at("reference").get<std::string>();
    for (const Json& one : golden.at("answers")) {
      std::string answer;
      for (const Json& part : one.at(0)) {
        answer += part.is_string() ? part.get<std::string>()
                                   : reference.substr(part.at(0).get<std::size_t>(),
                                                      part.at(1).get<std::size_t>() - part.at(0).get<std::size_t>());
      }
      const auto scores = longproc_scores(task, reference, answer);
      if (one.at(1).is_null()) {  // upstream's program ends with an error
        ++refused;
        continue;
      }
      EXPECT_EQ(scores.size(), one.at(1).size());
      for (const auto& [name, score] : scores) {
        EXPECT_NEAR(score, one.at(1).at(name).get<double>(), 1e-12) << task << ' ' << name << '\n' << answer;
      }
      const double partial = scores.at(scores.size() == 4 ? 0 : 1).second;
      between[task.substr(0, task.rfind('_'))] += partial > 0 && partial < 1 ? 1 : 0;
      ++compared;
    }
  }
  std::cout << compared << " answers compared, " << refused << " end upstream's program\n";
  for (const auto& [kind, answers] : between) EXPECT_GT(answers, 20) << kind;
}

TEST_F(LongProcGoldens, BadFilesAreRefused) {
  const std::string name = "data/countdown/countdown_2k.json", good = file(name);
  EXPECT_THAT(refused({"countdown_4k"}), HasSubstr("'countdown_4k' is none of html_to_tsv_0.5k, "));
  EXPECT_THAT(refused({"pseudo_to_code_2k"}), HasSubstr("'pseudo_to_code_2k' is none of"));
  write(name, good.substr(0, good.size() / 2));
  EXPECT_THAT(refused(), HasSubstr("countdown_2k.json: not valid JSON from byte"));
  write(name, "{}");
  EXPECT_THAT(refused(), HasSubstr("countdown_2k.json must hold a list of samples"));
  for (const char* field : {"nums", "target", "demonstration"}) {
    Json samples = Json::parse(good);
    samples.at(1).erase(field);
    write(name, samples.dump());
    EXPECT_THAT(refused(), HasSubstr("countdown_2k.json, sample 2: '" + std::string(field) + "' is missing."));
  }
  std::filesystem::remove(folder_.path() / name);
  EXPECT_THAT(refused({"countdown_2k"}), HasSubstr("countdown_2k.json"));
  EXPECT_EQ(refused(), "nothing was refused") << "the others are there";
  write("data/countdown/countdown_8k.json", good);
  EXPECT_THAT(refused(), HasSubstr("two examples are not in countdown_0.5k and _8k"));
  write(name, good);
  write("data/countdown/countdown_8k.json", file("data/countdown/countdown_8k.json"));
  Json paths = Json::parse(file("data/path_traversal/path_traversal_2k.json"));
  paths.at(0).at("question_repr") = "Arlo";
  write("data/path_traversal/path_traversal_2k.json", paths.dump());
  EXPECT_THAT(refused({"path_traversal_2k"}),
              HasSubstr("path_traversal_2k.json, sample 1: 'question_repr/0' is missing"));
  std::filesystem::remove(folder_.path() / "data/html_to_tsv/webpage/P0_2k.html");
  EXPECT_THAT(refused({"html_to_tsv_2k"}), HasSubstr("webpage/P0_2k.html"));
  write("data/html_to_tsv/prompts.yaml", "SYSTEM: x\n");
  EXPECT_THAT(refused({"html_to_tsv_2k"}), HasSubstr("prompts.yaml must begin with"));
  write("data/tom_tracking/prompts.yaml", "USER_PROMPT: |-\n  {story} {mood}\n");
  EXPECT_THAT(refused({"tom_tracking_2k"}), HasSubstr("tom_tracking/prompts.yaml: argument not found"));
  std::filesystem::remove_all(folder_.path() / "data");
  EXPECT_THAT(refused(), HasSubstr("or another file of LongProc's"));
}

struct PublishedTask {
  const char* task;
  std::size_t samples;
  std::uint64_t hash;
};

class PublishedLongProc : public ::testing::TestWithParam<PublishedTask> {};

/// As `longproc_goldens.py CHECKOUT --published` prints them.
TEST_P(PublishedLongProc, PromptsAndReferencesAreUpstreams) {
  const auto checkout = testing::test_data("longproc");
  const std::string task = GetParam().task, file = "longproc/data/" + task.substr(0, task.rfind('_')) + "/" + task;
  if (checkout.empty() || testing::test_data(file + ".json").empty())
    GTEST_SKIP() << testing::missing_test_data(file + ".json");
  std::vector<std::string> tasks = {task};
  const PromptFile read = read_longproc(checkout, tasks).at(task);
  EXPECT_EQ(read.samples.size(), GetParam().samples);
  std::string text;
  for (const PromptSample& sample : read.samples) {
    text += sample.prompt + '\0' + sample.reference + '\0';
    const std::string answer = task.starts_with("html_to_tsv")      ? "```tsv\n" + sample.reference + "\n```"
                               : task.starts_with("path_traversal") ? "<Route>\n" + sample.reference + "\n</Route>"
                                                                    : sample.reference;
    EXPECT_EQ(longproc_scores(task, sample.reference, answer).front().second, 1) << sample.reference;
  }
  EXPECT_EQ(fnv1a64(text), GetParam().hash);
}

INSTANTIATE_TEST_SUITE_P(Files, PublishedLongProc,
                         ::testing::Values(PublishedTask{"countdown_0.5k", 200, 0x195bdecda608424c},
                                           PublishedTask{"countdown_2k", 200, 0x5a6e4ce8bc478ff2},
                                           PublishedTask{"countdown_8k", 200, 0xe16cc7f1daac6c75},
                                           PublishedTask{"html_to_tsv_0.5k", 100, 0x500e4f9b3a0085fa},
                                           PublishedTask{"html_to_tsv_2k", 189, 0x8451dea4c7566397},
                                           PublishedTask{"html_to_tsv_8k", 120, 0xdacd7c12840d7424},
                                           PublishedTask{"path_traversal_0.5k", 200, 0xece63867a2bb2e0a},
                                           PublishedTask{"tom_tracking_0.5k", 200, 0x9bc41bdd5d842cd3},
                                           PublishedTask{"tom_tracking_2k", 200, 0x3c9da09cbb0a4be3}),
                         [](const ::testing::TestParamInfo<PublishedTask>& one) {
                           std::string name = one.param.task;
                           name.erase(std::remove(name.begin(), name.end(), '.'), name.end());
                           return name;
                         });

}  // namespace
}  // namespace tandem::eval
