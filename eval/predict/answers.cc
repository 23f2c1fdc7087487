#include "eval/predict/answers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <set>

#include "engine/common/error.h"
#include "eval/predict/text.h"
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

/// The difference of a summary is the method's score minus the baseline's. 0 - x, not -x: a tie has no sign.
AnswersAt figures_of(const AccuracyCell& cell) {
  AnswersAt at{cell.length, cell.accuracy, {}};
  if (!cell.has_difference) return at;
  const auto& [n, value, interval, kind] = cell.difference.difference;
  at.loss = {n, 0 - value, {0 - interval.high, 0 - interval.low}, kind};
  return at;
}

/// Rounded first: what rounds to nothing has no sign.
std::string points(double share) {
  return fmt::format("{:.1f}", std::round(1000 * share) / 10 + 0.0);
}

std::string verdict(Standing standing) {
  if (standing == Standing::within) return "yes";
  return standing == Standing::beyond ? "no" : to_string(standing);
}

std::string loss_cell(const Answers& answers, const MethodAnswers& method, const AnswersAt& at) {
  if (at.loss.n == 0) return "-";
  const Interval& i = at.loss.interval;
  return fmt::format("{}\u00a0[{},\u00a0{}]: {}", points(at.loss.value), points(i.low), points(i.high),
                     verdict(answers.standing(method, at)));
}

bool measured_for(const Answers& a, std::uint32_t context) {
  if (a.lengths.empty()) return context >= a.shortest && context <= a.longest;
  return std::ranges::find(a.lengths, context) != a.lengths.end();
}

std::string where_measured(const Answers& a) {
  if (a.lengths.empty()) return fmt::format("prompts of {} to {} tokens", a.shortest, a.longest);
  return "prompts of " + listed(a.lengths, length_text);
}

/// How many samples would be about enough to tell, were the loss what it looks: intervals narrow as 1 / sqrt(n).
double samples_to_tell(const AnswersAt& at, double margin) {
  const Interval& i = at.loss.interval;
  const double room = std::abs(margin - at.loss.value);
  const double width = at.loss.value < margin ? i.high - at.loss.value : at.loss.value - i.low;
  return room > 0 ? double(at.loss.n) * std::pow(width / room, 2) : HUGE_VAL;
}

/// How many samples each loss that is not told needs; nothing where every one is.
std::string more_samples(const Answers& a) {
  constexpr std::uint64_t kMost = 100000;
  const std::string each = listed(a.methods, [&](const MethodAnswers& m) {
    return listed(m.at, [&](const AnswersAt& at) -> std::string {
      if (a.standing(m, at) != Standing::cannot_tell) return "";
      const double needed = samples_to_tell(at, a.margin);
      const auto count = std::uint64_t(std::ceil(std::min(needed, double(kMost))));
      return fmt::format("{}{} {}", m.method, at.length == 0 ? "" : " at " + length_text(at.length),
                         about_text(count, kMost));
    });
  });
  if (each.empty()) return "";
  return fmt::format(
      " \"cannot tell\" needs more samples than the run has; were losses what they look here, these would do: {}.",
      each);
}

void visit_estimate(ObjectWriter& out, const char* name, const Estimate& estimate, double /*low*/, double /*high*/) {
  out.field(name, estimate_json(estimate, "value"));
}

void visit_estimate(ObjectReader& reader, const char* name, Estimate& estimate, double low, double high) {
  ObjectReader fields(reader.object(name), reader.where() + ", " + name);
  estimate.n = fields.integer<std::uint64_t>("n");
  if (estimate.n == 0) fields.fail("n", "1 or more");
  estimate.value = fields.number("value", low, high);
  const nlohmann::ordered_json& ends = fields.array("interval");
  const bool numbers = ends.size() == 2 && ends[0].is_number() && ends[1].is_number();
  if (!numbers || !(low <= ends[0].get<double>() && ends[0].get<double>() <= estimate.value &&
                    estimate.value <= ends[1].get<double>() && ends[1].get<double>() <= high))
    fields.fail("interval", fmt::format("two numbers from {} to {}, the value between them", low, high));
  estimate.interval = {ends[0].get<double>(), ends[1].get<double>()};
  const IntervalKind kinds[] = {IntervalKind::wilson, IntervalKind::shares, IntervalKind::newcombe,
                                IntervalKind::paired_shares};
  const std::string kind = fields.text("interval_kind");
  const auto found = std::ranges::find_if(kinds, [&](IntervalKind k) { return kind == to_string(k); });
  if (found == std::end(kinds)) fields.fail("interval_kind", "one that scores have");
  estimate.kind = *found;
  fields.finish();
}

constexpr auto kVisitAnswers = [](auto& f, auto& answers) {
  f.field("run", answers.run);
  f.field("of", answers.of);
  f.field("model", answers.model);
  f.filled("baseline", answers.baseline);
  f.number("margin", answers.margin, 0, 1);
  f.field("lengths", answers.lengths);
  f.require(std::ranges::find(answers.lengths, 0u) == answers.lengths.end(), "lengths", "1 or more each");
  if (answers.lengths.empty()) {
    std::vector<std::uint32_t> range = {answers.shortest, answers.longest};
    f.field("prompt_tokens", range);
    f.require(range.size() == 2, "prompt_tokens", "two numbers");
    if constexpr (kReads<decltype(f)>) answers.shortest = range[0];
    if constexpr (kReads<decltype(f)>) answers.longest = range[1];
  }
  f.numbered("methods", "method", answers.methods, [&](auto& method, auto& m) {
    method.filled("method", m.method);
    method.require(std::ranges::count(answers.methods, m.method, &MethodAnswers::method) == 1, "method",
                   "another one than those before");
    method.field("measured_as", m.measured_as);
    method.field("lossless", m.lossless);
    method.numbered("at", "at", m.at, [&](auto& figures, auto& at) {
      figures.field("length", at.length);
      visit_estimate(figures, "score", at.score, 0, 1);
      const bool needed = kReads<decltype(f)> && m.measured_as != answers.baseline;
      if (needed || figures.present("loss", at.loss.n > 0)) visit_estimate(figures, "loss", at.loss, -1, 1);
    });
    std::vector<std::uint32_t> lengths = answers.lengths;
    if (lengths.empty()) lengths.push_back(0);
    const bool measured = !m.measured_as.empty();
    const bool whole = measured ? std::ranges::equal(m.at, lengths, {}, &AnswersAt::length) : m.at.empty();
    method.require(whole, "at", measured ? "figures of each length, in their order" : "an empty list");
  });
};

}  // namespace

