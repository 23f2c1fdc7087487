#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "eval/perplexity/perplexity.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

std::string with_interval(double value, const Interval& interval, const char* format) {
  return fmt::format("{} [{}, {}]", fmt::format(fmt::runtime(format), value),
                     fmt::format(fmt::runtime(format), interval.low), fmt::format(fmt::runtime(format), interval.high));
}

std::vector<double> differences(const MethodLoss& method, const MethodLoss& baseline) {
  std::vector<double> out;
  for (std::size_t i = 0; i < method.nll.size(); ++i) out.push_back(method.nll[i] - baseline.nll[i]);
  return out;
}

}  // namespace

std::string perplexity_text(const Perplexity& result) {
  Table losses, costs;
  losses.head = {"method", "perplexity [95\u00a0%]", "nats more than the first [95\u00a0%]"};
  costs.head = {"method", "attended on device", "attended on host", "ms per step"};
  costs.clock = result.clock;
  for (const MethodLoss& m : result.methods) {
    const Interval nll = bootstrap_mean_interval(m.nll);
    const std::vector<double> more = differences(m, result.methods.front());
    losses.rows.push_back(
        {m.label, with_interval(std::exp(mean(m.nll)), {std::exp(nll.low), std::exp(nll.high)}, "{:.4f}"),
         &m == &result.methods.front() ? "-" : with_interval(mean(more), bootstrap_mean_interval(more), "{:+.4f}")});
    costs.rows.push_back({m.label, fmt::format("{:.0f}", m.attended[0]), fmt::format("{:.0f}", m.attended[1]),
                          fmt::format("{:.4f}", m.step_ms)});
  }
  const std::string notes = fmt::format(
      "Decode perplexity of {} on {}: {} windows, {} tokens of context prefilled with full attention, then {} tokens "
      "fed and scored one by one through the method. Intervals: bootstrap over windows; differences are taken window "
      "by "
      "window. Attended: tokens per KV head, layer and step.\n",
      result.model, result.text, result.methods.front().nll.size(), result.context, result.scored);
  return losses.text() + "\n" + costs.text() + wrap(notes, kTerminalWidth);
}

std::string perplexity_json(const Perplexity& r) {
  nlohmann::ordered_json json;
  json["model"] = r.model;
  json["weights_hash"] = r.weights_hash;
  json["tokenizer_hash"] = r.tokenizer_hash;
  json["text"] = r.text;
  json["text_hash"] = r.text_hash;
  json["clock"] = r.clock;
  json["context"] = r.context;
  json["scored"] = r.scored;
  json["batch"] = r.batch;
  json["methods"] = nlohmann::ordered_json::array();
  for (const MethodLoss& m : r.methods) {
    nlohmann::ordered_json method;
    method["label"] = m.label;
    method["method"] = m.method;
    method["perplexity"] = std::exp(mean(m.nll));
    method["nll"] = mean(m.nll);
    const std::vector<double> more = differences(m, r.methods.front());
    const Interval interval = bootstrap_mean_interval(more);
    method["nll_difference"] = mean(more);
    method["nll_difference_95"] = {interval.low, interval.high};
    method["attended_device"] = m.attended[0];
    method["attended_host"] = m.attended[1];
    method["step_ms"] = m.step_ms;
    method["window_nll"] = m.nll;
    json["methods"].push_back(std::move(method));
  }
  return json.dump(1) + "\n";
}

}  // namespace tandem::eval
