#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "engine/common/json.h"
#include "engine/common/json_lines.h"
#include "engine/common/read_file.h"
#include "eval/reasoning/reasoning.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestFile = std::size_t{1} << 30;  // bytes
constexpr std::string_view kSuffix = ".jsonl";

struct KindOfName {
  std::string_view begins;
  AnswerKind kind;
  const char* answer;
};
constexpr std::array<KindOfName, 4> kKinds = {{{"aime", AnswerKind::integer, "whole number"},
                                               {"gpqa", AnswerKind::letter, "choice from A to D, as in '\\boxed{D}'"},
                                               {"gsm8k", AnswerKind::number, "number, as in '#### 18'"},
                                               {"math", AnswerKind::expression, "answer"}}};

const KindOfName* kind_by_name(std::string_view task) {
  const auto found = std::ranges::find_if(kKinds, [&](const auto& kind) { return task.starts_with(kind.begins); });
  return found == kKinds.end() ? nullptr : &*found;
}

ReasoningProblem problem_of(const JsonLine& line, AnswerKind kind) {
  ReasoningProblem problem{line.text("prompt"), ""};
  if (problem.prompt.empty()) line.refuse("'prompt' is empty");
  const nlohmann::json& answer = line.field("answer");
  if (!answer.is_string() && !answer.is_number()) line.refuse("'answer' must hold text or a number");
  const auto reference = reference_answer(answer.is_string() ? answer.get<std::string>() : json_text(answer), kind);
  if (!reference) {
    const char* expected = std::ranges::find(kKinds, kind, &KindOfName::kind)->answer;
    line.refuse(fmt::format("'answer' holds {}, no {}", json_excerpt(answer), expected));
  }
  problem.answer = *reference;
  return problem;
}

std::string task_of(const fs::path& file) {
  return file.stem().string();
}

bool is_folder(const fs::path& path) {
  std::error_code refused;
  return fs::is_directory(path, refused);
}

/// By task.
std::map<std::string, fs::path> files_in(const fs::path& folder) {
  std::map<std::string, fs::path> files;
  std::error_code refused;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, refused)) {
    stop_if_interrupted();
    const fs::path& path = entry.path();
    if (path.extension() == kSuffix && kind_by_name(task_of(path)) != nullptr) files.emplace(task_of(path), path);
  }
  if (refused) throw_input_error("--data: '{}' cannot be read: {}.", folder.string(), refused.message());
  if (files.empty()) {
    throw_input_error(
        "--data: '{}' holds no problems, as aime24.jsonl, gpqa_diamond.jsonl, gsm8k.jsonl or math500.jsonl.",
        folder.string());
  }
  return files;
}

/// Of a list with commas; a path with a comma that exists is one file.
std::map<std::string, fs::path> files_listed(const std::string& data) {
  std::map<std::string, fs::path> files;
  const bool one = path_exists(data);
  for (std::size_t at = 0; at <= data.size();) {
    const std::size_t end = one ? data.size() : std::min(data.find(',', at), data.size());
    const fs::path file = data.substr(at, end - at);
    if (!path_exists(file)) throw_input_error("--data: there is no file or folder '{}'.", file.string());
    if (is_folder(file)) throw_input_error("--data: give one folder, or files: '{}' is a folder.", file.string());
    if (!files.emplace(task_of(file), file).second)
      throw_input_error("--data: two files are named '{}', and names are tasks.", task_of(file));
    at = end + 1;
  }
  return files;
}

}  // namespace

AnswerKind answer_kind_of(std::string_view task) {
  if (const KindOfName* kind = kind_by_name(task)) return kind->kind;
  throw_input_error(
      "'{}' does not say what its answers are: names of tasks and files begin with aime (whole numbers), gsm8k "
      "(numbers), gpqa (A to D) or math (LaTeX).",
      task);
}

std::vector<ReasoningProblem> parse_reasoning(std::string_view text, AnswerKind kind, const std::string& file) {
  std::vector<ReasoningProblem> problems;
  std::unordered_map<std::string, std::size_t> lines;  // of prompts
  for_each_json_line(text, file, [&](const JsonLine& line) {
    problems.push_back(problem_of(line, kind));
    const auto [earlier, is_new] = lines.try_emplace(problems.back().prompt, line.number());
    if (!is_new) {
      line.refuse(fmt::format("'prompt' is that of line {}: as two problems it would count twice; remove one of them",
                              earlier->second));
    }
  });
  return problems;
}

std::vector<fs::path> unread_reasoning(const std::string& data) {
  if (!is_folder(data)) return {};
  std::set<fs::path> read;
  for (const auto& [task, path] : files_in(data)) read.insert(path);
  return unread_files({data}, read);
}

std::map<std::string, ReasoningFile> read_reasoning(const std::string& data, std::vector<std::string>& tasks) {
  const std::map<std::string, fs::path> there = is_folder(data) ? files_in(data) : files_listed(data);
  std::vector<std::string> names;
  names.reserve(there.size());
  for (const auto& [task, path] : there) names.push_back(task);
  if (tasks.empty()) tasks = names;
  std::map<std::string, ReasoningFile> files;
  for (const std::string& task : tasks) {
    ReasoningFile& file = files[task];
    file.kind = answer_kind_of(task);
    const auto found = there.find(task);
    if (found == there.end())
      throw_input_error("--tasks: there is no '{}{}'; --data holds {}.", task, kSuffix, fmt::join(names, ", "));
    const std::string text = read_file(found->second, kLargestFile);
    file.problems = parse_reasoning(text, file.kind, found->second.string());
    file.hash = fnv1a64(text);
  }
  return files;
}

}  // namespace tandem::eval
