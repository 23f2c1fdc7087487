#include "eval/target/answers.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/common/error.h"
#include "eval/report/json_reader.h"
#include "eval/report/summary.h"
#include "eval/report/table.h"
#include "eval/run/decoded.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

/// Options that a simulated shape has others in place of.
std::set<std::string> stand_ins_of(const std::string& method) {
  std::set<std::string> names;
  const std::string& options = find_method(method).for_simulated_shapes;
  if (options.empty()) return names;
  for (const auto& [name, value] : parse_method_spec(method + ":" + options).options) names.insert(name);
  return names;
}

bool same_answers(const MethodEntry& a, const MethodEntry& b) {
  if (a.name != b.name) return false;
  const std::set<std::string> ignored = stand_ins_of(a.name);
  const auto others_have = [&](const MethodEntry& all, const MethodEntry& other) {
    return std::ranges::all_of(all.options, [&](const auto& option) {
      return ignored.contains(option.first) ||
             std::find(other.options.begin(), other.options.end(), option) != other.options.end();
    });
  };
  return others_have(a, b) && others_have(b, a);
}

/// The run's method that this one is: of several the one with the same options throughout, else the first.
const MethodEntry* find_in(const Manifest& run, const MethodEntry& method) {
  const MethodEntry* found = nullptr;
  for (const MethodEntry& entry : run.methods) {
    if (!same_answers(entry, method)) continue;
    if (entry.options == method.options) return &entry;
    if (found == nullptr) found = &entry;
  }
  return found;
}

Standing standing_of(const MethodAnswers& m, double margin) {
  if (m.lossless || m.loss.n == 0) return Standing::within;  // n 0: what losses are measured against
  if (m.loss.interval.high <= margin) return Standing::within;
  return m.loss.interval.low > margin ? Standing::beyond : Standing::cannot_tell;
}

/// The difference of a summary is the method's score minus the baseline's.
Estimate loss_of(const Estimate& difference) {
  Estimate loss = difference;
  loss.value = -difference.value;
  loss.interval = {-difference.interval.high, -difference.interval.low};
  return loss;
}

std::string described(const Manifest& m) {
  std::vector<std::string> lengths;
  for (const std::uint32_t length : m.lengths)
    if (length > 0) lengths.push_back(length_text(length));
  return fmt::format("{} with {}, {}{}", m.benchmark, m.model, counted(m.tasks.size(), "task"),
                     lengths.empty() ? "" : fmt::format(" at {}", fmt::join(lengths, ", ")));
}

void check_baseline(const Manifest& m, const Model& shape, const std::filesystem::path& run) {
  if (!is_lossless(m.methods.front().label, shape))
    throw_input_error(
        "'{}': its first method is {}, which losses are measured against and which loses something itself: compare "
        "with "
        "full as the first of --methods.",
        run.string(), m.methods.front().label);
}

void write_estimate(Json& json, const char* name, const Estimate& estimate) {
  json[name] = estimate_json(estimate, "value");
}

Estimate read_estimate(ObjectReader& reader, const char* name) {
  ObjectReader fields(reader.object(name), reader.where() + ", " + name);
  Estimate estimate;
  estimate.n = fields.integer<std::uint64_t>("n");
  estimate.value = fields.number("value", -1, 1);
  const Json& ends = fields.array("interval");
  if (ends.size() != 2 || !ends[0].is_number() || !ends[1].is_number()) fields.fail("interval", "two numbers");
  estimate.interval = {ends[0].get<double>(), ends[1].get<double>()};
  const std::string kind = fields.text("interval_kind");
  const IntervalKind kinds[] = {IntervalKind::none, IntervalKind::wilson, IntervalKind::shares, IntervalKind::newcombe,
                                IntervalKind::paired_shares};
  const auto found = std::ranges::find_if(kinds, [&](IntervalKind k) { return kind == to_string(k); });
  if (found == std::end(kinds)) fields.fail("interval_kind", "one that scores have");
  estimate.kind = *found;
  fields.finish();
  return estimate;
}

}  // namespace

