#include <unordered_set>

#include "eval/ruler/draft.h"

namespace tandem::eval {
namespace {

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
    if (seed.task->hops == 1) {
      const auto& relation = wording_.facts.relations[random.below(wording_.facts.relations.size())];
      asked_.push_back(document(capitalised(fill(relation.fact, {{"a", a}, {"b", b}})), random));
      question_ = fill(relation.question, {{"a", a}});
      answer_ = b;
    } else {
      const auto& relation = wording_.facts.two_hops[random.below(wording_.facts.two_hops.size())];
      asked_.push_back(document(capitalised(fill(relation.first, {{"a", a}, {"b", b}})), random));
      asked_.push_back(document(capitalised(fill(relation.second, {{"b", b}, {"c", c}})), random));
      question_ = fill(relation.question, {{"a", a}});
      answer_ = c;
    }
    for (std::size_t i = 0; i < asked_.size(); ++i) positions_.push_back(random.next());
  }

  std::string prompt(std::uint32_t n, std::optional<double>* depth) override {
    while (units_.size() < n) {
      const auto& relation = wording_.facts.relations[hay_.below(wording_.facts.relations.size())];
      const std::string a = name(hay_), b = name(hay_);
      units_.push_back(document(capitalised(fill(relation.fact, {{"a", a}, {"b", b}})), hay_));
    }
    std::vector<const std::string*> documents;
    documents.reserve(n);
    for (std::uint32_t i = 0; i < n; ++i) documents.push_back(&units_[i]);
    std::vector<const std::string*> asked;
    asked.reserve(asked_.size());
    for (const std::string& one : asked_) asked.push_back(&one);
    put_among(documents, asked, positions_);
    std::string text = wording_.facts.intro + '\n';
    std::size_t begin = text.size(), asked_at = begin;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      if (documents[i] == &asked_[0]) asked_at = text.size();
      text += fill(wording_.facts.document, {{"i", std::to_string(i + 1)}, {"text", *documents[i]}}) + '\n';
    }
    const std::size_t room = text.size() - begin;
    if (depth != nullptr) *depth = static_cast<double>(asked_at - begin) / static_cast<double>(room);
    return text + fill(wording_.facts.question, {{"question", question_}});
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

}  // namespace

std::unique_ptr<Draft> draft_facts(const DraftSeed& seed) {
  return std::make_unique<FactDraft>(seed);
}

}  // namespace tandem::eval
