// What answers lose, in a sweep's file.
#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <set>

#include "eval/predict/answers.h"
#include "eval/report/json_fields.h"
#include "eval/report/summary.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

void visit_estimate(ObjectWriter& out, const char* name, const Estimate& estimate, double /*low*/, double /*high*/) {
  out.field(name, estimate_json(estimate, "value"));
}

void visit_estimate(ObjectReader& reader, const char* name, Estimate& estimate, double low, double high) {
  ObjectReader fields(reader.object(name), reader.where() + ", " + name);
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

Json answers_json(const Answers& answers) {
  return written(answers, kVisitAnswers);
}

Answers parse_answers(const Json& json, const std::string& where) {
  ObjectReader reader(json, where);
  Answers answers;
  kVisitAnswers(reader, answers);
  reader.finish();
  std::set<std::string> names;
  for (const MethodAnswers& m : answers.methods)
    if (!names.insert(m.method).second)
      throw_input_error("{}, method {}: the field 'method' must be another one than those before.", where,
                        names.size() + 1);
  return answers;
}

}  // namespace tandem::eval