const char* to_string(Standing standing) {
  switch (standing) {
    case Standing::within:
      return "within";
    case Standing::beyond:
      return "beyond";
    case Standing::cannot_tell:
      return "cannot tell";
    case Standing::not_measured:
      return "not measured";
  }
  return "unknown";
}

Standing Answers::of_method(const std::string& method) const {
  const auto found = std::ranges::find(methods, method, &MethodAnswers::method);
  return found == methods.end() ? Standing::not_measured : found->standing;
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
  const Summary summary = summarise(folder);
  if (!summary.complete) throw_input_error("'{}' is not finished: its command goes on with --resume.", run.string());

  Answers answers{run.string(), described(manifest), manifest.methods.front().label, margin, {}, {}};
  for (const std::uint32_t length : manifest.lengths)
    if (length > 0) answers.lengths.push_back(length);
  bool any = false;
  for (const std::string& spec : methods) {
    MethodAnswers& m = answers.methods.emplace_back();
    m.method = spec;
    m.lossless = is_lossless(spec, shape);
    const MethodEntry* entry = find_in(manifest, method_entries({spec}).front());
    if (entry == nullptr) {
      if (m.lossless) m.standing = Standing::within;
      continue;
    }
    const auto measured = std::ranges::find(summary.methods, entry->label, &MethodSummary::label);
    TANDEM_CHECK(measured != summary.methods.end(), "no summary of {}", entry->label);
    m.measured_as = entry->label;
    m.score = measured->overall.accuracy;
    if (measured->overall.has_difference) m.loss = loss_of(measured->overall.difference.difference);
    m.standing = standing_of(m, margin);
    any = any || !m.lossless;
  }
  if (!any) {
    std::vector<std::string> labels;
    for (const MethodEntry& entry : manifest.methods) labels.push_back(entry.label);
    throw_input_error(
        "'{}' has none of the methods that lose something: it has {}. Name them alike, options included, in both "
        "commands.",
        run.string(), fmt::join(labels, ", "));
  }
  return answers;
}

Json answers_json(const Answers& answers) {
  Json json;
  json["run"] = answers.run;
  json["of"] = answers.of;
  json["baseline"] = answers.baseline;
  json["margin"] = answers.margin;
  json["lengths"] = answers.lengths;
  json["methods"] = Json::array();
  for (const MethodAnswers& m : answers.methods) {
    Json method;
    method["method"] = m.method;
    method["measured_as"] = m.measured_as;
    method["lossless"] = m.lossless;
    method["standing"] = to_string(m.standing);
    if (!m.measured_as.empty()) write_estimate(method, "score", m.score);
    if (m.loss.n > 0) write_estimate(method, "loss", m.loss);
    json["methods"].push_back(std::move(method));
  }
  return json;
}

Answers parse_answers(const Json& json, const std::string& where) {
  ObjectReader reader(json, where);
  Answers answers;
  answers.run = reader.text("run");
  answers.of = reader.text("of");
  answers.baseline = reader.text("baseline");
  answers.margin = reader.number("margin", 0, 1);
  for (const Json& length : reader.array("lengths"))
    answers.lengths.push_back(reader.as_integer<std::uint32_t>(length, "lengths"));
  std::size_t number = 0;
  for (const Json& one : reader.array("methods")) {
    ObjectReader fields(one, fmt::format("{}, method {}", where, ++number));
    MethodAnswers& m = answers.methods.emplace_back();
    m.method = fields.text("method", /*may_be_empty=*/false);
    m.measured_as = fields.text("measured_as");
    m.lossless = fields.boolean("lossless");
    const std::string standing = fields.text("standing");
    if (!m.measured_as.empty()) m.score = read_estimate(fields, "score");
    if (fields.has("loss")) m.loss = read_estimate(fields, "loss");
    fields.finish();
    if (!m.measured_as.empty())
      m.standing = standing_of(m, answers.margin);
    else if (m.lossless)
      m.standing = Standing::within;
    if (standing != to_string(m.standing))
      fields.fail("standing", fmt::format("\"{}\", by its loss", to_string(m.standing)));
  }
  reader.finish();
  return answers;
}

}  // namespace tandem::eval
