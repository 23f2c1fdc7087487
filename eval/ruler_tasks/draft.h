// Inside eval/ruler: a sample whose haystack can still grow. The fit in ruler.cc asks for prompts of n units until the
// largest n that fits the length is found.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eval/ruler_tasks/ruler.h"
#include "eval/ruler_tasks/wording.h"

namespace tandem::eval {

/// What a sample follows from, and nothing else.
struct DraftSeed {
  const RulerTask* task;
  std::uint32_t length, index;
  std::uint64_t seed;
  const RulerTexts* texts;
  /// Independent streams of random numbers of this sample.
  Random stream(std::uint64_t which) const;
};

class Draft {
 public:
  virtual ~Draft() = default;
  /// The prompt with `n` units of haystack (sentences, words or documents). `depth` as RulerSample::depth.
  virtual std::string prompt(std::uint32_t n, std::optional<double>* depth) = 0;
  /// What the answer must contain, in the order of the text or the question.
  virtual std::vector<std::string> answers() const = 0;
};

std::unique_ptr<Draft> make_draft(const DraftSeed& seed);       // by its task's family:
std::unique_ptr<Draft> draft_needles(const DraftSeed& seed);    // needles.cc: niah_*
std::unique_ptr<Draft> draft_chains(const DraftSeed& seed);     // needles.cc: vt
std::unique_ptr<Draft> draft_common(const DraftSeed& seed);     // word_counts.cc: cwe
std::unique_ptr<Draft> draft_frequent(const DraftSeed& seed);   // word_counts.cc: fwe
std::unique_ptr<Draft> draft_questions(const DraftSeed& seed);  // documents.cc: qa_*, on made-up facts or of files

/// Sentences with `lines` put among them; lines[i] goes before sentence `places[i]` (ascending), all joined by spaces.
/// `starts[i]`, if asked for: where line i begins.
std::string scatter(const std::vector<std::string>& sentences, std::size_t count, const std::vector<std::string>& lines,
                    const std::vector<std::uint32_t>& places, std::vector<std::size_t>* starts = nullptr);

/// Uniform in [0, n], from a full random word drawn beforehand: it moves little when n grows.
inline std::uint32_t scaled_place(std::uint64_t random_word, std::uint32_t n) {
  return static_cast<std::uint32_t>(((random_word >> 32) * (std::uint64_t{n} + 1)) >> 32);
}

}  // namespace tandem::eval
