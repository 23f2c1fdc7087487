// RULER samples that NVIDIA/RULER has made, read as they are: one JSONL file per task and length, as
//   <length>/<task>.jsonl
//   <length>/<task>/validation.jsonl
//   <length>/data/<task>/validation.jsonl      as upstream's run.sh leaves them
// anywhere inside a folder, or one such file alone. Other files are not read.
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

#include "engine/model/tokenizer.h"
#include "eval/ruler_tasks/ruler.h"

namespace tandem::eval {

/// The prompts and answers of one file; `file` is for error sentences, which name the line and the field. Empty lines
/// are skipped, and a prompt that is there twice is refused.
std::vector<RulerSample> parse_official(std::string_view text, const std::string& file);

/// Upstream writes the template of the model that its samples are made for into the samples.
struct ChatTemplate {
  std::string mark;    // "<|im_start|>", "[INST]", "USER:"; empty: none, a plain prompt
  bool known = false;  // of a template that upstream has, or one that other models have; else it only looks like a mark
  /// Its special tokens are in the text, and not just words.
  bool has_specials() const { return !mark.empty() && (mark[0] == '<' || mark[0] == '['); }
};

/// What the prompt begins with, begin tokens aside; or, of templates of words, the speaker's name near its beginning
/// where the assistant's stands near its end.
ChatTemplate chat_template_of(std::string_view prompt);

/// Token ids of a prompt, beginning with the tokenizer's begin token if it has one. Of a plain prompt all text is text;
/// of one with a chat template special tokens are read as such, and a begin token that it writes out is not doubled.
std::vector<std::int32_t> encode_official(const Tokenizer& tokenizer, std::string_view prompt);

class OfficialRuler {
 public:
  /// Reads the files of these tasks and lengths, and opens no other. No tasks: those that are there at one of the
  /// lengths; no lengths: those at which one of the tasks is there. InputError for a path without such files, a
  /// malformed line, two files of a task and length, and a task that is not there at one of the lengths.
  explicit OfficialRuler(const std::filesystem::path& path, std::vector<std::string> tasks = {},
                         std::vector<std::uint32_t> lengths = {});

  const std::vector<std::string>& tasks() const { return tasks_; }        // as asked for; else in upstream's order
  const std::vector<std::uint32_t>& lengths() const { return lengths_; }  // as asked for; else ascending
  /// What the folder holds and no task and length are known of, sorted: .jsonl files in other places, predictions of
  /// run.sh aside, and folders that cannot be read, with a slash at the end.
  const std::vector<std::filesystem::path>& unread() const { return unread_; }
  /// Samples that every file has.
  std::uint32_t samples() const;
  /// A file that has no more than these: "qa_1 at length 4096".
  std::string fewest() const;
  /// The `n`-th sample of a file, n < samples(). `length` names the file; prompts are as long as they are, and where
  /// the needle is is not known.
  RulerSample sample(std::string_view task, std::uint32_t length, std::uint32_t n,
                     const TokenCounter& count_tokens) const;
  /// Of the content of the files that were read: 16 hexadecimal digits.
  std::string hash() const;
  /// Of the first prompt that has one; a known one goes before what only looks like one.
  ChatTemplate chat_template() const;

 private:
  struct File {
    std::vector<RulerSample> samples;
    std::uint64_t hash = 0;
  };
  using Key = std::pair<std::string, std::uint32_t>;  // task and length
  const std::pair<const Key, File>& shortest() const;

  std::map<Key, File> files_;
  std::vector<std::filesystem::path> unread_;
  std::vector<std::string> tasks_;
  std::vector<std::uint32_t> lengths_;
};

}  // namespace tandem::eval
