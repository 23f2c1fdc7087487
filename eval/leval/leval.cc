#include "eval/leval/leval.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <optional>
#include <set>

#include "engine/common/error.h"
#include "engine/common/json_lines.h"
#include "engine/common/read_file.h"
#include "eval/ruler/random.h"
#include "eval/run/dataset_files.h"
#include "eval/run/documents.h"
#include "eval/run/unread_files.h"
#include "eval/scoring/python_text.h"
#include "eval/scoring/rouge.h"
#include "eval/scoring/token_f1.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

fs::path file_of(const fs::path& folder, const LEvalDataset& dataset) {
  std::error_code refused;
  const std::string name = std::string(dataset.name) + ".jsonl";
  const fs::path inside = folder / (dataset.closed ? "Closed-ended-tasks" : "Open-ended-tasks") / name;
  return fs::is_regular_file(inside, refused) ? inside : folder / name;
}

std::vector<std::string> there(const fs::path& folder) {
  std::error_code refused;
  std::vector<std::string> tasks;
  for (const LEvalDataset& dataset : leval_datasets())
    if (fs::is_regular_file(file_of(folder, dataset), refused)) tasks.emplace_back(dataset.name);
  return tasks;
}

/// text.split(" ")[first:last] joined again, with Python's negative ends.
std::string_view words_between(std::string_view text, std::int64_t first, std::int64_t last) {
  std::vector<std::pair<std::size_t, std::size_t>> words;
  for (std::size_t at = 0;;) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    words.emplace_back(at, end);
    if (end == text.size()) break;
    at = end + 1;
  }
  const auto n = static_cast<std::int64_t>(words.size());
  const auto place = [n](std::int64_t index) { return std::clamp<std::int64_t>(index < 0 ? index + n : index, 0, n); };
  const std::int64_t begin = place(first), end = place(last);
  if (begin >= end) return {};
  const std::size_t from = words[static_cast<std::size_t>(begin)].first;
  return text.substr(from, words[static_cast<std::size_t>(end - 1)].second - from);
}

/// Counts the tokens of parts of a document, of which most have far too many. Texts are encoded as a whole only where
/// pieces of them, encoded once and remembered, do not show already that they are too long.
class PartCounter {
 public:
  PartCounter(const Tokenizer& tokenizer, std::string_view document) : tokenizer_(tokenizer), document_(document) {
    for (std::size_t at = 0; at < document.size();) {
      ends_.push_back(std::min(document.find(' ', at + kPiece), document.size()));
      at = ends_.back();
    }
    tokens_.resize(ends_.size(), kUnknown);
  }

  /// The tokens of a part of the document, its begin token among them; nothing where there are more than `most`.
  std::optional<std::size_t> count(std::string_view part, std::size_t most) {
    if (part.size() > kMostlyFewer * most && least(part, most) > most) return std::nullopt;
    const std::size_t tokens = tokenizer_.encode(part, /*add_bos=*/true).size();
    return tokens > most ? std::nullopt : std::optional(tokens);
  }

 private:
  static constexpr std::size_t kPiece = 1024;     // bytes, up to the next space
  static constexpr std::size_t kMostlyFewer = 3;  // bytes: tokens of natural text have more
  static constexpr std::size_t kMeet = 8;         // tokens, at most so many fewer where pieces meet

  static constexpr std::size_t kUnknown = SIZE_MAX;

  /// No more tokens than the part has. Stops where they are more than `enough`.
  std::size_t least(std::string_view part, std::size_t enough) {
    const auto from = static_cast<std::size_t>(part.data() - document_.data()), to = from + part.size();
    std::size_t sum = 0;
    for (std::size_t i = 0, begin = 0; i < ends_.size() && ends_[i] <= to && sum <= enough; begin = ends_[i++]) {
      if (begin < from) continue;
      if (tokens_[i] == kUnknown)
        tokens_[i] = tokenizer_.encode(document_.substr(begin, ends_[i] - begin), /*add_bos=*/false).size();
      sum += tokens_[i] - std::min(tokens_[i], kMeet);
    }
    return sum;
  }

  const Tokenizer& tokenizer_;
  std::string_view document_;
  std::vector<std::size_t> ends_;    // of the pieces
  std::vector<std::size_t> tokens_;  // of the pieces, where they were needed
};

}  // namespace

std::vector<fs::path> unread_leval(const fs::path& folder) {
  const fs::path closed = folder / "Closed-ended-tasks", open = folder / "Open-ended-tasks";
  std::set<fs::path> read = {folder / "sci_fi.jsonl", closed / "sci_fi.jsonl"};  // which the help says is not asked
  for (const std::string& task : there(folder)) read.insert(file_of(folder, leval_dataset(task)));
  return unread_files({folder, closed, open}, read);
}

