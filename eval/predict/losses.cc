#include "eval/predict/losses.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <optional>
#include <set>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "eval/match_bytes/match_bytes.h"
#include "eval/predict/sweep.h"
#include "eval/predict/text.h"
#include "eval/report/json_fields.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/summary.h"
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

double attended(const LatencySummary& latency) {
  return latency.attended_device + latency.attended_host;
}

/// Tokens that a step of the method attends, of prompts of this length or (0) of all; 0 in a run without times.
double attended_at(const MethodSummary& method, std::uint32_t length) {
  if (length == 0) return method.latency ? attended(*method.latency) : 0;
  const auto found = std::ranges::find(method.by_length, length, &LengthLatency::length);
  return found == method.by_length.end() ? 0 : attended(found->latency);
}

/// The difference of a summary is the method's score minus the baseline's. 0 - x, not -x: a tie has no sign.
Loss loss_of(const AccuracyCell& cell) {
  const auto& [n, value, interval, kind] = cell.difference.difference;
  Loss loss;
  loss.kind = LossKind::yours;
  loss.points = 100 * (0 - value);
  if (kind != IntervalKind::none) loss.interval = {100 * (0 - interval.high), 100 * (0 - interval.low)};
  loss.shortest = loss.longest = cell.length;
  return loss;
}

constexpr double kMostPoints = 100;

void read_row(ObjectReader& fields, Loss& loss) {
  fields.filled("method", loss.method);
  std::string ran_as;
  fields.optional("ran_as", ran_as);  // for people: the trained method that `method` stands in for
  fields.field("length", loss.longest);
  fields.require(loss.longest > 0, "length", "1 or more");
  loss.shortest = loss.longest;
  if (fields.has("share")) fields.number("share", loss.share, 0, 1);
  fields.number("points", loss.points, -kMostPoints, kMostPoints);
  if (!fields.has("low")) return;
  Interval& interval = loss.interval.emplace();
  fields.number("low", interval.low, -kMostPoints, loss.points);
  fields.number("high", interval.high, loss.points, kMostPoints);
}

/// Whether the budget of a spec counts tokens, which are another share of other contexts.
bool budget_is_tokens(const std::string& spec) {
  const std::optional<BudgetOption> budget = budget_option(spec, Measure::touched);
  return budget && budget->scale == BudgetOption::Scale::tokens;
}

/// Options of a spec, defaults spelled out, without those that set its budget.
MethodEntry without_budget(MethodEntry entry) {
  for (const BudgetOption& budget : find_method(entry.name).budget_options)
    std::erase_if(entry.options, [&](const auto& option) { return option.first == budget.option; });
  return entry;
}

}  // namespace

std::vector<Loss> parse_losses(const std::string& text, const std::string& file) {
  const nlohmann::ordered_json json = parse_object(text, file);
  ObjectReader reader(json, file);
  std::vector<Loss> losses;
  std::size_t number = 0;
  for (const auto& item : reader.array("sources")) {
    ObjectReader source(item, fmt::format("{}, source {}", file, ++number));
    Loss common;
    source.one_of("kind", common.kind, kLossKinds);
    source.require(common.kind == LossKind::run || common.kind == LossKind::paper, "kind", "shipped run or paper");
    source.filled("model", common.model);
    source.filled("source", common.source);
    std::vector<Loss> rows;
    source.numbered("rows", "row", rows, [](ObjectReader& fields, Loss& row) { read_row(fields, row); });
    source.finish();
    for (Loss& row : rows) {
      row.kind = common.kind;
      row.model = common.model;
      row.source = common.source;
      losses.push_back(std::move(row));
    }
  }
  reader.finish();
  return losses;
}

std::vector<Loss> shipped_losses() {
  const std::filesystem::path path = data_path("methods/losses.json");
  return parse_losses(read_file(path, kMostOfAFile), path.string());
}

std::vector<Loss> losses_of_run(const std::filesystem::path& run, const std::vector<std::string>& methods,
                                const Model& shape) {
  const RunFolder folder = RunFolder::open(run);
  const Manifest& manifest = folder.manifest();
  if (manifest.benchmark == kPerplexity)
    throw_input_error("'{}' is a perplexity, whose losses are no points: give a run of compare or eval with scores.",
                      run.string());
  const MethodEntry& first = manifest.methods.front();
  find_method(first.name);  // one that this program does not know
  // With whatever options: one that is lossless with these only, such as dense layers as many as a small model has,
  // says nothing of the run's model.
  if (!is_lossless(first.name, shape))
    throw_input_error(
        "'{}': its first method is {}, which losses are measured against and which loses something itself: compare "
        "with full as the first of --methods.",
        run.string(), first.label);
  const Summary summary = summarise(folder);
  if (!summary.complete) throw_input_error("'{}' is not finished: its command goes on with --resume.", run.string());

  std::uint32_t shortest = 0, longest = 0;  // of prompts that are as long as they are
  for (const SampleResult& sample : folder.samples()) {
    shortest = shortest == 0 ? sample.prompt_tokens : std::min(shortest, sample.prompt_tokens);
    longest = std::max(longest, sample.prompt_tokens);
  }
  std::vector<Loss> losses;
  for (const std::string& spec : methods) {
    const MethodEntry* entry = find_in(manifest, method_entries({spec}).front());
    if (entry == nullptr || is_lossless(spec, shape)) continue;
    const auto measured = std::ranges::find(summary.methods, entry->label, &MethodSummary::label);
    TANDEM_CHECK(measured != summary.methods.end(), "no summary of {}", entry->label);
    std::vector<AccuracyCell> cells = measured->lengths;
    if (cells.empty() || cells.front().length == 0) cells = {measured->overall};
    for (const AccuracyCell& cell : cells) {
      if (!cell.has_difference) continue;
      Loss& loss = losses.emplace_back(loss_of(cell));
      loss.method = spec;
      loss.exact = true;
      loss.any_length = !budget_is_tokens(spec);
      loss.model = manifest.model;
      loss.source = fmt::format("{}, {}, {}", manifest.benchmark, counted(manifest.tasks.size(), "task"), run.string());
      const double all = attended_at(summary.methods.front(), cell.length);
      if (all > 0) loss.share = std::min(1.0, attended_at(*measured, cell.length) / all);
      if (cell.length != 0) continue;
      loss.shortest = shortest;
      loss.longest = longest;
    }
  }
  if (losses.empty())
    throw_input_error(
        "'{}' has none of the methods {} that lose something: it has {}. A method is the same where all its options "
        "are, those included that are not given (tandem methods NAME).",
        run.string(), fmt::join(methods, ", "), listed(manifest.methods, [](const MethodEntry& e) { return e.label; }));
  return losses;
}

std::vector<Loss> losses_of_methods(const std::vector<Loss>& shipped, const std::vector<std::string>& methods) {
  std::vector<Loss> losses;
  for (const Loss& loss : shipped) {
    const MethodEntry measured = method_entries({loss.method}).front();
    for (const std::string& spec : methods) {
      const MethodEntry asked = method_entries({spec}).front();
      if (asked.name != measured.name) continue;
      const bool exact = same_options(asked, measured);
      if (!exact && (loss.share == 0 || !same_options(without_budget(asked), without_budget(measured)))) continue;
      Loss& found = losses.emplace_back(loss);
      found.method = spec;
      found.exact = exact;
      found.any_length = exact && !budget_is_tokens(spec);
    }
  }
  return losses;
}

}  // namespace tandem::eval
