#include "eval/perplexity/perplexity.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/core.h>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/model/utf8.h"
#include "eval/report/answer.h"
#include "eval/report/markdown.h"
#include "eval/report/table.h"
#include "eval/ruler_tasks/wording.h"
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

/// Without an interval where all windows are alike (or there is one): how far off another may be they do not say, and
/// no bound follows from what a loss can be.
Estimate estimate_of(const std::vector<double>& values, IntervalKind kind) {
  const bool alike = std::all_of(values.begin(), values.end(), [&](double x) { return x == values.front(); });
  if (alike) return {values.size(), mean(values), {}, IntervalKind::none};
  return {values.size(), mean(values), bootstrap_mean_interval(values), kind};
}

MethodLoss loss_of(const std::string& label, const std::map<std::uint32_t, const WindowLoss*>& own,
                   const std::map<std::uint32_t, const WindowLoss*>& baseline) {
  MethodLoss out;
  out.label = label;
  std::vector<double> more;
  out.nll_by_position.resize(own.begin()->second->nll_by_position.size());
  for (const auto& [index, window] : own) {
    out.nll.push_back(window->nll);
    if (const auto other = baseline.find(index); other != baseline.end() && &own != &baseline)
      more.push_back(window->nll - other->second->nll);
    for (std::size_t b = 0; b < out.nll_by_position.size(); ++b)
      out.nll_by_position[b] += window->nll_by_position[b] / static_cast<double>(own.size());
  }
  out.loss = estimate_of(out.nll, IntervalKind::bootstrap);
  if (!more.empty()) out.difference = estimate_of(more, IntervalKind::paired_bootstrap);
  return out;
}

/// An estimate, its interval null where there is none.
nlohmann::ordered_json json_of(const Estimate& e) {
  nlohmann::ordered_json json = estimate_json(e, "value");
  if (e.kind == IntervalKind::none) json["interval"] = nullptr;
  return json;
}

constexpr std::uint64_t kFewWindows = 10;

/// A figure with its interval, or why there is none.
template <class Text>
std::string loss_cell(const Estimate& e, const Text& text) {
  if (e.n == 0) return "-";
  if (e.n == 1) return text(e.value) + " [-]";
  if (e.kind == IntervalKind::none) return fmt::format("{} [the same in all {}]", text(e.value), e.n);
  return interval_text(e, text);
}

/// Whether the run's first method has a window yet: a run that is not finished may have only others'.
bool has_baseline(const PerplexitySummary& s) {
  return s.methods.front().label == s.run.manifest.methods.front().label;
}

Table loss_table(const PerplexitySummary& s, const std::vector<std::string>& labels) {
  const auto perplexity = [](double nats) { return fmt::format("{:.4f}", std::exp(nats)); };
  const auto more = [](double nats) { return fmt::format("{:+.4f}", nats); };
  Table t;
  t.head = {"method", "windows", "perplexity [95\u00a0%]"};
  if (has_baseline(s)) t.head.emplace_back("nats per token more than the first [95\u00a0%]");
  const bool marked = any_attends_everything(s.run.methods);
  if (marked) t.head.emplace_back("budget");
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const MethodLoss& m = s.methods[i];
    std::vector<std::string>& row = t.rows.emplace_back();
    row = {labels[i], std::to_string(m.loss.n), loss_cell(m.loss, perplexity)};
    if (has_baseline(s)) row.push_back(loss_cell(m.difference, more));
    if (marked) row.push_back(budget_text(s.run.methods[i].attends_everything_at));
  }
  return t;
}

/// The first method's losses, and what the others have more; without that method, all losses.
Table position_table(const PerplexitySummary& s, const std::vector<std::string>& labels) {
  Table t;
  t.head = {"scored tokens"};
  t.head.insert(t.head.end(), labels.begin(), labels.end());
  const std::vector<double>& baseline = s.methods.front().nll_by_position;
  const std::size_t stretches = baseline.size();
  for (std::size_t b = 0; b < stretches; ++b) {
    const std::size_t first = b * s.scored / stretches + 1, last = (b + 1) * s.scored / stretches;
    std::vector<std::string> row = {first == last ? std::to_string(first) : fmt::format("{} to {}", first, last)};
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const double nats = s.methods[i].nll_by_position[b];
      const bool is_difference = i > 0 && has_baseline(s);
      row.push_back(is_difference ? fmt::format("{:+.4f}", nats - baseline[b]) : fmt::format("{:.4f}", nats));
    }
    t.rows.push_back(std::move(row));
  }
  return t;
}

