#include <algorithm>
#include <numeric>

#include "engine/common/error.h"
#include "eval/ruler/draft.h"
#include "eval/ruler/questions.h"

namespace tandem::eval {
namespace {

template <class Item>
void shuffle(std::vector<Item>& items, Random& random) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

/// A question of a file. The unit is a document that does not belong to it: as upstream, first those of the same
/// article, then any others, then all of them again.
class DocumentDraft : public Draft {
 public:
  DocumentDraft(const DraftSeed& seed, const QuestionSet& set)
      : wording_(ruler_wording()), set_(set), question_(chosen(seed, set)), hay_(seed.stream(1)) {
    Random random = seed.stream(0);
    std::vector<bool> taken(set_.documents.size());
    for (const std::uint32_t number : question_.documents) {
      asked_.push_back(&set_.documents[number]);
      positions_.push_back(random.next());
      taken[number] = true;
    }
    for (const std::uint32_t number : set_.articles[question_.article]) {
      if (!taken[number]) others_.push_back(number);
      taken[number] = true;
    }
    shuffle(others_, hay_);
    shuffled_ = others_.size();
    for (std::uint32_t number = 0; number < set_.documents.size(); ++number) {
      if (!taken[number]) others_.push_back(number);
    }
  }

  std::string prompt(std::uint32_t n, std::optional<double>* depth) override {
    for (; shuffled_ < std::min<std::size_t>(n, others_.size()); ++shuffled_)
      std::swap(others_[shuffled_], others_[shuffled_ + hay_.below(others_.size() - shuffled_)]);
    std::vector<const std::string*> documents;
    documents.reserve(n + asked_.size());
    for (std::uint32_t i = 0; i < n; ++i) documents.push_back(&set_.documents[others_[i % others_.size()]]);
    put_among(documents, asked_, positions_);
    std::string text = wording_.facts.intro + "\n\n";
    const std::size_t begin = text.size();
    std::size_t asked_at = begin;
    const std::string* const marked = question_.answer_in ? asked_[*question_.answer_in] : nullptr;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      if (documents[i] == marked) asked_at = text.size();
      text += fmt::format("Document {}:\n{}\n\n", i + 1, *documents[i]);
    }
    if (depth != nullptr) {
      depth->reset();
      if (marked != nullptr) *depth = static_cast<double>(asked_at - begin) / static_cast<double>(text.size() - begin);
    }
    return text + wording_.facts.intro + "\n\n" + fill(wording_.facts.question, {{"question", question_.text}});
  }

  std::vector<std::string> answers() const override { return question_.answers; }

 private:
  /// In an order that follows from seed and task alone: every length asks the same questions, none twice.
  static const QuestionSet::Question& chosen(const DraftSeed& seed, const QuestionSet& set) {
    if (seed.index >= set.questions.size()) {
      throw_input_error(
          "The questions '{}' are {}, and each is asked once per length: {} samples of {} need more. Lower --samples.",
          set.file, set.questions.size(), std::uint64_t{seed.index} + 1, seed.task->name);
    }
    std::vector<std::uint32_t> order(set.questions.size());
    std::iota(order.begin(), order.end(), 0u);
    Random random(mix64(seed.seed ^ fnv1a64(seed.task->name)));
    shuffle(order, random);
    return set.questions[order[seed.index]];
  }

  const RulerWording& wording_;
  const QuestionSet& set_;
  const QuestionSet::Question& question_;
  Random hay_;
  std::vector<const std::string*> asked_;
  std::vector<std::uint64_t> positions_;
  std::vector<std::uint32_t> others_;  // in the order in which they come, as far as they are shuffled
  std::size_t shuffled_ = 0;
};

}  // namespace

std::unique_ptr<Draft> draft_documents(const DraftSeed& seed, const QuestionSet& set) {
  return std::make_unique<DocumentDraft>(seed, set);
}

}  // namespace tandem::eval
