#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/read_file.h"
#include "eval/ruler_tasks/random.h"
#include "eval/ruler_tasks/texts.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::json;

/// A value with the way to it, "data[3].paragraphs[0]", for error sentences.
class Node {
 public:
  Node(const Json& json, const std::string& file, std::string way) : json_(json), file_(file), way_(std::move(way)) {}

  [[noreturn]] void refuse(const std::string& what) const {
    throw_input_error("The questions '{}'{}{}: {}.", file_, way_.empty() ? "" : ", ", way_, what);
  }
  std::optional<Node> find(const char* name) const {
    if (!json_.is_object()) refuse("an object is expected");
    const auto found = json_.find(name);
    if (found == json_.end()) return std::nullopt;
    return Node(*found, file_, way_.empty() ? name : way_ + "." + name);
  }
  Node at(const char* name) const {
    if (auto found = find(name)) return *std::move(found);
    refuse(fmt::format("the field '{}' is missing", name));
  }
  std::vector<Node> items() const {
    if (!json_.is_array()) refuse("a list is expected");
    std::vector<Node> nodes;
    nodes.reserve(json_.size());
    for (std::size_t i = 0; i < json_.size(); ++i) nodes.emplace_back(json_[i], file_, fmt::format("{}[{}]", way_, i));
    return nodes;
  }
  /// Without white space at its ends, never empty.
  std::string text() const {
    const std::string_view inside = strip(any_text());
    if (inside.empty()) refuse("the text is empty");
    return std::string(inside);
  }
  const std::string& any_text() const {
    if (!json_.is_string()) refuse("a string is expected");
    return json_.get_ref<const std::string&>();
  }
  bool truth() const {
    if (!json_.is_boolean()) refuse("true or false is expected");
    return json_.get<bool>();
  }

 private:
  const Json& json_;
  const std::string& file_;
  std::string way_;
};

/// Gives every document its number, the same one to the same text.
class Documents {
 public:
  std::uint32_t number(std::string text) {
    const auto [at, is_new] = numbers_.emplace(std::move(text), static_cast<std::uint32_t>(numbers_.size()));
    return at->second;
  }
  std::vector<std::string> list() && {
    std::vector<std::string> texts(numbers_.size());
    while (!numbers_.empty()) {
      auto one = numbers_.extract(numbers_.begin());
      texts[one.mapped()] = std::move(one.key());
    }
    return texts;
  }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

template <class Item>
void add_once(std::vector<Item>& list, Item item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(std::move(item));
}

std::vector<std::string> squad_answers(const Node& asked) {
  std::vector<std::string> answers;
  const auto impossible = asked.find("is_impossible");
  if (impossible && impossible->truth()) return answers;
  for (const Node& one : asked.at("answers").items())
    add_once(answers, one.at("text").text());  // annotators often agree
  return answers;
}

void read_squad(const Node& root, QuestionSet& set) {
  Documents documents;
  for (const Node& article : root.at("data").items()) {
    std::vector<std::uint32_t> numbers;
    for (const Node& paragraph : article.at("paragraphs").items()) {
      const std::uint32_t number = documents.number(paragraph.at("context").text());
      add_once(numbers, number);
      for (const Node& asked : paragraph.at("qas").items()) {
        QuestionSet::Question question{asked.at("question").text(),
                                       squad_answers(asked),
                                       {number},
                                       static_cast<std::uint32_t>(set.articles.size()),
                                       0};
        if (!question.answers.empty()) set.questions.push_back(std::move(question));
      }
    }
    set.articles.push_back(std::move(numbers));
  }
  set.documents = std::move(documents).list();
}

/// Titles of the paragraphs of a HotpotQA entry that the answer rests on.
std::vector<std::string> supporting_titles(const Node& entry) {
  std::vector<std::string> titles;
  const auto facts = entry.find("supporting_facts");
  if (!facts) return titles;
  for (const Node& fact : facts->items()) {
    const std::vector<Node> pair = fact.items();
    if (pair.empty()) fact.refuse("a list of a title and a sentence's number is expected");
    titles.push_back(pair[0].any_text());
  }
  return titles;
}

void read_hotpot(const Node& root, QuestionSet& set) {
  Documents documents;
  for (const Node& entry : root.items()) {
    const std::vector<std::string> titles = supporting_titles(entry);
    QuestionSet::Question question{entry.at("question").text(), {entry.at("answer").text()}, {}, 0, std::nullopt};
    const Node context = entry.at("context");
    for (const Node& paragraph : context.items()) {
      const std::vector<Node> pair = paragraph.items();
      if (pair.size() != 2) paragraph.refuse("a list of a title and its sentences is expected");
      std::string text = pair[0].text() + '\n';
      for (const Node& sentence : pair[1].items()) text += sentence.any_text();
      const bool supports = std::find(titles.begin(), titles.end(), pair[0].any_text()) != titles.end();
      const std::size_t before = question.documents.size();
      add_once(question.documents, documents.number(std::string(strip(text))));
      if (supports && !question.answer_in && question.documents.size() > before)
        question.answer_in = static_cast<std::uint32_t>(before);
    }
    if (question.documents.empty()) context.refuse("at least one paragraph is expected");
    question.article = static_cast<std::uint32_t>(set.articles.size());
    set.articles.push_back(question.documents);
    set.questions.push_back(std::move(question));
  }
  set.documents = std::move(documents).list();
}

}  // namespace

QuestionSet parse_questions(std::string_view bytes, const std::string& file) {
  if (nests_deeper(bytes)) throw_input_error("The questions '{}' are nested more than {} deep.", file, kJsonNesting);
  const Json json = json_or_discarded(bytes);
  if (json.is_discarded()) throw_input_error("The questions '{}' are not valid JSON.", file);
  QuestionSet set;
  set.file = file;
  set.hash = fmt::format("{:016x}", fnv1a64(bytes));
  const Node root(json, file, "");
  if (json.is_object()) {
    read_squad(root, set);
  } else if (json.is_array()) {
    set.format = QuestionSet::Format::hotpot;
    read_hotpot(root, set);
  } else {
    throw_input_error(
        "The questions '{}' are neither SQuAD's format (an object with 'data') nor HotpotQA's (a list of objects).",
        file);
  }
  if (set.questions.empty()) throw_input_error("The questions '{}' hold no question with an answer.", file);
  for (const QuestionSet::Question& question : set.questions) {
    if (question.documents.size() < set.documents.size()) continue;
    throw_input_error(
        "The questions '{}' have no document for \"{}\" to stand among but its own: give a file with more paragraphs.",
        file, question.text);
  }
  return set;
}

QuestionSet read_questions(const std::filesystem::path& file) {
  return parse_questions(read_file(file, kMostOfData), file.string());
}

}  // namespace tandem::eval
