#include "eval/perplexity/perplexity.h"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <span>

#include "engine/common/error.h"
#include "engine/model/utf8.h"
#include "eval/perplexity/summary.h"
#include "eval/report/table.h"
#include "eval/ruler/wording.h"
#include "eval/run/decoded.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

using Tokens = std::vector<std::int32_t>;

/// Windows times tokens of a window: what is held in memory, 4 bytes each (and 8 of invented prose).
constexpr std::uint64_t kMostWindowTokens = 64u << 20;
constexpr std::size_t kPartBytes = 256 << 10;  // of text that is encoded at a time: a few milliseconds

void check(const std::function<bool()>& interrupted) {
  if (interrupted && interrupted()) throw Interrupted();
}

/// The text's first `count` ids; fewer where it has no more.
Tokens first_ids(const Tokenizer& tokenizer, std::string_view text, std::size_t count,
                 const std::function<bool()>& interrupted) {
  Tokens ids;
  tokenizer.encode_parts(text, kPartBytes, [&](std::span<const std::int32_t> part) {
    check(interrupted);
    ids.insert(ids.end(), part.begin(), part.begin() + std::ptrdiff_t(std::min(part.size(), count - ids.size())));
    return ids.size() < count;
  });
  return ids;
}

/// The first `count` ids of prose without end.
Tokens first_ids_of_prose(const Tokenizer& tokenizer, std::uint64_t seed, std::size_t count,
                          const std::function<bool()>& interrupted) {
  constexpr std::size_t kLastWord = 64;  // ids at the end of a text may be others where it goes on
  for (std::size_t bytes = 8 * count;; bytes *= 2) {
    Tokens ids = first_ids(tokenizer, invented_prose(seed, bytes, interrupted), count + kLastWord, interrupted);
    if (ids.size() < count + kLastWord) continue;
    ids.resize(count);
    return ids;
  }
}

}  // namespace

Perplexity::Perplexity(PerplexityOptions options, const Model& model)
    : options_(std::move(options)), bos_(model.tokenizer->encode("", /*add_bos=*/true)) {
  const auto& [text, file, seed, context, scored, windows, interrupted] = options_;
  if (windows < 1 || scored < 1)
    throw_input_error("There is nothing to score: give at least one window and one token.");
  if (context < 2) throw_input_error("--context is {}: give at least 2 tokens.", context);
  if (std::size_t{context} + scored > model.config.max_positions) {
    throw_input_error("--context {} and --new {} exceed the {} positions of model '{}' (max_position_embeddings).",
                      context, scored, model.config.max_positions, model.name);
  }
  if (const std::size_t valid = text ? valid_utf8_bytes(*text) : 0; text && valid < text->size()) {
    throw_input_error(
        "--text '{}': byte {} (0x{:02x}) is no UTF-8. Perplexity depends on every byte: convert the file first.", file,
        valid, static_cast<unsigned char>((*text)[valid]));
  }
  const std::size_t length = context + scored - bos_.size(), count = length * windows;
  if (count > kMostWindowTokens) {
    throw_input_error("--windows {} of {} tokens are {} tokens, more than the {} that a run may have: give fewer.",
                      windows, length, count, kMostWindowTokens);
  }
  all_ = text ? first_ids(*model.tokenizer, *text, count, interrupted)
              : first_ids_of_prose(*model.tokenizer, seed, count, interrupted);
  if (all_.size() < count) {
    throw_input_error("--text '{}' has {} tokens; {} windows of {} need {}: give a longer text or fewer windows.", file,
                      all_.size(), windows, length, count);
  }
}

std::vector<std::string> Perplexity::tasks() const {
  if (options_.text_file.empty()) return {"invented-prose"};
  return {repair_utf8(std::filesystem::path(options_.text_file).filename().string())};
}

std::string Perplexity::protocol_id(const Manifest& manifest) const {
  const RulerWording& wording = ruler_wording();
  const std::string text = options_.text ? fmt::format("{:016x}", fnv1a64(*options_.text))
                                         : fmt::format("invented-{}-{:016x}", options_.seed,
                                                       fnv1a64(wording.wording_hash + wording.words_hash));
  return fmt::format("perplexity/decode+text:{}+tok:{}+context:{}+new:{}+windows:adjacent", text,
                     manifest.tokenizer_hash, options_.context, options_.scored);
}

std::string Perplexity::arguments() const {
  return fmt::format("{} --context {} --new {} --windows {}",
                     options_.text_file.empty() ? "" : " --text " + shell_word(options_.text_file),
                     length_text(options_.context), length_text(options_.scored), options_.windows);
}

DatasetSample Perplexity::sample(const std::string& task, std::uint32_t length, std::uint32_t index) const {
  const std::size_t tokens = options_.context + options_.scored - bos_.size();
  DatasetSample sample = {.task = task,
                          .length = length,
                          .index = index,
                          .prompt = bos_,
                          .max_new_tokens = options_.scored,
                          .first_token = std::uint64_t{index} * tokens};
  const auto first = all_.begin() + static_cast<std::ptrdiff_t>(sample.first_token);
  const auto last = first + static_cast<std::ptrdiff_t>(tokens), fed = last - options_.scored;
  sample.prompt.insert(sample.prompt.end(), first, fed);
  sample.forced.assign(fed, last);
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

std::string invented_prose(std::uint64_t seed, std::size_t bytes, const std::function<bool()>& interrupted) {
  Random random(seed);
  std::string text;
  for (std::size_t sentences = 0; text.size() < bytes; ++sentences) {
    if (sentences % 1024 == 0) check(interrupted);
    text += random_prose(ruler_wording(), random) + " ";
  }
  return text;
}

}  // namespace tandem::eval
