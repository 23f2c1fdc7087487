#include "eval/perplexity/perplexity.h"

#include <fmt/core.h>

#include "engine/common/error.h"
#include "engine/model/utf8.h"
#include "eval/perplexity/summary.h"
#include "eval/report/table.h"
#include "eval/ruler/random.h"
#include "eval/run/decoded.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

Windows cut_windows(const PerplexityOptions& options, const Model& model) {
  if (options.windows < 1 || options.scored < 1)
    throw_input_error("There is nothing to score: give at least one window and one token.");
  if (options.context < 2) throw_input_error("--context is {}: give at least 2 tokens.", options.context);
  if (std::size_t{options.context} + options.scored > model.config.max_positions) {
    throw_input_error("--context {} and --new {} exceed the {} positions of model '{}' (max_position_embeddings).",
                      options.context, options.scored, model.config.max_positions, model.name);
  }
  if (options.text) {
    const std::string& text = *options.text;
    if (const std::size_t valid = valid_utf8_bytes(text); valid < text.size()) {
      throw_input_error("{}: byte {} (0x{:02x}) is no UTF-8. Perplexity depends on every byte: convert the file first.",
                        options.text_source, valid, static_cast<unsigned char>(text[valid]));
    }
  }
  return {options, model};
}

}  // namespace

Perplexity::Perplexity(PerplexityOptions options, const Model& model)
    : options_(std::move(options)), windows_(cut_windows(options_, model)) {}

std::string Perplexity::protocol_id(const Manifest& manifest) const {
  const std::string text =
      options_.text ? fmt::format("{:016x}", fnv1a64(*options_.text)) : invented_prose_name(options_.seed);
  return fmt::format("perplexity/decode+text:{}+tok:{}+context:{}+new:{}+windows:adjacent", text,
                     manifest.tokenizer_hash, options_.context, options_.scored);
}

std::string Perplexity::arguments() const {
  return fmt::format("{} --context {} --new {} --windows {}",
                     options_.text_file.empty() ? "" : " --text " + shell_word(options_.text_file),
                     length_text(options_.context), length_text(options_.scored), options_.windows);
}

DatasetSample Perplexity::sample(const std::string& task, std::uint32_t length, std::uint32_t index) const {
  DatasetSample sample;
  sample.task = task;
  sample.length = length;
  sample.index = index;
  sample.prompt = windows_.tokens(index);
  sample.forced.assign(sample.prompt.begin() + options_.context, sample.prompt.end());
  sample.prompt.resize(options_.context);
  sample.max_new_tokens = options_.scored;
  sample.first_token = windows_.first_token(index);
  return sample;
}

RunReport Perplexity::report(const RunFolder& folder) const {
  PerplexitySummary summary = summarise_perplexity(folder);
  const Manifest& manifest = summary.run.manifest;
  summary.run.remarks = method_remarks(manifest.methods, manifest.weights_hash);
  RunReport report;
  report.summary = summary.run;
  report.files = {{"summary.json", to_json_text(summary)}};
  report.head = [=](bool markdown, bool with_plot) { return perplexity_report(summary, markdown, with_plot); };
  report.plots = {{kPlot, "plot"}};
  report.samples_file = "windows.jsonl";
  return report;
}

}  // namespace tandem::eval
