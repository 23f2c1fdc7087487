#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "engine/common/error.h"
#include "eval/ruler_tasks/draft.h"

namespace tandem::eval {
namespace {

/// Puts asked[i] among `documents`, which it makes longer, at positions[i], full random words.
void put_among(std::vector<const std::string*>& documents, const std::vector<const std::string*>& asked,
               const std::vector<std::uint64_t>& positions) {
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const auto at = scaled_place(positions[i], static_cast<std::uint32_t>(documents.size()));
    documents.insert(documents.begin() + at, asked[i]);
  }
}

/// Documents as `write(number, text)` writes them. `depth`: where `marked` begins among them, if it is one.
template <class Write>
std::string list_documents(const std::vector<const std::string*>& documents, const std::string* marked,
                           std::optional<double>* depth, const Write& write) {
  std::string text;
  std::optional<std::size_t> at;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    if (documents[i] == marked) at = text.size();
    text += write(i + 1, *documents[i]);
  }
  if (depth != nullptr) depth->reset();
  if (depth != nullptr && at) *depth = static_cast<double>(*at) / static_cast<double>(text.size());
  return text;
}

std::string capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

/// Questions on made-up facts: documents of invented prose with one fact each. qa_1 asks for one fact; qa_2 for one
/// that follows from two, in two documents. The unit is a document with a fact that is not asked for.
class FactDraft : public Draft {
 public:
  explicit FactDraft(const DraftSeed& seed) : wording_(ruler_wording()), hay_(seed.stream(1)) {
    Random random = seed.stream(0);
    const std::string a = name(random), b = name(random), c = name(random);
    names_in_question_ = names_;
    const auto& relations = seed.task->hops == 1 ? wording_.relations : wording_.two_hops;
    const RulerWording::Relation& relation = relations[random.below(relations.size())];
    for (const std::string& fact : relation.facts)
      asked_.push_back(document(capitalised(fill(fact, {{"a", a}, {"b", b}, {"c", c}})), random));
    question_ = fill(relation.question, {{"a", a}});
    answer_ = seed.task->hops == 1 ? b : c;
    for (std::size_t i = 0; i < asked_.size(); ++i) positions_.push_back(random.next());
  }

  std::string prompt(std::uint32_t n, std::optional<double>* depth) override {
    while (units_.size() < n) {
      const std::string& fact = wording_.relations[hay_.below(wording_.relations.size())].facts.front();
      const std::string a = name(hay_), b = name(hay_);
      units_.push_back(document(capitalised(fill(fact, {{"a", a}, {"b", b}})), hay_));
    }
    std::vector<const std::string*> documents;
    documents.reserve(n);
    for (std::uint32_t i = 0; i < n; ++i) documents.push_back(&units_[i]);
    std::vector<const std::string*> asked;
    asked.reserve(asked_.size());
    for (const std::string& one : asked_) asked.push_back(&one);
    put_among(documents, asked, positions_);
    const auto write = [&](std::size_t number, const std::string& text) {
      return fill(wording_["qa/document"], {{"i", std::to_string(number)}, {"text", text}}) + '\n';
    };
    return wording_["qa/intro"] + '\n' + list_documents(documents, &asked_[0], depth, write) +
           fill(wording_["qa/question"], {{"question", question_}});
  }

  std::vector<std::string> answers() const override { return {answer_}; }

 private:
  /// "the able acid"; each once in a sample, so that a question has one answer, while there are enough of them.
  std::string name(Random& random) {
    const std::size_t enough = wording_.nouns.size() * wording_.adjectives.size() / 2;
    for (;;) {
      std::string text = "the " + wording_.adjectives[random.below(wording_.adjectives.size())] + " " +
                         wording_.nouns[random.below(wording_.nouns.size())];
      if (names_.insert(text).second) return text;
      if (names_.size() >= enough && names_in_question_.count(text) == 0) return text;
    }
  }

  std::string document(const std::string& fact, Random& random) {
    std::vector<std::string> sentences;
    for (std::uint64_t i = 2 + random.below(4); i > 0; --i) sentences.push_back(random_prose(wording_, random));
    const auto at = static_cast<std::uint32_t>(random.below(sentences.size() + 1));
    return scatter(sentences, sentences.size(), {fact}, {at});
  }

  const RulerWording& wording_;
  Random hay_;
  std::unordered_set<std::string> names_, names_in_question_;
  std::vector<std::string> asked_, units_;
  std::vector<std::uint64_t> positions_;
  std::string question_, answer_;
};

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
    const std::string intro = wording_["qa/intro"] + "\n\n";
    const std::string* const marked = question_.answer_in ? asked_[*question_.answer_in] : nullptr;
    const auto write = [](std::size_t number, const std::string& text) {
      return fmt::format("Document {}:\n{}\n\n", number, text);
    };
    return intro + list_documents(documents, marked, depth, write) + intro +
           fill(wording_["qa/question"], {{"question", question_.text}});
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

std::unique_ptr<Draft> draft_questions(const DraftSeed& seed) {
  const QuestionSet* set = (seed.task->hops == 1 ? seed.texts->squad : seed.texts->hotpot).get();
  if (set == nullptr) return std::make_unique<FactDraft>(seed);
  return std::make_unique<DocumentDraft>(seed, *set);
}

}  // namespace tandem::eval
