// Names of lm-evaluation-harness's tasks on the command line.
#include "cli/task_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::cli {
namespace {

using Words = std::vector<std::string>;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

/// The words that `words` become, and what is said of it.
std::pair<Words, std::string> understood(const Words& words) {
  CaptureStderr();
  Words own = with_own_task_names(words);
  return {std::move(own), GetCapturedStderr()};
}

TEST(TaskNames, ANameOfATaskStandsForDatasetAndTask) {
  const std::pair<const char*, Words> cases[] = {{"longbench_hotpotqa", {"longbench", "hotpotqa"}},
                                                 {"longbench_qasper_e", {"longbench", "qasper_e"}},
                                                 {"niah_single_1", {"ruler", "niah_single_1"}},
                                                 {"ruler_vt", {"ruler", "vt"}},
                                                 {"ruler_qa_squad", {"ruler", "qa_1"}},
                                                 {"aime24", {"reasoning", "aime24"}},
                                                 {"minerva_math500", {"reasoning", "math500"}},
                                                 {"hendrycks_math500", {"reasoning", "math500"}},
                                                 {"gsm8k", {"reasoning", "gsm8k"}},
                                                 {"gpqa_diamond_zeroshot", {"reasoning", "gpqa_diamond"}},
                                                 {"aime24,minerva_math500", {"reasoning", "aime24,math500"}}};
  for (const auto& [name, own] : cases) {
    const Words wanted = {"eval", own[0], "--tasks", own[1], "--data", "x"};
    for (const Words& given : {Words{"eval", name, "--data", "x"}, Words{"eval", "--tasks", name, "--data", "x"}}) {
      const auto [words, said] = understood(given);
      EXPECT_EQ(words, wanted);
      EXPECT_EQ(said, std::string("lm-evaluation-harness's ") + name + " is taken for: tandem eval " + own[0] +
                          " --tasks " + own[1] + "\n");
    }
  }
}

TEST(TaskNames, SoDoNamesInTheListOfTasks) {
  EXPECT_EQ(understood({"eval", "longbench", "--tasks", "longbench_trec,qasper"}).first,
            (Words{"eval", "longbench", "--tasks", "trec,qasper"}));
  const auto [words, said] = understood({"compare", "--tasks=niah_single_1,ruler_cwe"});
  EXPECT_EQ(words, (Words{"compare", "--tasks=niah_single_1,cwe"}));
  EXPECT_THAT(said, HasSubstr("ruler_cwe is taken for: tandem eval ruler --tasks cwe"));
}

TEST(TaskNames, EverythingElseStays) {
  // The last one may be a file's name, of the user's.
  for (const Words& words :
       {Words{}, Words{"eval"}, Words{"eval", "needle", "--depths", "0"}, Words{"eval", "aime24,longbench_trec"},
        Words{"info", "gsm8k"}, Words{"eval", "leval", "--tasks", "ruler_vt"}, Words{"compare", "--out", "ruler_vt"},
        Words{"eval", "reasoning", "--tasks", "gpqa_diamond_zeroshot"}}) {
    const auto [own, said] = understood(words);
    EXPECT_EQ(own, words);
    EXPECT_EQ(said, "");
  }
}

}  // namespace
}  // namespace tandem::cli
