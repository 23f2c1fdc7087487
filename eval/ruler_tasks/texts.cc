#include "eval/ruler_tasks/texts.h"

#include <algorithm>

#include "engine/common/error.h"
#include "eval/ruler_tasks/ruler.h"

namespace tandem::eval {
namespace {

bool has(const std::vector<std::string>& tasks, std::string_view name) {
  return std::find(tasks.begin(), tasks.end(), name) != tasks.end();
}

/// What `read` makes of the file; an error begins with the option's name.
template <class Read>
auto read_for(const char* option, const std::string& file, const Read& read) {
  try {
    return std::make_shared<const decltype(read(file))>(read(file));
  } catch (const InputError& error) {
    throw_input_error("{}: {}", option, error.what());
  }
}

void read_questions_for(const std::string& file, const std::vector<std::string>& tasks, RulerTexts& texts) {
  auto set = read_for("--ruler-qa", file, read_questions);
  const bool squad = set->format == QuestionSet::Format::squad;
  const char* const task = squad ? "qa_1" : "qa_2";
  auto& place = squad ? texts.squad : texts.hotpot;
  if (place != nullptr)
    throw_input_error("--ruler-qa: '{}' and '{}' both hold questions for {}: give one of them.", place->file, file,
                      task);
  if (!has(tasks, task)) {
    throw_input_error("--ruler-qa: '{}' holds questions for {} ({} format), which is not among --tasks: add it.", file,
                      task, squad ? "SQuAD" : "HotpotQA");
  }
  place = std::move(set);
}

}  // namespace

RulerTexts read_ruler_texts(const RulerFiles& files, const std::vector<std::string>& tasks) {
  RulerTexts texts;
  if (!files.essays.empty()) {
    std::vector<std::string> with_prose;
    for (const RulerTask& task : ruler_tasks()) {
      if (task.haystack == RulerTask::Haystack::prose) with_prose.push_back(task.name);
    }
    const bool used = std::any_of(tasks.begin(), tasks.end(), [&](const auto& task) { return has(with_prose, task); });
    if (!used)
      throw_input_error("--ruler-essays: none of --tasks hides needles in essays; those that do are {}.",
                        join_names(with_prose));
    texts.essays = read_for("--ruler-essays", files.essays, read_essays);
  }
  for (const std::string& file : files.questions) read_questions_for(file, tasks, texts);
  return texts;
}

}  // namespace tandem::eval
