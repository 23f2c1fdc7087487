#include "eval/compare/compare.h"

#include <algorithm>

#include "engine/common/error.h"
#include "engine/runtime/limits.h"
#include "eval/ruler/protocol.h"
#include "eval/run/decoded.h"
#include "eval/scoring/string_match.h"

namespace tandem::eval {
namespace {

constexpr const char* kRuler = "ruler";  // Manifest::benchmark

std::vector<std::int32_t> encode_prompt(const CompareOptions& options, const Model& model, std::string_view prompt) {
  if (options.official) check_text_fits(model, prompt, "A prompt of --ruler-data");
  if (options.official) return encode_official(*model.tokenizer, prompt);
  return model.tokenizer->encode(prompt, /*add_bos=*/true);
}

TokenCounter token_counter(const CompareOptions& options, const Model& model) {
  return
      [&](std::string_view prompt) { return static_cast<std::uint32_t>(encode_prompt(options, model, prompt).size()); };
}

void check_official(const CompareOptions& options, const Model& model) {
  const TokenCounter counter = token_counter(options, model);
  for (const std::uint32_t length : options.lengths) {
    for (const std::string& task : options.tasks) {
      for (std::uint32_t i = 0; i < options.samples; ++i) {
        const RulerSample sample = options.official->sample(task, length, i, counter);
        if (sample.prompt_tokens + sample.max_new_tokens > model.config.max_positions + 1) {
          throw_input_error(
              "Sample {} of {} at length {} has {} tokens and {} are generated, more than the {} positions of model "
              "'{}' "
              "(max_position_embeddings): choose shorter files with --lengths.",
              i, task, length, sample.prompt_tokens, sample.max_new_tokens, model.config.max_positions, model.name);
        }
        check_device_room(options.engine, model, options.batch, sample.prompt_tokens, "--lengths");
      }
    }
  }
}

class RulerBenchmark final : public Benchmark {
 public:
  RulerBenchmark(const CompareOptions& options, const Model& model) : options_(options), model_(model) {}
  std::string name() const override { return kRuler; }
  BenchmarkSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override {
    return compare_sample(options_, model_, task, length, index);
  }
  std::string prediction(std::span<const std::int32_t> tokens) const override {
    return postprocess_prediction(model_.tokenizer->decode(tokens));
  }
  std::vector<Score> scores(std::span<const BenchmarkSample> samples,
                            std::span<const std::string> predictions) const override {
    std::vector<Score> scores;
    scores.reserve(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i)
      scores.push_back({ruler_score(find_ruler_task(samples[i].task), predictions[i], samples[i].answers)});
    return scores;
  }

 private:
  const CompareOptions& options_;
  const Model& model_;
};

}  // namespace

void fill_manifest(const CompareOptions& options, Manifest& manifest) {
  manifest.methods = method_entries(options.methods);
  manifest.benchmark = kRuler;
  manifest.tasks = options.tasks;
  manifest.lengths = options.lengths;
  manifest.samples = options.samples;
  manifest.seed = options.seed;
  RulerProtocol protocol;
  protocol.tokenizer_hash = manifest.tokenizer_hash;
  protocol.texts = options.texts;
  if (options.official) {
    protocol.data_hash = options.official->hash();
    const ChatTemplate found = options.official->chat_template();
    if (!found.mark.empty()) protocol.chat_template = found.known ? "in-files" : "unknown";
  }
  protocol.budget = budget_meanings(manifest.methods);
  manifest.protocol_id = ruler_protocol_id(protocol);
}

CompareOptions from_official(CompareOptions options) {
  options.tasks = options.official->tasks();
  options.lengths = options.official->lengths();
  options.samples = std::min(options.samples, options.official->samples());
  return options;
}

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
                    "like none that is "
                    "known here: they are used as they are, special tokens being read as such, and the protocol says "
                    "template:unknown.",
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

void check_compare(const CompareOptions& options, const Model& model) {
  const ModelConfig& c = model.config;
  if (options.official) return check_official(options, model);
  for (const std::uint32_t length : options.lengths) {
    if (length > c.max_positions) {
      throw_input_error("--lengths: {} is more than the {} positions of model '{}' (max_position_embeddings).", length,
                        c.max_positions, model.name);
    }
    for (const std::string& task : options.tasks) {
      check_ruler_samples(task, length, options.samples, options.seed, token_counter(options, model), options.texts);
      check_device_room(options.engine, model, options.batch,
                        length - ruler_max_new_tokens(find_ruler_task(task), length), "--lengths");
    }
  }
}

BenchmarkSample compare_sample(const CompareOptions& options, const Model& model, const std::string& task,
                               std::uint32_t length, std::uint32_t index) {
  const TokenCounter counter = token_counter(options, model);
  RulerSample sample = options.official ? options.official->sample(task, length, index, counter)
                                        : make_ruler_sample(task, length, index, options.seed, counter, options.texts);
  return {.task = task,
          .length = length,
          .index = index,
          .prompt = encode_prompt(options, model, sample.prompt),
          .answers = std::move(sample.answers),
          .max_new_tokens = sample.max_new_tokens,
          .depth = sample.depth};
}

void run_compare(const CompareOptions& options, const Model& model, Device& device, ThreadPool& pool, RunFolder& folder,
                 const TraceOfFirst& trace_of_first) {
  run_benchmark(RulerBenchmark(options, model), options, model, device, pool, folder, trace_of_first);
}

}  // namespace tandem::eval
