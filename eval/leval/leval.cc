#include "eval/leval/leval.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <ranges>
#include <set>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "engine/common/json_lines.h"
#include "engine/common/read_file.h"
#include "eval/scoring/python_text.h"
#include "eval/scoring/rouge.h"
#include "eval/scoring/rounding.h"
#include "eval/scoring/token_f1.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kMaxNewTokens = 512;

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
  std::vector<std::string_view> words;
  for (const auto word : std::views::split(text, ' ')) words.emplace_back(word.begin(), word.end());
  const auto n = static_cast<std::int64_t>(words.size());
  const auto place = [n](std::int64_t index) { return std::clamp<std::int64_t>(index < 0 ? index + n : index, 0, n); };
  const std::int64_t begin = place(first), end = place(last);
  if (begin >= end) return {};
  return {words[static_cast<std::size_t>(begin)].begin(), words[static_cast<std::size_t>(end - 1)].end()};
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

std::vector<const char*> metrics_of(const LEvalFile& file) {
  if (file.kind() == LEvalKind::rouge) return {"rouge1", "rouge2", "rougeL", "geometric_mean"};
  return {file.dataset->closed ? "exact_match" : "f1"};
}

/// Upstream's figures of a task's samples, in the order of metrics_of(), rounded to four digits.
std::vector<double> figures_of(const LEvalFile& file, const std::vector<SampleResult>& samples) {
  double sum = 0;
  std::array<double, 3> third = {}, asked = {};  // scores of every third question
  Rouge all;
  for (const SampleResult& sample : samples) {
    sum += sample.score;
    third[sample.index % 3] += sample.score;
    ++asked[sample.index % 3];
    if (file.kind() != LEvalKind::rouge) continue;
    const Rouge one = rouge(file.questions.at(sample.index).answer, sample.prediction);
    all.rouge1 += one.rouge1;
    all.rouge2 += one.rouge2;
    all.rouge_l += one.rouge_l;
  }
  const auto n = static_cast<double>(samples.size());
  if (file.kind() == LEvalKind::rouge) {
    const double one = 100 * all.rouge1 / n, two = 100 * all.rouge2 / n, longest = 100 * all.rouge_l / n;
    return {python_round(one, 4), python_round(two, 4), python_round(longest, 4),
            python_round(std::cbrt(one * two * longest), 4)};
  }
  if (file.kind() != LEvalKind::contains) return {python_round(100 * sum / n, 4)};
  // Upstream takes every third question together, rounds the three means and prints the mean of these.
  double means = 0, places = 0;
  for (std::size_t i = 0; i < third.size(); ++i) {
    if (asked[i] == 0) continue;  // fewer than three questions, of which upstream prints nothing
    means += python_round(100 * third[i] / asked[i], 4);
    ++places;
  }
  return {python_round(means / places, 4)};
}

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
  const auto text_of = [&](const LEvalQuestion& question) {
    return std::string_view(out.documents[question.document]);
  };
  if (!dataset.has_examples()) out.numbers = number_documents(out.questions | std::views::transform(text_of));
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

LEval::LEval(FileChoice choice, const Model& model) : FileDataset(std::move(choice), model) {
  std::error_code refused;
  if (!fs::is_directory(choice_.data, refused)) throw_input_error("--data: there is no folder '{}'.", choice_.data);
  const std::vector<std::string> all = there(choice_.data);
  if (all.empty())
    throw_input_error(
        "--data: '{}' holds none of L-Eval's files, as Open-ended-tasks/financial_qa.jsonl: give the folder "
        "LEval-data/ of github.com/OpenLMLab/LEval.",
        choice_.data);
  if (choice_.tasks.empty()) choice_.tasks = all;
  if (choice_.max_length == 1) throw_input_error("--max-length is 1: give at least 2 tokens.");
  for (const std::string& task : choice_.tasks) {
    stop_if_interrupted();
    const LEvalDataset& dataset = leval_dataset(task);
    const fs::path path = file_of(choice_.data, dataset);
    if (!fs::is_regular_file(path, refused))
      throw_input_error("--tasks: there is no '{}.jsonl'; '{}' holds {}.", task, choice_.data, fmt::join(all, ", "));
    files_[task] = parse_leval(read_file(path, kMostOfData), dataset, path.string());
  }
  if (choice_.max_length == 0) {
    std::uint32_t longest = 0;
    for (const std::string& task : choice_.tasks)
      for (std::uint32_t i = 0; i < samples_of(task); ++i) longest = std::max(longest, around(file(task), i));
    if (longest + kMaxNewTokens + 2 > model.config.max_positions)
      throw_input_error(
          "The longest question has {} tokens with its instruction, and {} are generated, which leaves no room for a "
          "document in the {} positions of model '{}': ask other --tasks, or a model with more positions.",
          longest, kMaxNewTokens, model.config.max_positions, model.name);
    choice_.max_length = model.config.max_positions - kMaxNewTokens - longest;
  }
  std::uint64_t documents = 0;  // questions are in their documents' order
  for (const std::string& task : choice_.tasks) documents += file(task).questions.at(samples_of(task) - 1).document + 1;
  if (choice_.progress) choice_.progress(0, documents);
  for (const std::string& task : choice_.tasks) cut_documents_of(task, documents);
  choice_.progress = {};  // may refer to what does not outlive the reading
}

