#include "eval/ruler/ruler_dataset.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "engine/common/error.h"
#include "engine/runtime/limits.h"
#include "eval/report/published_flops.h"
#include "eval/report/table.h"
#include "eval/ruler_tasks/protocol.h"
#include "eval/run/decoded.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

constexpr const char* kTasks = "single,multikey";
constexpr const char* kLengths = "1K,2K";
constexpr const char* kOneLength = "2K";
constexpr std::uint64_t kSeed = 42;

TokenCounter counter_of(const Ruler& ruler) {
  return [&ruler](std::string_view prompt) { return static_cast<std::uint32_t>(ruler.encode(prompt).size()); };
}

/// Sentences for the user of official files: fewer samples than the `samples` asked for, a chat template around the
/// prompts, a template that is not this tokenizer's.
std::vector<std::string> official_notes(const OfficialRuler& files, std::uint32_t samples, const Tokenizer& tokenizer) {
  std::vector<std::string> notes;
  if (files.samples() < samples) {
    notes.push_back(fmt::format("--samples is {}, but {} has only {}: {} samples of every task and length are used.",
                                samples, files.fewest(), files.samples(), files.samples()));
  }
  const ChatTemplate found = files.chat_template();
  if (found.mark.empty()) return notes;
  if (!found.known) {
    notes.push_back(
        fmt::format("The official files have prompts that begin with \"{}\", which looks like a chat template, but "
                    "like none that is known here: they are used as they are, special tokens being read as such, and "
                    "the protocol says template:unknown.",
                    found.mark));
  } else {
    notes.push_back(fmt::format(
        "The official files have a chat template (\"{}\") around their prompts: it is used as it is.", found.mark));
  }
  if (found.mark.starts_with('<') && tokenizer.special(found.mark) < 0) {
    notes.push_back(fmt::format(
        "\"{}\" is no special token of this model's tokenizer: the files were made for another model.", found.mark));
  }
  return notes;
}

}  // namespace

Ruler::Ruler(RulerOptions options, const Model& model) : options_(std::move(options)), model_(model) {
  const TokenCounter counter = counter_of(*this);
  const std::uint32_t positions = model.config.max_positions;
  for (const std::uint32_t length : options_.lengths) {
    if (!options_.official && length > positions) {
      throw_input_error("--lengths: {} is more than the {} positions of model '{}' (max_position_embeddings).", length,
                        positions, model.name);
    }
    for (const std::string& task : options_.tasks) {
      if (!options_.official) {
        const std::string& made = ruler_task_of(task);
        check_ruler_samples(made, length, options_.samples, options_.seed, counter, options_.texts, depth_of(task));
        longest_prompt_ = std::max(longest_prompt_, length - ruler_max_new_tokens(find_ruler_task(made), length));
        continue;
      }
      for (std::uint32_t i = 0; i < options_.samples; ++i) {
        const RulerSample sample = options_.official->sample(task, length, i, counter);
        longest_prompt_ = std::max(longest_prompt_, sample.prompt_tokens);
        if (sample.prompt_tokens + sample.max_new_tokens <= positions + 1) continue;
        throw_input_error(
            "Sample {} of {} at length {} has {} tokens and {} are generated, more than the {} positions of model '{}' "
            "(max_position_embeddings): choose shorter files with --lengths.",
            i, task, length, sample.prompt_tokens, sample.max_new_tokens, positions, model.name);
      }
    }
  }
}

std::string Ruler::ruler_task_of(const std::string& task) const {
  return options_.needle.empty() ? task : options_.needle;
}

