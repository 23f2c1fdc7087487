#include "eval/compare/ruler_dataset.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "engine/common/error.h"
#include "engine/runtime/limits.h"
#include "eval/compare/published_flops.h"
#include "eval/report/table.h"
#include "eval/ruler/protocol.h"
#include "eval/run/decoded.h"
#include "eval/run/option_values.h"

namespace tandem::eval {

Ruler::Ruler(RulerOptions options, const Model& model) : options_(std::move(options)), model_(model) {
  const TokenCounter counter = [&](std::string_view prompt) {
    return static_cast<std::uint32_t>(encode(prompt).size());
  };
  const std::uint32_t positions = model.config.max_positions;
  for (const std::uint32_t length : options_.lengths) {
    if (!options_.official && length > positions) {
      throw_input_error("--lengths: {} is more than the {} positions of model '{}' (max_position_embeddings).", length,
                        positions, model.name);
    }
    for (const std::string& task : options_.tasks) {
      if (!options_.official) {
        check_ruler_samples(task, length, options_.samples, options_.seed, counter, options_.texts);
        longest_prompt_ = std::max(longest_prompt_, length - ruler_max_new_tokens(find_ruler_task(task), length));
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

std::vector<std::int32_t> Ruler::encode(std::string_view prompt) const {
  if (!options_.official) return model_.tokenizer->encode(prompt, /*add_bos=*/true);
  check_text_fits(model_, prompt, "A prompt of --ruler-data");
  return encode_official(*model_.tokenizer, prompt);
}

DatasetSample Ruler::sample(const std::string& task, std::uint32_t length, std::uint32_t index) const {
  const TokenCounter counter = [&](std::string_view prompt) {
    return static_cast<std::uint32_t>(encode(prompt).size());
  };
  RulerSample sample = options_.official
                           ? options_.official->sample(task, length, index, counter)
                           : make_ruler_sample(task, length, index, options_.seed, counter, options_.texts);
  return {.task = task,
          .length = length,
          .index = index,
          .prompt = encode(sample.prompt),
          .answers = std::move(sample.answers),
          .max_new_tokens = sample.max_new_tokens,
          .depth = sample.depth};
}

Score Ruler::score(const DatasetSample& sample, const std::string& prediction) const {
  return {ruler_score(find_ruler_task(sample.task), prediction, sample.answers)};
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

std::string Ruler::arguments() const {
  std::string data = options_.data_file.empty() ? "" : " --ruler-data " + shell_word(options_.data_file);
  if (!options_.text_files.essays.empty()) data += " --ruler-essays " + shell_word(options_.text_files.essays);
  for (const std::string& file : options_.text_files.questions) data += " --ruler-qa " + shell_word(file);
  std::vector<std::string> lengths;
  lengths.reserve(options_.lengths.size());
  for (const std::uint32_t length : options_.lengths) lengths.push_back(length_text(length));
  return fmt::format("{} --tasks {} --lengths {} --samples {}{}", data, fmt::join(options_.tasks, ","),
                     fmt::join(lengths, ","), options_.samples,
                     options_.official ? "" : fmt::format(" --seed {}", options_.seed));
}

RunReport Ruler::report(const RunFolder& folder) const {
  RunReport report = Dataset::report(folder);
  report.sections = {{published_flops_text(model_.config, report.summary, /*markdown=*/true),
                      published_flops_text(model_.config, report.summary, /*markdown=*/false)}};
  if (std::string flops = published_flops_json(model_.config, report.summary); !flops.empty())
    report.files.emplace_back("flops.json", std::move(flops));
  return report;
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

}  // namespace tandem::eval
