// Questions with the documents that answer them, from files: SQuAD (upstream's qa_1) and HotpotQA (its qa_2).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

struct QuestionSet {
  enum class Format { squad, hotpot };
  struct Question {
    std::string text;
    std::vector<std::string> answers;        // any of them is right; at least one, none empty
    std::vector<std::uint32_t> documents;    // that belong to it and are always there
    std::uint32_t article = 0;               // its other documents come before those of other articles
    std::optional<std::uint32_t> answer_in;  // index into `documents` of the first that the answer rests on, if known
  };
  Format format = Format::squad;
  std::vector<std::string> documents;                // each once
  std::vector<std::vector<std::uint32_t>> articles;  // documents of each
  std::vector<Question> questions;                   // at least one, each with other documents to stand among
  std::string file, hash;                            // of the file's bytes, 16 hexadecimal digits
};

/// SQuAD v1.1 and v2.0: {"data": [{"paragraphs": [{"context", "qas": [{"question", "answers": [{"text"}],
/// "is_impossible"?}]}]}]}; questions that are impossible or have no answer are left out. HotpotQA, distractor setting:
/// [{"question", "answer", "context": [[title, [sentence, ...]], ...], "supporting_facts"?: [[title, n], ...]}, ...].
/// Other fields are not looked at. InputError naming file, entry and field for anything else.
QuestionSet parse_questions(std::string_view bytes, const std::string& file);
QuestionSet read_questions(const std::filesystem::path& file);

}  // namespace tandem::eval