std::string loss_note(const PerplexitySummary& s) {
  std::string text =
      "Perplexity is the exponential of the mean negative log likelihood of a token. Intervals: bootstrap over "
      "windows; differences are taken window by window, and an interval that holds 0 shows no difference.";
  const auto same = [](const MethodLoss& m) { return m.difference.n > 1 && m.difference.kind == IntervalKind::none; };
  if (std::any_of(s.methods.begin(), s.methods.end(), same)) {
    text += " Where the windows are all the same there is no interval: they do not say how far off others may be.";
  }
  if (!has_baseline(s))
    text += fmt::format(" {}, the run's first method, has no window yet: there are no differences to it.",
                        s.run.manifest.methods.front().label);
  const std::uint64_t n = s.methods.front().loss.n;
  if (n < 2) {
    text +=
        " [-]: one window says nothing about how windows differ, so there is no interval; give --windows 2 or more.";
  } else if (n < kFewWindows) {
    text += fmt::format(" With {} windows they are too narrow: take {} or more.", n, kFewWindows);
  }
  return text;
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
                          .answers = {},
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

PerplexitySummary summarise_perplexity(const RunFolder& folder) {
  PerplexitySummary summary;
  Manifest& manifest = summary.run.manifest = folder.manifest();
  const std::vector<WindowLoss> windows = folder.windows();
  const std::vector<SampleTiming> timings = folder.timings();
  const std::string file = (folder.path() / "windows.jsonl").string();
  if (windows.empty()) throw_input_error("{} holds no finished window.", file);
  summary.scored = windows.front().scored;
  const std::size_t stretches = windows.front().nll_by_position.size();
  std::map<std::string, std::map<std::uint32_t, const WindowLoss*>> by_method;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].scored != summary.scored || windows[i].nll_by_position.size() != stretches)
      throw_input_error("{}:{}: the window scores {} tokens in {} stretches, but the first one {} in {}.", file, i + 1,
                        windows[i].scored, windows[i].nll_by_position.size(), summary.scored, stretches);
    by_method[windows[i].method][windows[i].index] = &windows[i];
  }
  Contexts contexts;
  for (const WindowLoss& window : windows) contexts[{window.task, window.length, window.index}] = window.length;
  const auto& baseline = by_method[manifest.methods.front().label];
  summary.run.complete = true;
  for (const MethodEntry& entry : manifest.methods) {
    const auto& own = by_method[entry.label];
    summary.run.complete = summary.run.complete && own.size() == manifest.samples &&
                           has_times(manifest, timings, entry.label, manifest.samples);
    if (own.empty()) continue;
    const MethodLoss& loss = summary.methods.emplace_back(loss_of(entry.label, own, baseline));
    MethodSummary& method = summary.run.methods.emplace_back();
    method.label = entry.label;
    method.overall.accuracy = loss.loss;
    method.overall.units = loss.loss.n;
    method.overall.has_difference = loss.difference.n > 0;
    method.overall.difference.difference = loss.difference;
    add_latency(manifest, timings, method);
    method.attends_everything_at = lengths_attended_whole(manifest, entry, timings, contexts);
  }
  add_reuse(contexts, timings, summary.run);
  return summary;
}

std::string to_json_text(const PerplexitySummary& summary) {
  const Manifest& m = summary.run.manifest;
  nlohmann::ordered_json json;
  json["schema_version"] = kSchemaVersion;
  write_origin(json, m);
  json["complete"] = summary.run.complete;
  json["text"] = m.tasks.front();
  json["context"] = m.lengths.front();
  json["scored"] = summary.scored;
  json["methods"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < summary.methods.size(); ++i) {
    const MethodLoss& loss = summary.methods[i];
    nlohmann::ordered_json method;
    method["method"] = loss.label;
    method["perplexity"] = std::exp(loss.loss.value);
    method["nll"] = json_of(loss.loss);
    if (loss.difference.n > 0) method["nll_difference"] = json_of(loss.difference);
    method["nll_by_position"] = loss.nll_by_position;
    write_latency(method, summary.run.methods[i]);
    json["methods"].push_back(std::move(method));
  }
  write_reuse(json, summary.run);
  return json_text(json, 2) + "\n";
}

std::string perplexity_report(const PerplexitySummary& s, bool markdown, bool with_plot) {
  const Manifest& m = s.run.manifest;
  const std::vector<std::string> labels = labels_of(s.run, markdown);
  std::string out;
  if (markdown) out += fmt::format("# Perplexity of {}\n", markdown_text(m.model));
  out +=
      note(fmt::format("{}: {} {}, each {} tokens of context prefilled with full attention, then {} tokens fed and "
                       "scored one by one through the method; {}{}",
                       m.tasks.front(), m.samples, m.samples == 1 ? "window" : "windows", m.lengths.front(), s.scored,
                       s.run.complete ? "complete" : "NOT COMPLETE: some windows, or times of them, are missing",
                       clock_note(s.run, markdown)),
           markdown);
  out += labels_note(s.run, markdown);
  if (markdown) out += answer_list(answer_of(s.run)) + front_picture(s.run, with_plot);
  out += section("Loss", markdown) + text_of(loss_table(s, labels), markdown) +
         note(loss_note(s) + budget_note(s.run), markdown);
  out += remarks_note(s.run, markdown);
  if (markdown && with_plot) out += "\n![Perplexity and where a step's time goes](plot.png)\n";
  out += latency_report(s.run, markdown);
  out += section("Loss by position", markdown) + text_of(position_table(s, labels), markdown);
  return out + note(has_baseline(s)
                        ? fmt::format("Mean nats of a token of {}; of the others, how much more.", labels.front())
                        : "Mean nats of a token.",
                    markdown);
}

}  // namespace tandem::eval