const char* to_string(Standing standing) {
  constexpr std::array<const char*, 5> kNames = {"within", "beyond", "cannot tell", "not measured",
                                                 "measured elsewhere"};
  return kNames.at(static_cast<std::size_t>(standing));
}

const AnswersAt* Answers::find(const std::string& method, std::uint32_t context) const {
  for (const MethodAnswers& m : methods)
    for (const AnswersAt& at : m.at)
      if (m.method == method && (at.length == 0 ? context >= shortest && context <= longest : at.length == context))
        return &at;
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
  const MethodEntry& first = manifest.methods.front();
  find_method(first.name);  // one that this program does not know
  // With whatever options: one that is lossless with these only, such as dense layers as many as a small model has,
  // says nothing of the run's model.
  if (!is_lossless(first.name, shape))
    throw_input_error(
        "'{}': its first method is {}, which losses are measured against and which loses something itself: compare "
        "with full as the first of --methods.",
        run.string(), first.label);
  if (std::ranges::all_of(methods, [&](const std::string& spec) { return is_lossless(spec, shape); }))
    throw_input_error("None of the methods {} loses anything, so that '{}' can choose none: leave --accuracy out.",
                      fmt::join(methods, ", "), run.string());
  const Summary summary = summarise(folder);
  if (!summary.complete) throw_input_error("'{}' is not finished: its command goes on with --resume.", run.string());

  Answers answers{.run = run.string(),
                  .of = fmt::format("{}, {}", manifest.benchmark, counted(manifest.tasks.size(), "task")),
                  .model = manifest.model,
                  .baseline = first.label,
                  .margin = margin};
  for (const std::uint32_t length : manifest.lengths)
    if (length > 0) answers.lengths.push_back(length);
  if (answers.lengths.empty()) {
    const std::vector<SampleResult> samples = folder.samples();
    const auto [shortest, longest] = std::ranges::minmax_element(samples, {}, &SampleResult::prompt_tokens);
    answers.shortest = shortest->prompt_tokens;
    answers.longest = longest->prompt_tokens;
  }
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
        run.string(), fmt::join(methods, ", "), listed(manifest.methods, [](const MethodEntry& e) { return e.label; }));
  return answers;
}

std::string points_text(double share) {
  const std::string text = fmt::format("{:.4g}", 100 * share);
  return text + (text == "1" ? " point" : " points");
}

Table answers_table(const Answers& a) {
  Table table;
  table.clock = fmt::format("{} with {}; yes: loses at most {}", a.of, a.model, points_text(a.margin));
  table.head = {"method"};
  const std::size_t columns = std::max<std::size_t>(1, a.lengths.size());
  for (std::size_t c = 0; c < columns; ++c) {
    const std::string at = a.lengths.empty() ? "" : " at\u00a0" + length_text(a.lengths[c]);
    table.head.push_back("score %" + at);
    table.head.push_back("loss" + at + ", points [95\u00a0%]");
  }
  for (const MethodAnswers& m : a.methods) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(m.method);
    for (std::size_t c = 0; c < columns; ++c) {
      const bool measured = c < m.at.size();
      row.push_back(measured ? points(m.at[c].score.value) : "-");
      row.push_back(m.lossless ? "loses nothing"
                    : measured ? loss_cell(a, m, m.at[c])
                               : to_string(Standing::not_measured));
    }
  }
  return table;
}

std::vector<std::string> answers_notes(const Answers& a, const std::string& model,
                                       std::span<const std::uint32_t> contexts) {
  std::vector<std::string> notes;
  const std::string others = listed(a.methods, [](const MethodAnswers& m) {
    return m.measured_as.empty() || m.measured_as == m.method ? ""
                                                              : fmt::format("{} is {} there", m.method, m.measured_as);
  });
  const std::string elsewhere =
      listed(contexts, [&](std::uint32_t context) { return measured_for(a, context) ? "" : length_text(context); });
  notes.push_back(fmt::format(
      "Losses: of the mean score of all tasks, beside {} on the same samples, measured by the run {}. A method loses "
      "at most {} at a context where its whole interval does, or where it computes what full attention does.{}{}",
      a.baseline, a.run, points_text(a.margin), more_samples(a), others.empty() ? "" : " " + others + "."));
  if (a.model != model)
    notes.push_back(fmt::format("The answers are of {}: what those of {} lose may be another thing.", a.model, model));
  if (!elsewhere.empty())
    notes.push_back(fmt::format(
        "Measured elsewhere: no answer was at contexts of {}, but of {}. A budget of tokens is another share "
        "of other contexts, so that only methods which lose nothing are known to be within the margin there.",
        elsewhere, where_measured(a)));
  return notes;
}

void visit_answers(ObjectWriter& out, const Answers& answers) {
  kVisitAnswers(out, answers);
}

void visit_answers(ObjectReader& in, Answers& answers) {
  kVisitAnswers(in, answers);
}

}  // namespace tandem::eval
