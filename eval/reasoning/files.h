// Problems with one final answer each, a JSON object per line:
//   {"prompt": "...", "answer": 204}     the answer: text or a number
// The file's name is the task, and how it begins says what answers are: aime24.jsonl (whole numbers), gsm8k.jsonl
// (numbers; "#### 18" ends the answer), gpqa_diamond.jsonl ("\boxed{D}"), math500.jsonl (LaTeX). Other fields are not
// looked at.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "eval/answers/rules.h"

namespace tandem::eval {

struct ReasoningProblem {
  std::string prompt;
  std::string answer;  // the final one alone
};

struct ReasoningFile {
  AnswerKind kind = AnswerKind::expression;
  std::vector<ReasoningProblem> problems;
  std::uint64_t hash = 0;  // of the file
};

/// By the beginning of the task's name. InputError for another one.
AnswerKind answer_kind_of(std::string_view task);

/// The lines of one file; `file` is for error sentences, which name the line and the field. Empty lines are skipped,
/// and a prompt that is there twice is refused.
std::vector<ReasoningProblem> parse_reasoning(std::string_view text, AnswerKind kind, const std::string& file);

/// `data`: a folder, a .jsonl, or several .jsonl with commas between. Of a folder the files of these tasks, and no
/// other is opened; none given: all that are there, by name. InputError, naming file, line and field.
std::map<std::string, ReasoningFile> read_reasoning(const std::string& data, std::vector<std::string>& tasks);

/// The .jsonl files of a folder that no task is read from, since their names do not say what their answers are.
std::vector<std::filesystem::path> unread_reasoning(const std::string& data);

}  // namespace tandem::eval
