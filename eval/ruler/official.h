// RULER samples that NVIDIA/RULER has made, read as they are: one JSONL file per task and length,
//   <folder>/<length>/<task>.jsonl or <folder>/<length>/<task>/validation.jsonl, or one such file alone.
// A line has "input" and "outputs", and may have "answer_prefix", which upstream puts behind the input; other fields
// are not looked at, "index" neither: upstream's needle tasks write the answer's place there, which repeats and may be
// -1. Nothing is added to a prompt but the tokenizer's begin-of-sequence token. Tokens to generate, scoring and
// post-processing follow from the task's name, as upstream.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/ruler/ruler.h"

namespace tandem::eval {

struct OfficialSample {
  std::string prompt;
  std::vector<std::string> answers;
};

/// The lines of one file; `file` is for error sentences, which name the line and the field. Empty lines are skipped.
std::vector<OfficialSample> parse_official(std::string_view text, const std::string& file);

class OfficialRuler {
 public:
  /// InputError for a path without such files, a file of no RULER task, a malformed line, and a task that is not there
  /// at every length.
  explicit OfficialRuler(const std::filesystem::path& path);

  const std::vector<std::string>& tasks() const { return tasks_; }  // in upstream's order
  const std::vector<std::uint32_t>& lengths() const { return lengths_; }
  /// Samples that every file has.
  std::uint32_t samples() const;
  /// The `n`-th sample of a file, n < samples(). `length` names the file; prompts are as long as they are.
  RulerSample sample(std::string_view task, std::uint32_t length, std::uint32_t n,
                     const TokenCounter& count_tokens) const;
  /// Of the files' content: 16 hexadecimal digits.
  std::string hash() const;

 private:
  struct File {
    std::vector<OfficialSample> samples;
    std::uint64_t hash = 0;
  };
  std::map<std::pair<std::string, std::uint32_t>, File> files_;  // by task and length
  std::vector<std::string> tasks_;
  std::vector<std::uint32_t> lengths_;
};

}  // namespace tandem::eval
