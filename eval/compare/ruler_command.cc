// The options of `tandem compare`, which is `tandem eval ruler`, that choose samples.
#include <algorithm>
#include <fmt/core.h>

#include "engine/common/error.h"
#include "eval/compare/ruler_dataset.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

constexpr const char* kTasks = "single,multikey";
constexpr const char* kLengths = "1K,2K";
constexpr const char* kOneLength = "2K";
constexpr std::uint64_t kSeed = 42;

}  // namespace

std::vector<DatasetOption> ruler_file_options(RulerFiles& files) {
  return {{"--ruler-essays", &files.essays,
           "Text around the needles of the tasks that upstream hides in essays: {\"text\": ...} in a .json, or plain "
           "text (default: invented prose)"},
          {"--ruler-qa", &files.questions,
           "Questions and documents: a SQuAD file for qa_1, a HotpotQA file for qa_2, or both, each with its own "
           "--ruler-qa (default: questions on made-up facts)"}};
}

std::vector<DatasetOption> RulerCommand::options() {
  std::vector<DatasetOption> options = {
      {"--ruler-data", &ruler_data_,
       "Samples that NVIDIA/RULER made: a folder of <length>/<task>.jsonl, or one such file (default: the embedded "
       "source). No chat template is added; one that the files have is kept, its special tokens being read as such"}};
  for (DatasetOption& option : ruler_file_options(texts_)) options.push_back(std::move(option));
  for (DatasetOption& option : std::vector<DatasetOption>{
           {"--tasks", &tasks_,
            fmt::format("RULER tasks or groups: single, multikey, niah, qa, all [{}; of files: all]", kTasks)},
           {"--lengths", &lengths_,
            fmt::format("Context lengths in tokens: 4K,32768 [{}; with --equal: {}; of files: all]", kLengths,
                        kOneLength)},
           {"--samples", &samples_, "Samples per task and length; of files, at most what the shortest holds",
            DatasetOption::Shows::default_value},
           {"--seed", &seed_, fmt::format("Seed of the samples [{}; files have theirs]", kSeed)}})
    options.push_back(std::move(option));
  return options;
}

void RulerCommand::check(const DatasetHost&) {
  const bool embedded = ruler_data_.empty();
  if (!tasks_.empty() || embedded) what_.tasks = expand_ruler_tasks(tasks_.empty() ? kTasks : tasks_);
  if (!lengths_.empty() || embedded) {
    const char* all = one_length ? kOneLength : kLengths;
    what_.lengths = parse_lengths(lengths_.empty() ? all : lengths_, "--lengths");
  }
  if (one_length && what_.lengths.size() > 1)
    throw_input_error(
        "--equal sets budgets at one length, since what is equal at one is not at another, and --lengths has {}: give "
        "one, and `tandem report` puts runs side by side.",
        what_.lengths.size());
  what_.samples = samples_;
  check_range("--samples", samples_, 1, 100000);
  if (!embedded && !texts_.empty())
    throw_input_error(
        "--ruler-data has whole prompts, so that --ruler-essays and --ruler-qa have no place in it: give one or the "
        "other.");
  if (!embedded && seed_)
    throw_input_error("--seed makes the samples of the embedded source, and --ruler-data has its own: leave it away.");
  if (embedded) what_.seed = seed_.value_or(kSeed);
  what_.texts = read_ruler_texts(texts_, what_.tasks);
  what_.data_file = data = ruler_data_;
  what_.text_files = texts_;
  if (embedded) return;
  what_.official = std::make_shared<const OfficialRuler>(ruler_data_, what_.tasks, what_.lengths);
  what_.tasks = what_.official->tasks();
  what_.lengths = what_.official->lengths();
  what_.samples = std::min(samples_, what_.official->samples());
}

std::unique_ptr<Dataset> RulerCommand::open(const DatasetSetting& with) {
  return std::make_unique<Ruler>(what_, with.model);
}

std::vector<std::filesystem::path> RulerCommand::unread() const {
  return what_.official ? what_.official->unread() : std::vector<std::filesystem::path>();
}

std::vector<std::string> RulerCommand::notes(const Model& model) const {
  if (!what_.official) return {};
  return official_notes(*what_.official, samples_, *model.tokenizer);
}

}  // namespace tandem::eval
