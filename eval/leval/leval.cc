#include "eval/leval/leval.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "engine/common/error.h"
#include "engine/common/json_lines.h"
#include "engine/model/json_file.h"
#include "eval/ruler/random.h"
#include "eval/run/decoded.h"
#include "eval/scoring/rouge.h"
#include "eval/scoring/token_f1.h"
#include "eval/scoring/white_space.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestLEvalFile = std::size_t{4} << 30;  // bytes
constexpr std::uint32_t kAroundDocument = 512;                   // tokens: instruction, question, template

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
std::string words_between(const std::string& text, std::int64_t first, std::int64_t last) {
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
  if (begin >= end) return "";
  const std::size_t from = words[static_cast<std::size_t>(begin)].first;
  return text.substr(from, words[static_cast<std::size_t>(end - 1)].second - from);
}

}  // namespace

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
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      if (split_words(outputs[i]).empty()) line.refuse(fmt::format("answer {} in 'outputs' has no word", i + 1));
      out.questions.push_back({out.documents.size(), instructions[i], outputs[i], leval_kind(dataset, evaluation)});
    }
    out.documents.push_back(document);
  });
  if (out.questions.empty()) throw_input_error("{} holds no question that is scored without a judge.", file);
  out.hash = fnv1a64(text);
  return out;
}

std::string cut_leval_document(const Tokenizer& tokenizer, std::string document, std::uint32_t max_length,
                               bool from_the_end) {
  constexpr std::int64_t kFewer = 250;
  for (std::int64_t cut = 0; tokenizer.encode(document, /*add_bos=*/true).size() > max_length; cut += kFewer) {
    const std::int64_t kept = std::int64_t{max_length} - cut;
    // Upstream's slices: of no more words than are kept, and below 0 all but so many.
    document = from_the_end ? words_between(document, -kept, INT64_MAX) : words_between(document, 0, kept);
    if (document.empty()) break;
  }
  return document;
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
  const std::uint32_t around = kAroundDocument + kMaxNewTokens;
  if (options_.max_length == 0)
    options_.max_length =
        model.config.max_positions > 2 * around ? model.config.max_positions - around : model.config.max_positions / 2;
  if (options_.max_length < 2) throw_input_error("--max-length is {}: give at least 2 tokens.", options_.max_length);
  for (const std::string& task : options_.tasks) {
    const LEvalDataset& dataset = leval_dataset(task);
    const fs::path path = file_of(options_.data, dataset);
    if (!fs::is_regular_file(path, refused))
      throw_input_error("--tasks: there is no '{}.jsonl'; '{}' holds {}.", task, options_.data.string(),
                        fmt::join(all, ", "));
    add_file(task, parse_leval(read_small_file(path, kLargestLEvalFile), dataset, path.string()));
  }
}

/// Documents are cut here, once, and prompts not put together: what one takes is what its parts take, within a few
/// tokens where they meet.
void LEval::add_file(const std::string& task, LEvalFile file) {
  constexpr std::size_t kMeet = 8;
  const auto asked =
      options_.samples == 0 ? file.questions.size() : std::min<std::size_t>(file.questions.size(), options_.samples);
  std::vector<std::size_t> tokens(file.documents.size());  // 0: not asked about so far
  for (std::size_t i = 0; i < asked; ++i) {
    const LEvalQuestion& question = file.questions[i];
    if (tokens[question.document] == 0) {
      std::string& document = file.documents[question.document];
      document = cut_leval_document(*model_.tokenizer, std::move(document), options_.max_length,
                                    file.dataset->name == "codeU");
      tokens[question.document] = model_.tokenizer->encode(document, /*add_bos=*/true).size();
    }
    const std::size_t most = tokens[question.document] +
                             leval_tokens(*model_.tokenizer, *file.dataset, "", question, options_.template_of).size() +
                             kMeet;
    if (most + kMaxNewTokens > model_.config.max_positions)
      throw_input_error(
          "Question {} of {} has {} tokens with a document of at most {}, and {} are generated, more than the {} "
          "positions of model '{}': lower --max-length.",
          i + 1, task, most, options_.max_length, kMaxNewTokens, model_.config.max_positions, model_.name);
    longest_prompt_ = std::max(longest_prompt_, static_cast<std::uint32_t>(most));
  }
  files_[task] = std::move(file);
}

std::uint32_t LEval::samples_of(const std::string& task) const {
  const auto all = static_cast<std::uint32_t>(file(task).questions.size());
  return options_.samples == 0 ? all : std::min(all, options_.samples);
}

BenchmarkSample LEval::sample(const std::string& task, std::uint32_t length, std::uint32_t index) const {
  const LEvalFile& from = file(task);
  const LEvalQuestion& question = from.questions.at(index);
  return {.task = task,
          .length = length,
          .index = index,
          .prompt = leval_tokens(*model_.tokenizer, *from.dataset, from.documents.at(question.document), question,
                                 options_.template_of),
          .answers = {question.answer},
          .max_new_tokens = kMaxNewTokens};
}

std::string LEval::prediction(std::span<const std::int32_t> tokens) const {
  return model_.tokenizer->decode(tokens);
}

std::vector<double> LEval::scores(std::span<const BenchmarkSample> samples,
                                  std::span<const std::string> predictions) const {
  std::vector<double> scores;
  scores.reserve(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const LEvalQuestion& question = file(samples[i].task).questions.at(samples[i].index);
    if (question.kind == LEvalKind::f1) {
      scores.push_back(qa_f1(predictions[i], question.answer));
    } else if (question.kind == LEvalKind::rouge) {
      scores.push_back(rouge(question.answer, predictions[i]).rouge_l);
    } else {
      scores.push_back(leval_exam(question.kind, predictions[i], question.answer));
    }
  }
  return scores;
}

void LEval::fill_manifest(const std::vector<std::string>& methods, Manifest& manifest) const {
  manifest.methods = method_entries(methods);
  manifest.benchmark = kName;
  manifest.tasks = options_.tasks;
  manifest.lengths = {0};
  std::vector<std::uint32_t> samples;
  samples.reserve(options_.tasks.size());
  for (const std::string& task : options_.tasks) samples.push_back(samples_of(task));
  manifest.set_samples(std::move(samples));
  std::uint64_t hash = 0;
  for (const auto& [task, file] : files_) hash = mix64(hash ^ fnv1a64(task) ^ mix64(file.hash));
  manifest.protocol_id = fmt::format(
      "leval/v1+data:{:016x}+tok:{}+template:{}+length:first-words-{}+score:upstream+budget:{}+query:aware+question:"
      "in-prefill+eos:stops",
      hash, manifest.tokenizer_hash, options_.template_of ? to_string(*options_.template_of) : "none",
      options_.max_length, budget_meanings(manifest.methods));
}

}  // namespace tandem::eval
