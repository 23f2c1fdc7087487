// Texts from files in place of RULER's embedded ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

/// The haystack of upstream's needle tasks: one long text (upstream: essays by Paul Graham), as words, with the places
/// between its sentences where needles can stand.
struct Essays {
  std::vector<std::string> words;        // what stands between white space, at least one
  std::vector<std::uint32_t> sentences;  // first word of each sentence, ascending; the first is 0
  std::string hash;                      // of the file's bytes, 16 hexadecimal digits

  // The text repeats without end:
  const std::string& word(std::uint64_t n) const { return words[n % words.size()]; }
  /// Sentences that begin before word `n`. Every repetition begins one.
  std::uint64_t sentences_before(std::uint64_t n) const;
  /// The word that sentence `n` begins with.
  std::uint64_t first_word(std::uint64_t n) const;
};

/// JSON ({"text": "..."}, as upstream's download script writes it) where `file` ends in .json, else plain UTF-8 text.
/// InputError, naming `file`, for anything else, for a text without words and for one without spaces.
Essays parse_essays(std::string_view bytes, const std::string& file);
Essays read_essays(const std::filesystem::path& file);

/// Questions with the documents that answer them: SQuAD (upstream's qa_1) and HotpotQA (its qa_2).
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

/// Those of a run; null: embedded.
struct RulerTexts {
  std::shared_ptr<const Essays> essays;       // around the needles of tasks with prose
  std::shared_ptr<const QuestionSet> squad;   // qa_1
  std::shared_ptr<const QuestionSet> hotpot;  // qa_2
};

/// The files of --ruler-essays and --ruler-qa.
struct RulerFiles {
  std::string essays;                  // empty: none
  std::vector<std::string> questions;  // SQuAD's or HotpotQA's format, at most one of each
  bool empty() const { return essays.empty() && questions.empty(); }
};

/// InputError for files that cannot be read, for two of one format, and for one that none of `tasks` uses: it would
/// change nothing, which is hardly what was meant.
RulerTexts read_ruler_texts(const RulerFiles& files, const std::vector<std::string>& tasks);

}  // namespace tandem::eval