LEvalFile parse_leval(std::string_view text, const LEvalDataset& dataset, const std::string& file) {
  LEvalFile out;
  out.dataset = &dataset;
  for_each_json_line(text, file, [&](const JsonLine& line) {
    const std::string document = line.text("input"), evaluation = line.text("evaluation");
    const std::vector<std::string> instructions = line.texts("instructions"), outputs = line.texts("outputs");
    if (instructions.size() != outputs.size())
      line.refuse(fmt::format("'instructions' are {}, but 'outputs' {}", instructions.size(), outputs.size()));
    if (evaluation == "LLM" || evaluation == "human") return;
    const bool known = dataset.closed ? evaluation == "exam" : evaluation == "f1" || evaluation == "rouge";
    if (!known)
      line.refuse(fmt::format("'evaluation' is '{}', where {} has {}", evaluation, dataset.name,
                              dataset.closed ? "exam" : "f1, rouge, LLM or human"));
    const LEvalKind kind = leval_kind(dataset, evaluation);
    if (!out.questions.empty() && out.questions.front().kind != kind)
      line.refuse(
          fmt::format("'evaluation' is '{}', but another further up, and there is one figure of {}: keep "
                      "documents of one kind in a file",
                      evaluation, dataset.name));
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      if (split_words(outputs[i]).empty()) line.refuse(fmt::format("answer {} in 'outputs' has no word", i + 1));
      out.questions.push_back({out.documents.size(), instructions[i], outputs[i], kind});
    }
    out.documents.push_back(document);
  });
  if (out.questions.empty()) throw_input_error("{} holds no question that is scored without a judge.", file);
  std::vector<std::string_view> texts;
  texts.reserve(out.questions.size());
  for (const LEvalQuestion& question : out.questions) texts.emplace_back(out.documents[question.document]);
  if (!dataset.has_examples()) out.numbers = number_documents(texts);
  out.hash = fnv1a64(text);
  return out;
}

std::string cut_leval_document(const Tokenizer& tokenizer, const std::string& document, std::uint32_t max_length,
                               bool from_the_end, std::size_t* tokens) {
  constexpr std::int64_t kFewer = 250;
  PartCounter counter(tokenizer, document);
  std::string_view kept_text = document;
  std::optional<std::size_t> counted;
  for (std::int64_t cut = 0; !(counted = counter.count(kept_text, max_length)); cut += kFewer) {
    const std::int64_t kept = std::int64_t{max_length} - cut;
    // Upstream's slices: of no more words than are kept, and below 0 all but so many.
    kept_text = from_the_end ? words_between(kept_text, -kept, INT64_MAX) : words_between(kept_text, 0, kept);
    if (kept_text.empty()) break;
  }
  if (tokens != nullptr) *tokens = counted ? *counted : tokenizer.encode(kept_text, /*add_bos=*/true).size();
  return std::string(kept_text);
}

LEval::LEval(LEvalOptions options, const Model& model) : options_(std::move(options)), model_(model) {
  std::error_code refused;
  if (!fs::is_directory(options_.data, refused))
    throw_input_error("--data: there is no folder '{}'.", options_.data.string());
  const std::vector<std::string> all = there(options_.data);
  if (all.empty())
    throw_input_error(
        "--data: '{}' holds none of L-Eval's files, as Open-ended-tasks/financial_qa.jsonl: give the folder "
        "LEval-data/ "
        "of github.com/OpenLMLab/LEval.",
        options_.data.string());
  if (options_.tasks.empty()) options_.tasks = all;
  if (options_.max_length == 1) throw_input_error("--max-length is 1: give at least 2 tokens.");
  for (const std::string& task : options_.tasks) {
    if (!fs::is_regular_file(file_of(options_.data, leval_dataset(task)), refused))
      throw_input_error("--tasks: there is no '{}.jsonl'; '{}' holds {}.", task, options_.data.string(),
                        fmt::join(all, ", "));
  }
  read_files();
  if (options_.max_length == 0) {
    const std::uint32_t reserved = longest_around() + kMaxNewTokens;
    if (reserved + 2 > model.config.max_positions)
      throw_input_error(
          "The longest question has {} tokens with its instruction, and {} are generated, which leaves no room for a "
          "document in the {} positions of model '{}': ask other --tasks, or a model with more positions.",
          reserved - kMaxNewTokens, kMaxNewTokens, model.config.max_positions, model.name);
    options_.max_length = model.config.max_positions - reserved;
  }
  std::uint64_t documents = 0;  // questions are in their documents' order
  for (const std::string& task : options_.tasks)
    documents += file(task).questions.at(samples_of(task) - 1).document + 1;
  if (options_.progress) options_.progress(0, documents);
  for (const std::string& task : options_.tasks) cut_documents_of(task, documents);
  options_.progress = {};  // may refer to what does not outlive the reading
}

