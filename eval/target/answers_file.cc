// What answers lose, in a sweep's file.
#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <set>

#include "eval/report/json_reader.h"
#include "eval/report/summary.h"
#include "eval/target/answers.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

Estimate read_estimate(ObjectReader& reader, const char* name, double low, double high) {
  ObjectReader fields(reader.object(name), reader.where() + ", " + name);
  Estimate estimate;
  estimate.n = fields.integer<std::uint64_t>("n");
  if (estimate.n == 0) fields.fail("n", "1 or more");
  estimate.value = fields.number("value", low, high);
  const Json& ends = fields.array("interval");
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
  return estimate;
}

std::vector<AnswersAt> read_figures(ObjectReader& method, const Answers& answers, const std::string& measured_as) {
  std::vector<AnswersAt> all;
  for (const Json& one : method.array("at")) {
    ObjectReader fields(one, fmt::format("{}, at {}", method.where(), all.size() + 1));
    AnswersAt& at = all.emplace_back();
    at.length = fields.integer<std::uint32_t>("length");
    at.score = read_estimate(fields, "score", 0, 1);
    if (measured_as != answers.baseline || fields.has("loss")) at.loss = read_estimate(fields, "loss", -1, 1);
    fields.finish();
  }
  std::vector<std::uint32_t> lengths = answers.lengths;
  if (lengths.empty()) lengths.push_back(0);
  const bool whole = measured_as.empty() ? all.empty() : std::ranges::equal(all, lengths, {}, &AnswersAt::length);
  if (!whole) method.fail("at", measured_as.empty() ? "an empty list" : "figures of each length, in their order");
  return all;
}

}  // namespace

Json answers_json(const Answers& answers) {
  Json json;
  json["run"] = answers.run;
  json["of"] = answers.of;
  json["model"] = answers.model;
  json["baseline"] = answers.baseline;
  json["margin"] = answers.margin;
  json["lengths"] = answers.lengths;
  if (answers.lengths.empty()) json["prompt_tokens"] = {answers.shortest, answers.longest};
  json["methods"] = Json::array();
  for (const MethodAnswers& m : answers.methods) {
    Json method;
    method["method"] = m.method;
    method["measured_as"] = m.measured_as;
    method["lossless"] = m.lossless;
    method["at"] = Json::array();
    for (const AnswersAt& at : m.at) {
      Json figures;
      figures["length"] = at.length;
      figures["score"] = estimate_json(at.score, "value");
      if (at.loss.n > 0) figures["loss"] = estimate_json(at.loss, "value");
      method["at"].push_back(std::move(figures));
    }
    json["methods"].push_back(std::move(method));
  }
  return json;
}

Answers parse_answers(const Json& json, const std::string& where) {
  ObjectReader reader(json, where);
  Answers answers;
  answers.run = reader.text("run");
  answers.of = reader.text("of");
  answers.model = reader.text("model");
  answers.baseline = reader.text("baseline", /*may_be_empty=*/false);
  answers.margin = reader.number("margin", 0, 1);
  for (const Json& length : reader.array("lengths"))
    answers.lengths.push_back(reader.as_integer<std::uint32_t>(length, "lengths"));
  if (std::ranges::find(answers.lengths, 0u) != answers.lengths.end()) reader.fail("lengths", "1 or more each");
  if (answers.lengths.empty()) {
    const Json& range = reader.array("prompt_tokens");
    if (range.size() != 2) reader.fail("prompt_tokens", "two numbers");
    answers.shortest = reader.as_integer<std::uint32_t>(range[0], "prompt_tokens");
    answers.longest = reader.as_integer<std::uint32_t>(range[1], "prompt_tokens");
  }
  std::set<std::string> names;
  for (const Json& one : reader.array("methods")) {
    ObjectReader fields(one, fmt::format("{}, method {}", where, answers.methods.size() + 1));
    MethodAnswers& m = answers.methods.emplace_back();
    m.method = fields.text("method", /*may_be_empty=*/false);
    if (!names.insert(m.method).second) fields.fail("method", "another one than those before");
    m.measured_as = fields.text("measured_as");
    m.lossless = fields.boolean("lossless");
    m.at = read_figures(fields, answers, m.measured_as);
    fields.finish();
  }
  reader.finish();
  return answers;
}

}  // namespace tandem::eval