/// Prompts are not put together to count them: what one takes is what its parts take, within a few tokens where they
/// meet.
std::uint32_t LEval::around(const LEvalFile& file, std::uint32_t index) const {
  constexpr std::size_t kMeet = 8;
  stop_if_interrupted();
  const std::vector<std::int32_t> tokens =
      leval_tokens(*model_.tokenizer, *file.dataset, "", file.questions[index], choice_.template_of);
  return static_cast<std::uint32_t>(tokens.size() + kMeet);
}

void LEval::cut_documents_of(const std::string& task, std::uint64_t all) {
  LEvalFile& file = files_.at(task);
  std::vector<std::size_t> tokens(file.documents.size());  // 0: not asked about so far
  for (std::uint32_t i = 0; i < samples_of(task); ++i) {
    const LEvalQuestion& question = file.questions[i];
    if (std::size_t& of = tokens[question.document]; of == 0) {
      std::string& document = file.documents[question.document];
      const std::size_t bytes = document.size();
      document =
          cut_leval_document(*model_.tokenizer, document, choice_.max_length, file.dataset->name == "codeU", &of);
      of = std::max<std::size_t>(1, of);
      ++documents_;
      if (document.size() < bytes) ++(document.empty() ? empty_ : cut_);
      if (choice_.progress) choice_.progress(documents_, all);
    }
    const std::size_t most = tokens[question.document] + around(file, i);
    if (most + kMaxNewTokens > model_.config.max_positions)
      throw_input_error(
          "Question {} of {} has {} tokens with a document of at most {}, and {} are generated, more than the {} "
          "positions of model '{}': lower --max-length.",
          i + 1, task, most, choice_.max_length, kMaxNewTokens, model_.config.max_positions, model_.name);
    longest_prompt_ = std::max(longest_prompt_, static_cast<std::uint32_t>(most));
  }
}

DatasetSample LEval::sample(const std::string& task, std::uint32_t length, std::uint32_t index) const {
  const LEvalFile& from = file(task);
  const LEvalQuestion& question = from.questions.at(index);
  DatasetSample sample = {.task = task,
                          .length = length,
                          .index = index,
                          .prompt = leval_tokens(*model_.tokenizer, *from.dataset, from.documents.at(question.document),
                                                 question, choice_.template_of),
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

std::string LEval::protocol_part() const {
  return fmt::format("+length:first-words-{}+score:upstream", choice_.max_length);
}

/// Per task and method: exact match, F1, or ROUGE-1, -2 and -L with the geometric mean of their means, which upstream
/// calls the score of a summary. Of methods that have all samples of a task.
FigureTable LEval::figures(const RunFolder& folder, const Summary&) const {
  FigureTable table;
  table.title = "L-Eval";
  table.head = {"task", "metric", "n"};
  table.notes = {
      "As upstream's auto_eval.py prints it, in per cent; geometric_mean is its score of a summary, of the three means "
      "above it. The score further up is the mean over all questions, a summary's being its ROUGE-L. Judgements of "
      "a language model, which upstream reports beside these, are not made here."};
  if (cut_ + empty_ > 0)
    table.notes.push_back(fmt::format("{} of {} documents were cut to {} tokens{}.", cut_ + empty_, documents_,
                                      choice_.max_length,
                                      empty_ > 0 ? fmt::format("; of {} of them nothing is left", empty_) : ""));
  auto by_task = samples_by_task(folder);
  for (const std::string& task : choice_.tasks) {
    const std::size_t first = table.rows.size();
    for (const char* metric : metrics_of(file(task))) table.rows.push_back({{"", metric, ""}, task, metric, {}});
    table.rows[first].names = {task, table.rows[first].key, std::to_string(samples_of(task))};
    for (const auto& [label, samples] : by_task[task]) {
      if (samples.size() < samples_of(task)) continue;
      const std::vector<double> figures = figures_of(file(task), samples);
      for (std::size_t m = 0; m < figures.size(); ++m) table.rows[first + m].figures[label] = figures[m];
    }
  }
  return table;
}

}  // namespace tandem::eval
