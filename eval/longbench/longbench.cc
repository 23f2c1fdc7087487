#include "eval/longbench/longbench.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "eval/scoring/segment_chinese.h"

namespace tandem::eval {
namespace {

constexpr std::uint32_t kRoom = 64;            // tokens that encoding anew and a usual chat template may add
constexpr std::uint32_t kLongestAnswer = 512;  // tokens, of upstream's data sets

/// Lists and programs that the model is to continue.
bool takes_template(std::string_view dataset) {
  constexpr std::array<std::string_view, 6> kWithout = {"trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"};
  return std::find(kWithout.begin(), kWithout.end(), dataset) == kWithout.end();
}

/// Tokens that a prompt may have beyond --max-length.
std::uint32_t room_for(const std::optional<ChatWriter>& template_of, const Tokenizer& tokenizer) {
  constexpr std::size_t kAnew = 16;  // tokens that encoding anew may add
  if (!template_of) return kRoom;
  return std::max(kRoom, static_cast<std::uint32_t>(user_prompt(tokenizer, template_of, "").size() + kAnew));
}

std::string cut_middle(const Tokenizer& tokenizer, std::string text, std::uint32_t max_length) {
  const std::vector<std::int32_t> tokens = tokenizer.encode(text, /*add_bos=*/true);
  if (tokens.size() <= max_length) return text;
  const std::span<const std::int32_t> all(tokens);
  const std::size_t half = max_length / 2;
  return tokenizer.decode(all.first(half)) + tokenizer.decode(all.last(half));
}

bool is_e(const std::string& task) {
  return longbench_dataset_of(task) != task;
}

/// "qa_f1" of upstream's qa_f1_score.
std::string metric_of(const LongBenchFile& file) {
  const std::string_view name = to_string(file.dataset->metric);
  return std::string(name.substr(0, name.rfind("_score")));
}

/// Means of the methods that have a figure in each row.
FigureRow mean_of(const std::vector<FigureRow>& rows, const Summary& summary) {
  FigureRow mean;
  mean.names.resize(rows.front().names.size());
  mean.names[0] = fmt::format("mean of {}", rows.size());
  for (const MethodSummary& method : summary.methods) {
    double sum = 0;
    const bool all = std::all_of(rows.begin(), rows.end(), [&](const FigureRow& row) {
      const auto found = row.figures.find(method.label);
      sum += found == row.figures.end() ? 0 : found->second;
      return found != row.figures.end();
    });
    if (all) mean.figures[method.label] = sum / static_cast<double>(rows.size());
  }
  return mean;
}

}  // namespace

std::uint32_t default_max_length(const ModelConfig& config) {
  constexpr std::uint32_t kStep = 500, kLeft = kLongestAnswer + kRoom;
  const std::uint32_t most = config.max_positions;
  if (most == 32768) return 31500;  // upstream's config/model2maxlen.json leaves more room there than at 4K, 8K and 16K
  return most < kLeft + kStep ? most / 2 : (most - kLeft) / kStep * kStep;
}

std::vector<std::int32_t> longbench_tokens(const Tokenizer& tokenizer, const LongBenchFile& file,
                                           const LongBenchRecord& record, std::uint32_t max_length,
                                           const std::optional<ChatWriter>& template_of) {
  return user_prompt(tokenizer, takes_template(file.dataset->name) ? template_of : std::nullopt,
                     cut_middle(tokenizer, longbench_prompt(file.prompt, record), max_length));
}

LongBench::LongBench(FileChoice choice, const Model& model) : FileDataset(std::move(choice), model) {
  if (choice_.max_length == 0) choice_.max_length = default_max_length(model.config);
  if (choice_.max_length < 2) throw_input_error("--max-length is {}: give at least 2 tokens.", choice_.max_length);
  files_ = read_longbench(choice_.data, choice_.tasks);
  room_ = room_for(choice_.template_of, *model.tokenizer);
  for (const auto& [task, file] : files_) {
    const std::uint64_t positions = std::uint64_t{choice_.max_length} + room_ + file.max_new_tokens;
    if (positions > model.config.max_positions) {
      throw_input_error(
          "--max-length {} leaves no room for the {} tokens that are generated in {} and the {} that a chat template "
          "and encoding anew may add: model '{}' has {} positions.",
          choice_.max_length, file.max_new_tokens, task, room_, model.name, model.config.max_positions);
    }
  }
  // Now, and not after hours of decoding.
  if (std::any_of(files_.begin(), files_.end(),
                  [](const auto& entry) { return needs_segmenter(entry.second.dataset->metric); }))
    require_segmenter();
  longest_prompt_ = measure_longest();
  choice_.progress = {};  // may refer to what does not outlive the reading
}

std::uint32_t LongBench::measure_longest() const {
  struct Text {
    std::size_t bytes;
    const std::string* task;
    std::uint32_t index;
  };
  std::vector<Text> texts;
  for (const auto& [task, file] : files_)
    for (std::uint32_t i = 0; i < samples_of(task); ++i)
      texts.push_back({longbench_prompt(file.prompt, file.records[i]).size(), &task, i});
  std::sort(texts.begin(), texts.end(), [](const Text& a, const Text& b) { return a.bytes > b.bytes; });
  // A text has no more tokens than bytes, and one that is cut about max_length: shorter ones need not be encoded.
  std::uint32_t most = 0;
  std::uint64_t done = 0;
  for (const auto& [bytes, task, index] : texts) {
    stop_if_interrupted();
    if (choice_.progress) choice_.progress(done++, texts.size());
    if (most >= std::min<std::size_t>(bytes, choice_.max_length) + room_) break;
    const std::vector<std::int32_t> prompt = sample(*task, 0, index).prompt;
    most = std::max(most, static_cast<std::uint32_t>(prompt.size()) + 2 * room_);
  }
  return std::min(most, choice_.max_length + room_);
}

DatasetSample LongBench::sample(const std::string& task, std::uint32_t length, std::uint32_t index) const {
  const LongBenchFile& from = file(task);
  const LongBenchRecord& record = from.records.at(index);
  DatasetSample sample = {
      .task = task,
      .length = length,
      .index = index,
      .prompt = longbench_tokens(*model_.tokenizer, from, record, choice_.max_length, choice_.template_of),
      .answers = record.answers,
      .max_new_tokens = from.max_new_tokens};
  if (!from.documents.empty()) sample.document = from.documents.at(index);
  if (from.dataset->name == "samsum") sample.stop_tokens = {model_.tokenizer->encode("\n", /*add_bos=*/false).back()};
  return sample;
}

std::vector<Score> LongBench::scores(std::span<const DatasetSample> samples,
                                     std::span<const std::string> predictions) const {
  const LongBenchFile& from = file(samples.front().task);
  std::vector<LongBenchSample> all;
  all.reserve(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) all.push_back({predictions[i], samples[i].answers});
  std::vector<Score> scores;
  for (const double score : longbench_scores(*from.dataset, all, from.records.back().all_classes))
    scores.push_back({score});
  return scores;
}

std::string LongBench::protocol_part() const {
  return fmt::format("+length:cut-middle-{}+score:upstream", choice_.max_length);
}

/// Per task and method with two digits as upstream's eval.py rounds them, and means over tasks. Tasks of LongBench-E
/// have a row for each range of lengths.
FigureTable LongBench::figures(const RunFolder& folder, const Summary& summary) const {
  FigureTable table;
  table.title = "LongBench";
  table.head = {"task", "metric", "n"};
  table.notes = {
      "100 times the mean score, as upstream's eval.py rounds it; the last row is the mean of the rows above, and "
      "\"-\" where one of them has no sample. The score further up is the same scores' mean over all samples, so "
      "that tasks count as many times as they have samples."};
  const bool ranges = std::any_of(choice_.tasks.begin(), choice_.tasks.end(), is_e);
  if (ranges) table.head.insert(table.head.begin() + 1, "words");
  auto by_task = samples_by_task(folder);
  for (const std::string& task : choice_.tasks) {
    const std::vector<LongBenchRecord>& records = file(task).records;
    const std::size_t first = table.rows.size(), buckets = is_e(task) ? kLongBenchBuckets.size() : 1;
    for (std::size_t b = 0; b < buckets; ++b) {
      const std::string range(is_e(task) ? kLongBenchBuckets[b] : "");
      const auto n = std::count_if(records.begin(), records.begin() + samples_of(task), [&](const auto& record) {
        return !is_e(task) || longbench_bucket(record.length) == b;
      });
      FigureRow& row = table.rows.emplace_back();
      row = {{task, metric_of(file(task)), std::to_string(n)}, task, range, {}};
      if (ranges) row.names.insert(row.names.begin() + 1, range);
    }
    for (const auto& [label, samples] : by_task[task]) {
      std::vector<double> scores;
      std::vector<std::int64_t> lengths;
      for (const SampleResult& sample : samples) {
        scores.push_back(sample.score);
        lengths.push_back(records.at(sample.index).length);
      }
      if (!is_e(task)) table.rows[first].figures[label] = longbench_dataset_score(scores);
      const auto of_e = longbench_e_scores(scores, lengths);
      for (std::size_t b = 0; b < buckets && is_e(task); ++b)
        if (const auto& score = of_e[b]) table.rows[first + b].figures[label] = *score;
    }
  }
  if (table.rows.size() > 1) table.rows.push_back(mean_of(table.rows, summary));
  return table;
}

}  // namespace tandem::eval