void LEval::poll() const {
  if (options_.interrupted()) throw Interrupted();
}

void LEval::read_files() {
  for (const std::string& task : options_.tasks) {
    poll();
    const LEvalDataset& dataset = leval_dataset(task);
    const fs::path path = file_of(options_.data, dataset);
    files_[task] = parse_leval(read_file(path, kMostOfData), dataset, path.string());
  }
}

/// Prompts are not put together to count them: what one takes is what its parts take, within a few tokens where they
/// meet.
std::uint32_t LEval::around(const LEvalFile& file, std::uint32_t index) const {
  constexpr std::size_t kMeet = 8;
  const std::vector<std::int32_t> tokens =
      leval_tokens(*model_.tokenizer, *file.dataset, "", file.questions[index], options_.template_of);
  return static_cast<std::uint32_t>(tokens.size() + kMeet);
}

std::uint32_t LEval::longest_around() const {
  std::uint32_t longest = 0;
  for (const std::string& task : options_.tasks) {
    for (std::uint32_t i = 0; i < samples_of(task); ++i) {
      poll();
      longest = std::max(longest, around(file(task), i));
    }
  }
  return longest;
}

void LEval::cut_documents_of(const std::string& task, std::uint64_t all) {
  LEvalFile& file = files_.at(task);
  std::vector<std::size_t> tokens(file.documents.size());  // 0: not asked about so far
  for (std::uint32_t i = 0; i < samples_of(task); ++i) {
    poll();
    const LEvalQuestion& question = file.questions[i];
    if (std::size_t& of = tokens[question.document]; of == 0) {
      std::string& document = file.documents[question.document];
      const std::size_t bytes = document.size();
      document =
          cut_leval_document(*model_.tokenizer, document, options_.max_length, file.dataset->name == "codeU", &of);
      of = std::max<std::size_t>(1, of);
      ++documents_;
      if (document.size() < bytes) ++(document.empty() ? empty_ : cut_);
      if (options_.progress) options_.progress(documents_, all);
    }
    const std::size_t most = tokens[question.document] + around(file, i);
    if (most + kMaxNewTokens > model_.config.max_positions)
      throw_input_error(
          "Question {} of {} has {} tokens with a document of at most {}, and {} are generated, more than the {} "
          "positions of model '{}': lower --max-length.",
          i + 1, task, most, options_.max_length, kMaxNewTokens, model_.config.max_positions, model_.name);
    longest_prompt_ = std::max(longest_prompt_, static_cast<std::uint32_t>(most));
  }
}

std::uint32_t LEval::samples_of(const std::string& task) const {
  return first_samples(options_.samples, file(task).questions.size());
}

DatasetSample LEval::sample(const std::string& task, std::uint32_t length, std::uint32_t index) const {
  const LEvalFile& from = file(task);
  const LEvalQuestion& question = from.questions.at(index);
  DatasetSample sample = {.task = task,
                          .length = length,
                          .index = index,
                          .prompt = leval_tokens(*model_.tokenizer, *from.dataset, from.documents.at(question.document),
                                                 question, options_.template_of),
                          .answers = {question.answer},
                          .max_new_tokens = kMaxNewTokens};
  if (!from.numbers.empty()) sample.document = from.numbers.at(index);
  return sample;
}

Score LEval::score(const DatasetSample& sample, const std::string& prediction) const {
  const LEvalQuestion& question = file(sample.task).questions.at(sample.index);
  if (question.kind == LEvalKind::f1) return {qa_f1(prediction, question.answer)};
  if (question.kind == LEvalKind::rouge) return {rouge(question.answer, prediction).rouge_l};
  return {leval_exam(question.kind, prediction, question.answer)};
}

std::string LEval::protocol_id(const Manifest& manifest) const {
  return fmt::format("leval/v1+data:{}+tok:{}+template:{}+length:first-words-{}+score:upstream{}", files_hash(files_),
                     manifest.tokenizer_hash, template_name(options_.template_of), options_.max_length,
                     protocol_end(manifest));
}

std::string LEval::arguments() const {
  return task_arguments(options_.tasks, options_.samples) + fmt::format(" --max-length {}", options_.max_length);
}

}  // namespace tandem::eval
