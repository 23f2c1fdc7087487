#include "eval/scoring/segment_chinese.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/python.h"

namespace tandem::eval {
namespace {

constexpr const char* kScript = "eval/scoring/segment_chinese.py";

std::string run_script(const std::string& lines) {
  PythonAnswer answer = ask_python(kScript, lines);
  switch (answer.end) {
    case PythonEnd::done:
      return std::move(answer.text);
    case PythonEnd::failed:
      throw_run_error("{} failed: Chinese texts were not cut into words.", kScript);
    case PythonEnd::no_package:
    case PythonEnd::not_installed:
      throw_input_error(
          "The scores of Chinese texts need {}, which finds their words: install the Debian package python3-jieba "
          "(scripts/install_packages.sh --chinese).",
          answer.end == PythonEnd::no_package ? "Python's jieba" : "python3 and its jieba");
    case PythonEnd::not_started:
      break;
  }
  throw_run_error("No new process could be started: Chinese texts were not cut into words.");
}

std::vector<std::string> words_of(const std::string& line) {
  const nlohmann::json words = json_or_discarded(line);
  const bool good = words.is_array() && std::ranges::all_of(words, [](const auto& word) { return word.is_string(); });
  if (!good) throw_run_error("{} wrote a line that is no list of words.", kScript);
  return words.get<std::vector<std::string>>();
}

}  // namespace

std::vector<std::vector<std::string>> segment_chinese(std::span<const std::string> texts) {
  if (texts.empty()) return {};
  std::string lines;
  for (const std::string& text : texts) lines += json_quoted(text, /*ascii=*/true) + '\n';
  const std::string answer = run_script(lines);
  std::vector<std::vector<std::string>> result;
  for (std::size_t begin = 0; begin < answer.size();) {
    const std::size_t end = std::min(answer.find('\n', begin), answer.size());
    result.push_back(words_of(answer.substr(begin, end - begin)));
    begin = end + 1;
  }
  if (result.size() != texts.size())
    throw_run_error("{} cut {} texts into words, not {}.", kScript, result.size(), texts.size());
  return result;
}

void require_segmenter() {
  run_script("");
}

}  // namespace tandem::eval
