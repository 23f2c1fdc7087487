#include "eval/predict/answers.h"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <set>

#include "engine/common/error.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/summary.h"
#include "eval/report/table.h"
#include "eval/run/decoded.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

/// "heads=published": no figure of any model's answers.
Options stand_ins_of(const std::string& method) {
  const std::string& text = find_method(method).for_simulated_shapes;
  return text.empty() ? Options{} : parse_method_spec(method + ":" + text).options;
}

/// `measured`: the run's. A file that both have read may have moved; one with other content is another method.
bool same_answers(const MethodEntry& asked, const MethodEntry& measured) {
  if (asked.name != measured.name) return false;
  const Options stand_ins = stand_ins_of(asked.name);
  const bool stands_in = !stand_ins.empty() && std::ranges::all_of(stand_ins, [&](const auto& option) {
    return option_of(asked, option.first) == option.second;
  });
  std::set<std::string> stood_in_for;
  for (const auto& option : stand_ins) stood_in_for.insert(option.first);
  if (stands_in) return !measured.content.empty() && same_options(asked, measured, stood_in_for);
  if (asked.content != measured.content) return false;
  return same_options(asked, measured, asked.content.empty() ? std::set<std::string>{} : stood_in_for);
}

const MethodEntry* find_in(const Manifest& run, const MethodEntry& method) {
  const auto found = std::ranges::find_if(run.methods, [&](const MethodEntry& e) { return same_answers(method, e); });
  return found == run.methods.end() ? nullptr : &*found;
}

/// The difference of a summary is the method's score minus the baseline's. 0 - x, not -x: a tie has no sign.
Estimate loss_of(const Estimate& difference) {
  Estimate loss = difference;
  loss.value = 0 - difference.value;
  loss.interval = {0 - difference.interval.high, 0 - difference.interval.low};
  return loss;
}

AnswersAt figures_of(const AccuracyCell& cell) {
  AnswersAt at{cell.length, cell.accuracy, {}};
  if (cell.has_difference) at.loss = loss_of(cell.difference.difference);
  return at;
}

/// With whatever options: one that is lossless with these only, such as dense layers as many as a small model has,
/// says nothing of the run's model.
void check_baseline(const Manifest& m, const Model& shape, const std::filesystem::path& run) {
  const MethodEntry& first = m.methods.front();
  find_method(first.name);  // one that this program does not know
  if (!is_lossless(first.name, shape))
    throw_input_error(
        "'{}': its first method is {}, which losses are measured against and which loses something itself: compare "
        "with full as the first of --methods.",
        run.string(), first.label);
}

/// Of prompts that are as long as they are.
void find_range(const RunFolder& folder, Answers& answers) {
  for (const SampleResult& sample : folder.samples()) {
    answers.shortest = answers.longest == 0 ? sample.prompt_tokens : std::min(answers.shortest, sample.prompt_tokens);
    answers.longest = std::max(answers.longest, sample.prompt_tokens);
  }
}

std::string labels_of(const std::vector<MethodEntry>& methods) {
  std::vector<std::string> labels;
  labels.reserve(methods.size());
  for (const MethodEntry& entry : methods) labels.push_back(entry.label);
  return fmt::format("{}", fmt::join(labels, ", "));
}

}  // namespace

const char* to_string(Standing standing) {
  constexpr std::array<const char*, 5> kNames = {"within", "beyond", "cannot tell", "not measured",
                                                 "measured elsewhere"};
  return kNames.at(static_cast<std::size_t>(standing));
}

const AnswersAt* Answers::find(const std::string& method, std::uint32_t context) const {
  const auto found = std::ranges::find(methods, method, &MethodAnswers::method);
  if (found == methods.end()) return nullptr;
  for (const AnswersAt& at : found->at)
    if (at.length == 0 ? context >= shortest && context <= longest : at.length == context) return &at;
  return nullptr;
}

Standing Answers::standing(const std::string& method, std::uint32_t context) const {
  const auto found = std::ranges::find(methods, method, &MethodAnswers::method);
  if (found == methods.end()) return Standing::not_measured;
  if (found->lossless) return Standing::within;
  if (found->at.empty()) return Standing::not_measured;
  const AnswersAt* at = find(method, context);
  return at == nullptr ? Standing::elsewhere : standing(*found, *at);
}

Standing Answers::standing(const MethodAnswers& method, const AnswersAt& at) const {
  if (method.lossless || at.loss.n == 0) return Standing::within;  // n 0: what losses are measured against
  if (at.loss.interval.high <= margin) return Standing::within;
  return at.loss.interval.low > margin ? Standing::beyond : Standing::cannot_tell;
}

bool is_lossless(const std::string& spec, const Model& shape) {
  try {
    return make_method(spec)->needs(shape_of(shape.config)).lossless;
  } catch (const InputError&) {
    return false;
  }
}

Answers read_answers(const std::filesystem::path& run, const std::vector<std::string>& methods, const Model& shape,
                     double margin) {
  const RunFolder folder = RunFolder::open(run);
  const Manifest& manifest = folder.manifest();
  if (manifest.benchmark == kPerplexity)
    throw_input_error("'{}' is a perplexity, whose losses are no points: give a run of compare or eval with scores.",
                      run.string());
  check_baseline(manifest, shape, run);
  if (std::ranges::all_of(methods, [&](const std::string& spec) { return is_lossless(spec, shape); }))
    throw_input_error("None of the methods {} loses anything, so that '{}' can choose none: leave --accuracy out.",
                      fmt::join(methods, ", "), run.string());
  const Summary summary = summarise(folder);
  if (!summary.complete) throw_input_error("'{}' is not finished: its command goes on with --resume.", run.string());

  Answers answers;
  answers.run = run.string();
  answers.of = fmt::format("{}, {}", manifest.benchmark, counted(manifest.tasks.size(), "task"));
  answers.model = manifest.model;
  answers.baseline = manifest.methods.front().label;
  answers.margin = margin;
  for (const std::uint32_t length : manifest.lengths)
    if (length > 0) answers.lengths.push_back(length);
  if (answers.lengths.empty()) find_range(folder, answers);
  bool any = false;
  for (const std::string& spec : methods) {
    MethodAnswers& m = answers.methods.emplace_back();
    m.method = spec;
    m.lossless = is_lossless(spec, shape);
    const MethodEntry* entry = find_in(manifest, method_entries({spec}).front());
    if (entry == nullptr) continue;
    const auto measured = std::ranges::find(summary.methods, entry->label, &MethodSummary::label);
    TANDEM_CHECK(measured != summary.methods.end(), "no summary of {}", entry->label);
    m.measured_as = entry->label;
    if (answers.lengths.empty())
      m.at.push_back(figures_of(measured->overall));
    else
      for (const AccuracyCell& cell : measured->lengths) m.at.push_back(figures_of(cell));
    any = any || !m.lossless;
  }
  if (!any)
    throw_input_error(
        "'{}' has none of the methods {}: it has {}. A method is the same where all its options are, those included "
        "that are not given (tandem methods NAME).",
        run.string(), fmt::join(methods, ", "), labels_of(manifest.methods));
  return answers;
}

}  // namespace tandem::eval
