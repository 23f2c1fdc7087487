#include "eval/longbench/longbench.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "eval/run/dataset_files.h"
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
  const ChatMessage empty{"user", ""};
  const std::string text = template_of->write({&empty, 1}, {.thinking = false});
  const std::size_t tokens = tokenizer.encode(text, /*add_bos=*/false, Specials::parsed).size();
  return std::max(kRoom, static_cast<std::uint32_t>(tokens + kAnew));
}

std::string cut_middle(const Tokenizer& tokenizer, std::string text, std::uint32_t max_length) {
  const std::vector<std::int32_t> tokens = tokenizer.encode(text, /*add_bos=*/true);
  if (tokens.size() <= max_length) return text;
  const std::span<const std::int32_t> all(tokens);
  const std::size_t half = max_length / 2;
  return tokenizer.decode(all.first(half)) + tokenizer.decode(all.last(half));
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
  std::string text = cut_middle(tokenizer, longbench_prompt(file.prompt, record), max_length);
  if (!template_of || !takes_template(file.dataset->name)) return tokenizer.encode(text, /*add_bos=*/true);
  const ChatMessage message{"user", std::move(text)};
  return tokenizer.encode(template_of->write({&message, 1}, {.thinking = false}), /*add_bos=*/false, Specials::parsed);
}

LongBench::LongBench(LongBenchOptions options, const Model& model) : options_(std::move(options)), model_(model) {
  if (options_.max_length == 0) options_.max_length = default_max_length(model.config);
  if (options_.max_length < 2) throw_input_error("--max-length is {}: give at least 2 tokens.", options_.max_length);
  files_ = read_longbench(options_.data, options_.tasks);
  room_ = room_for(options_.template_of, *model.tokenizer);
  for (const auto& [task, file] : files_) {
    const std::uint64_t positions = std::uint64_t{options_.max_length} + room_ + file.max_new_tokens;
    if (positions > model.config.max_positions) {
      throw_input_error(
          "--max-length {} leaves no room for the {} tokens that are generated in {} and the {} that a chat template "
          "and encoding anew may add: model '{}' has {} positions.",
          options_.max_length, file.max_new_tokens, task, room_, model.name, model.config.max_positions);
    }
  }
  // Now, and not after hours of decoding.
  if (std::any_of(files_.begin(), files_.end(),
                  [](const auto& entry) { return needs_segmenter(entry.second.dataset->metric); }))
    require_segmenter();
  longest_prompt_ = measure_longest();
  options_.progress = {};  // may refer to what does not outlive the reading
}

std::uint32_t LongBench::samples_of(const std::string& task) const {
  return first_samples(options_.samples, file(task).records.size());
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
    if (options_.progress) options_.progress(done++, texts.size());
    if (most >= std::min<std::size_t>(bytes, options_.max_length) + room_) break;
    const std::vector<std::int32_t> prompt = sample(*task, 0, index).prompt;
    most = std::max(most, static_cast<std::uint32_t>(prompt.size()) + 2 * room_);
  }
  return std::min(most, options_.max_length + room_);
}

DatasetSample LongBench::sample(const std::string& task, std::uint32_t length, std::uint32_t index) const {
  const LongBenchFile& from = file(task);
  const LongBenchRecord& record = from.records.at(index);
  DatasetSample sample;
  sample.task = task;
  sample.length = length;
  sample.index = index;
  sample.prompt = longbench_tokens(*model_.tokenizer, from, record, options_.max_length, options_.template_of);
  sample.answers = record.answers;
  sample.max_new_tokens = from.max_new_tokens;
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

std::string LongBench::protocol_id(const Manifest& manifest) const {
  return fmt::format("longbench/v1+data:{}+tok:{}+template:{}+length:cut-middle-{}+score:upstream{}",
                     files_hash(files_), manifest.tokenizer_hash, template_name(options_.template_of),
                     options_.max_length, protocol_end(manifest));
}

std::string LongBench::arguments() const {
  return task_arguments(options_.tasks, options_.samples) + fmt::format(" --max-length {}", options_.max_length);
}

}  // namespace tandem::eval
