#include "eval/recall_profile/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "eval/report/table.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

struct PublishedCosine {
  const char* model;
  double cosine;
};
constexpr std::array<PublishedCosine, 5> kTable1 = {{{"Qwen 3 8B", 0.94},
                                                     {"Gemma 3 12B", 0.93},
                                                     {"Llama 3.1 8B", 0.96},
                                                     {"Mistral 7B", 0.97},
                                                     {"GLM 4 9B", 0.94}}};  // ScoutAttention, Table 1
// ScoutAttention, Figure 6 and section 3.4
constexpr double kMeanRatio = 0.082, kMeanInterval = 8.7, kChanged = 0.15;

constexpr std::size_t kBarColumns = 40;

std::string number(double x) {
  return std::isnan(x) ? "-" : fmt::format("{:.3f}", x);
}
std::string percent(double share) {
  return fmt::format("{:.1f}", 100 * share);
}

std::string bar(double ratio, double top) {
  std::string out;
  const auto columns = static_cast<std::size_t>(std::lround(ratio / top * kBarColumns));
  for (std::size_t i = 0; i < columns; ++i) out += "█";
  return out;
}

Json rounded(const std::vector<double>& values) {
  Json json = Json::array();
  for (const double x : values) json.push_back(std::round(x * 1e6) / 1e6);
  return json;
}

}  // namespace

std::string layer_ahead_text(const HeadProfile& profile, const HeadSource& source) {
  std::string out =
      wrap(fmt::format("Queries of {} predicted one layer ahead: cosine with the true ones, mean over the query heads. "
                       "{} ({}), {} tokens on average, {} decode queries, full attention.",
                       source.model, counted(profile.prompts, "prompt"), source.prompts,
                       profile.tokens / profile.prompts, profile.queries),
           terminal_width()) +
      "\n\n";
  Table layers;
  layers.head = {"layer", "next", "own", "input", "added"};
  for (std::size_t l = 1; l < profile.layers.size(); ++l) {
    const HeadStats s = profile.layers[l].mean();
    const InputChange& input = profile.layers[l].input;
    layers.rows.push_back({std::to_string(l), number(s.cosine_next), number(s.cosine_own), number(input.cosine),
                           std::isnan(input.added) ? "-" : fmt::format("{:.2f}", input.added)});
  }
  const HeadStats all = profile.mean();
  layers.rows.push_back({"all", number(all.cosine_next), number(all.cosine_own), "-", "-"});
  out += layers.text() + "\n";
  Table published;
  published.head = {"published", "cosine"};
  for (const PublishedCosine& p : kTable1) published.rows.push_back({p.model, fmt::format("{:.2f}", p.cosine)});
  published.rows.push_back({source.model + ", none of the paper's", number(all.cosine_next)});
  return out + published.text() + "\n" +
         wrap(
             "A layer's query is predicted from the layer before's input; for layer 1 that is the token's bare "
             "embedding. next: under the input norm of the layer that is predicted; own: of the layer whose input "
             "it is. input: cosine of the two layers' inputs; added: the length of what the layer before adds to "
             "its input, in lengths of that input. Layer 0 has no layer before it. published: ScoutAttention, "
             "Table 1, means over layers; the paper does not say under which norm.",
             terminal_width()) +
         "\n";
}

std::string recall_text(const RecallProfile& profile, const HeadSource& source) {
  const RecallOptions& o = profile.options;
  std::string out = wrap(fmt::format("Recalls of {} under {}: {} ({}), {} tokens on average, {} "
                                     "with the tokens of full attention.",
                                     source.model, o.method, counted(profile.prompts, "prompt"), source.prompts,
                                     profile.tokens / profile.prompts, counted(o.steps, "decode step")),
                         terminal_width()) +
                    "\n\n";
  Table layers;
  layers.head = {"layer", "interval", "CPU % without", "CPU % with", "changed %"};
  for (std::size_t l = 0; l < profile.intervals.size(); ++l) {
    layers.rows.push_back({std::to_string(l), std::to_string(profile.intervals[l]), percent(mean(profile.without[l])),
                           percent(mean(profile.with[l])), percent(profile.changed[l])});
  }
  layers.rows.push_back({"all", fmt::format("{:.1f}", profile.mean_interval()), percent(mean(profile.without)),
                         percent(mean(profile.with)), percent(mean(profile.changed))});
  layers.rows.push_back({"published", fmt::format("{:.1f}", kMeanInterval), "-", percent(kMeanRatio),
                         fmt::format("below {:.0f}", 100 * kChanged)});
  out += layers.text() + "\n";
  const std::vector<double> without = by_step(profile.without), with = by_step(profile.with);
  const double top =
      std::max(*std::max_element(without.begin(), without.end()), *std::max_element(with.begin(), with.end()));
  for (const bool recalls : {false, true}) {
    const std::vector<double>& steps = recalls ? with : without;
    out += fmt::format("step  CPU %  {} recalls\n", recalls ? "with" : "without");
    for (std::size_t i = 0; i < steps.size(); ++i)
      out += fmt::format("{:>4}  {:>5}  {}\n", i + 1, percent(steps[i]), bar(steps[i], top));
    out += "\n";
  }
  return out +
         wrap(fmt::format(
                  "CPU %: tokens attended on the CPU over the budget ({}), mean over layers and prompts. interval: "
                  "steps between recalls, the most for which it stays below {:g} % without one; {} is the longest "
                  "that was tried. changed: blocks of a step's choice that the step before did not choose, over "
                  "the budget. published: ScoutAttention, section 3.4 and Figure 6.",
                  o.budget, 100 * o.threshold, o.steps),
              terminal_width()) +
         "\n";
}

Json recall_json(const RecallProfile& profile, const HeadSource& source) {
  const RecallOptions& o = profile.options;
  Json json = profile_head("tandem-scout-recall-1", source, profile.prompts, profile.tokens);
  json.update({{"method", o.method},
               {"budget", o.budget},
               {"steps", o.steps},
               {"beta_recall", o.threshold},
               {"intervals", profile.intervals},
               {"mean_interval", profile.mean_interval()},
               {"mean_cpu_ratio", {{"without", mean(profile.without)}, {"with", mean(profile.with)}}},
               {"changed", rounded(profile.changed)},
               {"cpu_ratio", {{"without", Json::array()}, {"with", Json::array()}}}});
  for (const std::vector<double>& layer : profile.without) json["cpu_ratio"]["without"].push_back(rounded(layer));
  for (const std::vector<double>& layer : profile.with) json["cpu_ratio"]["with"].push_back(rounded(layer));
  return json;
}

}  // namespace tandem::eval
