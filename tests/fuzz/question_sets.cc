// LongBench's rows and configurations, L-Eval's and reasoning rows: what is accepted is asked as a run asks it.
#include <nlohmann/json.hpp>

#include "eval/leval/leval.h"
#include "eval/longbench/longbench.h"
#include "eval/reasoning/reasoning.h"
#include "tests/eval/leval/leval_folder.h"
#include "tests/eval/longbench/longbench_folder.h"
#include "tests/fuzz/fuzz.h"

namespace tandem::fuzz {
namespace {

using namespace eval;

void ask_longbench(const tandem::testing::LongBenchFolder& folder) {
  std::vector<std::string> tasks = {"trec"};
  for (const auto& [task, file] : read_longbench(folder.path(), tasks))
    for (const LongBenchRecord& record : file.records) longbench_prompt(file.prompt, record);
}

fuzz::Format longbench_file(const tandem::testing::LongBenchFolder& folder, const std::string& name) {
  const std::string whole = fuzz::read_seed((folder.path() / name).string());
  return {name, {whole}, [&folder, name, whole](const std::string& input) {
            folder.write(name, input);
            try {
              ask_longbench(folder);
            } catch (...) {
              folder.write(name, whole);  // the other formats need it
              throw;
            }
            folder.write(name, whole);
          }};
}

fuzz::Format leval_rows(const tandem::testing::LEvalFolder& folder, const std::string& task,
                        const std::string& evaluation, const std::vector<std::string>& answers) {
  folder.add(task, evaluation, {"One document.", "And \xc3\xa9 other."}, {"Which?", "Why?"}, answers);
  const LEvalDataset& dataset = leval_dataset(task);
  const char* kind = dataset.closed ? "Closed-ended-tasks" : "Open-ended-tasks";
  return {task,
          {fuzz::read_seed((folder.path() / kind / (task + ".jsonl")).string())},
          [&dataset](const std::string& input) { parse_leval(input, dataset, "rows.jsonl"); }};
}

fuzz::Format reasoning_rows(const std::string& task, const std::vector<std::string>& answers) {
  std::string rows;
  for (const std::string& answer : answers)
    rows += nlohmann::json{{"prompt", "How many? " + answer}, {"answer", answer}}.dump() + "\n";
  const AnswerKind kind = answer_kind_of(task);
  return {task, {rows}, [kind](const std::string& input) { parse_reasoning(input, kind, "rows.jsonl"); }};
}

}  // namespace

int fuzz_question_sets(int argc, char** argv) {
  const tandem::testing::LongBenchFolder longbench;
  longbench.add("trec", 2);
  const tandem::testing::LEvalFolder leval;
  std::vector<fuzz::Format> formats;
  for (const char* name : {"data/trec.jsonl", "config/dataset2prompt.json", "config/dataset2maxlen.json"})
    formats.push_back(longbench_file(longbench, name));
  formats.push_back(leval_rows(leval, "tpo", "exam", {"A", "BD"}));
  formats.push_back(leval_rows(leval, "narrative_qa", "f1", {"the barn", "rain"}));
  formats.push_back(reasoning_rows("aime24", {"204", "7"}));
  formats.push_back(reasoning_rows("gsm8k", {"Two and two.\n#### 4", "1,200"}));
  formats.push_back(reasoning_rows("gpqa_diamond", {"\\boxed{D}", "A"}));
  formats.push_back(reasoning_rows("math500", {"\\frac{1}{2}", "x^2+1"}));
  return fuzz::run(argc, argv, formats);
}

}  // namespace tandem::fuzz