std::optional<std::uint32_t> Ruler::depth_of(const std::string& task) const {
  const auto found = options_.percents.find(task);
  return found == options_.percents.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::int32_t> Ruler::encode(std::string_view prompt) const {
  if (!options_.official) return model_.tokenizer->encode(prompt, /*add_bos=*/true);
  check_text_fits(model_, prompt, "A prompt of --ruler-data");
  return encode_official(*model_.tokenizer, prompt);
}

DatasetSample Ruler::sample(const std::string& task, std::uint32_t length, std::uint32_t index) const {
  const TokenCounter counter = counter_of(*this);
  RulerSample sample = options_.official ? options_.official->sample(task, length, index, counter)
                                         : make_ruler_sample(ruler_task_of(task), length, index, options_.seed, counter,
                                                             options_.texts, depth_of(task));
  return {.task = task,
          .length = length,
          .index = index,
          .prompt = encode(sample.prompt),
          .answers = std::move(sample.answers),
          .max_new_tokens = sample.max_new_tokens,
          .depth = sample.depth};
}

Score Ruler::score(const DatasetSample& sample, const std::string& prediction) const {
  return {ruler_score(find_ruler_task(ruler_task_of(sample.task)), prediction, sample.answers)};
}

std::string Ruler::protocol_id(const Manifest& manifest) const {
  RulerProtocol protocol;
  protocol.tokenizer_hash = manifest.tokenizer_hash;
  protocol.texts = options_.texts;
  if (options_.official) {
    protocol.data_hash = options_.official->hash();
    const ChatTemplate found = options_.official->chat_template();
    if (!found.mark.empty()) protocol.chat_template = found.known ? "in-files" : "unknown";
  }
  protocol.budget = budget_meanings(manifest.methods);
  return ruler_protocol_id(protocol);
}

std::string Ruler::lengths_text() const {
  std::string text;
  for (const std::uint32_t length : options_.lengths) text += (text.empty() ? "" : ",") + length_text(length);
  return text;
}

std::string Ruler::arguments() const {
  std::string data = options_.data_file.empty() ? "" : " --ruler-data " + shell_word(options_.data_file);
  if (!options_.text_files.essays.empty()) data += " --ruler-essays " + shell_word(options_.text_files.essays);
  for (const std::string& file : options_.text_files.questions) data += " --ruler-qa " + shell_word(file);
  return fmt::format("{} --tasks {} --lengths {} --samples {}{}", data, fmt::join(options_.tasks, ","), lengths_text(),
                     options_.samples, options_.official ? "" : fmt::format(" --seed {}", options_.seed));
}

RunReport Ruler::report(const RunFolder& folder) const {
  RunReport report = Dataset::report(folder);
  report.sections = {{published_flops_text(model_.config, report.summary, /*markdown=*/true),
                      published_flops_text(model_.config, report.summary, /*markdown=*/false)}};
  if (std::string flops = published_flops_json(model_.config, report.summary); !flops.empty())
    report.files.emplace_back("flops.json", std::move(flops));
  return report;
}

std::vector<DatasetOption> ruler_file_options(RulerFiles& files) {
  return {{"--ruler-essays", &files.essays,
           "Text around the needles of the tasks that upstream hides in essays: {\"text\": ...} in a .json, or plain "
           "text (default: invented prose)"},
          {"--ruler-qa", &files.questions,
           "Questions and documents: a SQuAD file for qa_1, a HotpotQA file for qa_2, or both, each with its own "
           "--ruler-qa (default: questions on made-up facts)"}};
}

std::vector<DatasetOption> RulerCommand::options() {
  std::vector<DatasetOption> options = ruler_file_options(texts_);
  options.insert(
      options.begin(),
      {"--ruler-data", &ruler_data_,
       "Samples that NVIDIA/RULER made: a folder of <length>/<task>.jsonl, or one such file (default: the embedded "
       "source). No chat template is added; one that the files have is kept, its special tokens being read as such"});
  const std::vector<DatasetOption> more = {
      {"--tasks", &tasks_,
       fmt::format("RULER tasks or groups: single, multikey, niah, qa, all [{}; of files: all]", kTasks)},
      {"--lengths", &lengths_,
       fmt::format("Context lengths in tokens: 4K,32768 [{}; with --equal: {}; of files: all]", kLengths, kOneLength)},
      {"--samples", &samples_, "Samples per task and length; of files, at most what the shortest holds"},
      {"--seed", &seed_, fmt::format("Seed of the samples [{}; files have theirs]", kSeed)}};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

void RulerCommand::check(const DatasetHost&) {
  const bool embedded = ruler_data_.empty();
  if (!tasks_.empty() || embedded) what_.tasks = expand_ruler_tasks(tasks_.empty() ? kTasks : tasks_);
  if (!lengths_.empty() || embedded) {
    const char* all = one_length ? kOneLength : kLengths;
    what_.lengths = parse_lengths(lengths_.empty() ? all : lengths_, "--lengths");
  }
  if (one_length && what_.lengths.size() > 1)
    throw_input_error(
        "--equal sets budgets at one length, since what is equal at one is not at another, and --lengths has {}: give "
        "one, and `tandem report` puts runs side by side.",
        what_.lengths.size());
  what_.samples = samples_;
  check_range("--samples", samples_, 1, 100000);
  if (!embedded && !texts_.empty())
    throw_input_error(
        "--ruler-data has whole prompts, so that --ruler-essays and --ruler-qa have no place in it: give one or the "
        "other.");
  if (!embedded && seed_)
    throw_input_error("--seed makes the samples of the embedded source, and --ruler-data has its own: leave it away.");
  if (embedded) what_.seed = seed_.value_or(kSeed);
  what_.texts = read_ruler_texts(texts_, what_.tasks);
  what_.data_file = data = ruler_data_;
  what_.text_files = texts_;
  if (embedded) return;
  what_.official = std::make_shared<const OfficialRuler>(ruler_data_, what_.tasks, what_.lengths);
  what_.tasks = what_.official->tasks();
  what_.lengths = what_.official->lengths();
  what_.samples = std::min(samples_, what_.official->samples());
}

std::unique_ptr<Dataset> RulerCommand::open(const DatasetSetting& with) {
  return std::make_unique<Ruler>(what_, with.model);
}

std::vector<std::filesystem::path> RulerCommand::unread() const {
  return what_.official ? what_.official->unread() : std::vector<std::filesystem::path>();
}

std::vector<std::string> RulerCommand::notes(const Model& model) const {
  if (!what_.official) return {};
  return official_notes(*what_.official, samples_, *model.tokenizer);
}

}  // namespace tandem::eval
