#include "eval/heads/report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "eval/report/statistics.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

// ScoutAttention, Table 1
constexpr std::pair<const char*, double> kTable1[] = {
    {"Qwen 3 8B", 0.94}, {"Gemma 3 12B", 0.93}, {"Llama 3.1 8B", 0.96}, {"Mistral 7B", 0.97}, {"GLM 4 9B", 0.94}};
// ScoutAttention, Figure 6 and section 3.4
constexpr double kMeanRatio = 0.082, kMeanInterval = 8.7, kChanged = 0.15;
constexpr double kFigure4 = 0.4;  // AsyncSpade section 3.1: "above 40 %" over the 16 most recent queries
constexpr std::size_t kBarColumns = 40;

std::string percent(double share) {
  return std::isnan(share) ? "-" : fmt::format("{:.1f}", 100 * share);
}
std::string number(double x) {
  return std::isnan(x) ? "-" : fmt::format("{:.3f}", x);
}

std::string bar(double share) {
  std::string out;
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::lround(share * kBarColumns)); ++i) out += "█";
  return out;
}

std::string paragraph(const std::string& text) {
  return wrap(text, terminal_width()) + "\n";
}

/// The prompts that a profile is from.
std::string prompts_of(const auto& profile, const HeadSource& source) {
  return fmt::format("{} ({}), {} tokens on average", counted(profile.prompts, "prompt"), source.prompts,
                     profile.tokens / profile.prompts);
}

const std::vector<std::string> kShares = {"sinks", "window", "stream", "95% t", "95% 16", "95% 32", "95% 64", "90% t"};

std::vector<std::string> cells(std::string name, const KvHeadStats& s) {
  std::vector<std::string> row = {std::move(name)};
  for (const double share : {s.sink_mass, s.window_mass, s.streaming}) row.push_back(percent(share));
  for (const double share : s.budget[1]) row.push_back(percent(share));
  row.push_back(percent(s.budget[0][0]));
  return row;
}

std::vector<std::string> head_cells(std::string name, const HeadStats& s) {
  std::vector<std::string> row = cells(std::move(name), s);
  row.insert(row.end(), {percent(s.token_overlap), percent(s.block_overlap), number(s.cosine_next)});
  return row;
}

Table table_of(const char* rows, const std::vector<std::string>& more) {
  Table table;
  table.head = {rows};
  table.head.insert(table.head.end(), kShares.begin(), kShares.end());
  table.head.insert(table.head.end(), more.begin(), more.end());
  return table;
}

std::string legend(const HeadOptions& o) {
  return fmt::format(
      "All shares in %; ahead is a cosine.\n"
      "sinks, window: attention mass on the first {} and on the last {} tokens.\n"
      "stream: queries at which sinks ({}) and window ({}) alone give the head's output within {:g} of the layer's "
      "largest head output: a streaming head by Fluxion §3.2, Eq. 2.\n"
      "95% t, 16, 32, 64: share of the context in the fewest tokens, or blocks of 16, 32, 64 tokens, that carry 95 % "
      "of the mass; 90% t: tokens for 90 %.\n"
      "same t, b: how much of the top 1/{} of the tokens by score (AsyncSpade §3.1, Fig. 4), and of the blocks of {} "
      "by Quest's bound, the next decode query chooses again.\n"
      "ahead: cosine of the query and its prediction from the previous layer's input (ScoutAttention §3.3, Table 1).",
      o.sinks, o.window, o.streaming_sinks, o.window, o.tolerance, kOverlapShare, kOverlapBlock);
}

Json rounded(double x) {
  if (std::isnan(x)) return nullptr;
  const double r = std::round(x * 1e6) / 1e6;
  return r == 0 ? 0.0 : r;  // no minus zero
}

template <class Value>
Json rounded(const std::vector<Value>& values) {
  Json json = Json::array();
  for (const Value& x : values) json.push_back(rounded(x));
  return json;
}

Json stats_json(const KvHeadStats& s) {
  Json json = {{"sink_mass", rounded(s.sink_mass)},
               {"window_mass", rounded(s.window_mass)},
               {"streaming", rounded(s.streaming)}};
  for (std::size_t t = 0; t < kMassTargets.size(); ++t)
    for (std::size_t b = 0; b < kBudgetBlocks.size(); ++b)
      json["budget"][fmt::format("{:.2f}", kMassTargets[t])][std::to_string(kBudgetBlocks[b])] =
          rounded(s.budget[t][b]);
  return json;
}

Json head_json(const HeadStats& s) {
  Json json = stats_json(s);
  json["token_overlap"] = rounded(s.token_overlap);
  json["block_overlap"] = rounded(s.block_overlap);
  json["layer_ahead_cosine"] = {{"next", rounded(s.cosine_next)}, {"own", rounded(s.cosine_own)}};
  return json;
}

/// The head of every profile's file, then `fields`.
Json profile_json(const char* schema, const HeadSource& source, const auto& profile, const Json& fields) {
  Json head = {{"schema", schema},
               {"command", source.command},
               {"tandem_version", source.tandem_version},
               {"git_commit", source.git_commit},
               {"model", source.model},
               {"weights_hash", source.weights_hash},
               {"tokenizer_hash", source.tokenizer_hash},
               {"source", source.prompts},
               {"prompts", profile.prompts},
               {"mean_tokens", profile.tokens / profile.prompts}};
  if (!source.gpu.empty()) head["gpu"] = source.gpu;
  head.update(fields);
  return head;
}

/// A row per task and length.
std::string prompts_text(const ShiftProfile& profile) {
  const auto best = static_cast<std::size_t>(&profile.best() - profile.variants.data());
  struct Group {
    std::size_t prompts = 0, queries = 0;
    double tokens = 0, newest = 0, oldest = 0, with = 0, without = 0;
  };
  std::map<std::pair<std::string, std::uint32_t>, Group> groups;  // by task and the power of two above its length
  for (const ShiftProfile::Prompt& p : profile.each_prompt) {
    Group& g = groups[{p.name.substr(0, p.name.find(' ')), std::bit_ceil(p.tokens)}];
    ++g.prompts;
    g.queries += p.queries;
    g.tokens += p.tokens;
    g.newest += p.by_distance.front();
    g.oldest += p.by_distance.back();
    g.with += p.with_shift[best];
    g.without += p.without[best];
  }
  Table table;
  table.head = {"prompts",           "number",     "tokens",
                "queries",           "1 before %", fmt::format("{} before %", profile.options.window),
                "best with shift %", "without %"};
  for (const auto& [key, g] : groups) {
    const auto n = static_cast<double>(g.prompts);
    table.rows.push_back({key.first, std::to_string(g.prompts), fmt::format("{:.0f}", g.tokens / n),
                          std::to_string(g.queries), percent(g.newest / n), percent(g.oldest / n), percent(g.with / n),
                          percent(g.without / n)});
  }
  return table.text() + "\n";
}

}  // namespace

std::string head_report_text(const HeadProfile& profile, const HeadSource& source, bool each_head) {
  std::string out = paragraph(fmt::format("Attention heads of {}: {}, {} decode queries, full attention.", source.model,
                                          prompts_of(profile, source), profile.queries)) +
                    "\n";
  const std::vector<std::string> more = {"same t", "same b", "ahead"};
  Table layers = table_of("layer", more), heads = table_of("head", more), groups = table_of("KV head", {});
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const LayerHeads& layer = profile.layers[l];
    layers.rows.push_back(head_cells(std::to_string(l), layer.mean()));
    for (std::size_t h = 0; h < layer.q_heads.size(); ++h)
      heads.rows.push_back(head_cells(fmt::format("{}.{}", l, h), layer.q_heads[h]));
    for (std::size_t g = 0; g < layer.kv_heads.size(); ++g)
      groups.rows.push_back(cells(fmt::format("{}.{}", l, g), layer.kv_heads[g]));
  }
  layers.rows.push_back(head_cells("all", profile.mean()));
  out += layers.text() + "\n";
  if (each_head)
    out += heads.text() + "\n" + groups.text() +
           "A KV head streams when all its query heads do; its budget is that of all they choose.\n\n";
  return out + paragraph(legend(profile.options));
}

nlohmann::ordered_json head_profile_json(const HeadProfile& profile, const HeadSource& source) {
  const HeadOptions& o = profile.options;
  Json fields = {
      {"queries", profile.queries},
      {"definitions",
       {{"sinks", o.sinks},
        {"window", o.window},
        {"streaming_sinks", o.streaming_sinks},
        {"streaming_tolerance", o.tolerance},
        {"overlap_share", 1.0 / kOverlapShare},
        {"overlap_block", kOverlapBlock},
        {"budget", "share of the context in the fewest blocks of n tokens that carry this share of the attention mass"},
        {"layer_ahead_cosine", "under this layer's norm (next) and under the previous layer's (own)"},
        {"input_change",
         "a layer's input beside the previous layer's: cosine of the two; length of what the previous layer "
         "adds to its input, in lengths of that input (added)"}}},
      {"mean", head_json(profile.mean())},
      {"layers", Json::array()}};
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const InputChange& input = profile.layers[l].input;
    Json layer = {{"layer", l},
                  {"mean", head_json(profile.layers[l].mean())},
                  {"input_change", {{"cosine", rounded(input.cosine)}, {"added", rounded(input.added)}}}};
    for (const HeadStats& head : profile.layers[l].q_heads) layer["q_heads"].push_back(head_json(head));
    for (const KvHeadStats& head : profile.layers[l].kv_heads) layer["kv_heads"].push_back(stats_json(head));
    fields["layers"].push_back(std::move(layer));
  }
  return profile_json("tandem-heads-1", source, profile, fields);
}

std::string layer_ahead_text(const HeadProfile& profile, const HeadSource& source) {
  std::string out =
      paragraph(fmt::format("Queries of {} predicted one layer ahead: cosine with the true ones, mean over "
                            "the query heads. {}, {} decode queries, full attention.",
                            source.model, prompts_of(profile, source), profile.queries)) +
      "\n";
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
  for (const auto& [model, cosine] : kTable1) published.rows.push_back({model, fmt::format("{:.2f}", cosine)});
  published.rows.push_back({source.model + ", none of the paper's", number(all.cosine_next)});
  return out + published.text() + "\n" +
         paragraph(
             "A layer's query is predicted from the layer before's input; for layer 1 that is the token's bare "
             "embedding. next: under the input norm of the layer that is predicted; own: of the layer whose input "
             "it is. input: cosine of the two layers' inputs; added: the length of what the layer before adds to "
             "its input, in lengths of that input. Layer 0 has no layer before it. published: ScoutAttention, "
             "Table 1, means over layers; the paper does not say under which norm.");
}

std::string recall_text(const RecallProfile& profile, const HeadSource& source) {
  const RecallOptions& o = profile.options;
  std::string out =
      paragraph(fmt::format("Recalls of {} under {}: {}, {} with the tokens of full attention.", source.model, o.method,
                            prompts_of(profile, source), counted(o.steps, "decode step"))) +
      "\n";
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
  const std::vector<double> without = column_means(profile.without), with = column_means(profile.with);
  const double top = std::max(std::ranges::max(without), std::ranges::max(with));
  for (const bool recalls : {false, true}) {
    const std::vector<double>& steps = recalls ? with : without;
    out += fmt::format("step  CPU %  {} recalls\n", recalls ? "with" : "without");
    for (std::size_t i = 0; i < steps.size(); ++i)
      out += fmt::format("{:>4}  {:>5}  {}\n", i + 1, percent(steps[i]), bar(steps[i] / top));
    out += "\n";
  }
  return out + paragraph(fmt::format(
                   "CPU %: tokens attended on the CPU over the budget ({}), mean over layers and prompts. interval: "
                   "steps between recalls, the most for which it stays below {:g} % without one; {} is the longest "
                   "that was tried. changed: blocks of a step's choice that the step before did not choose, over "
                   "the budget. published: ScoutAttention, section 3.4 and Figure 6.",
                   o.budget, 100 * o.threshold, o.steps));
}

Json recall_json(const RecallProfile& profile, const HeadSource& source) {
  const RecallOptions& o = profile.options;
  return profile_json("tandem-scout-recall-1", source, profile,
                      {{"method", o.method},
                       {"budget", o.budget},
                       {"steps", o.steps},
                       {"beta_recall", o.threshold},
                       {"intervals", profile.intervals},
                       {"mean_interval", profile.mean_interval()},
                       {"mean_cpu_ratio", {{"without", mean(profile.without)}, {"with", mean(profile.with)}}},
                       {"changed", rounded(profile.changed)},
                       {"cpu_ratio", {{"without", rounded(profile.without)}, {"with", rounded(profile.with)}}}});
}

std::string query_shift_text(const ShiftProfile& profile, const HeadSource& source) {
  const ShiftOptions& o = profile.options;
  std::string out =
      paragraph(
          fmt::format("What earlier and predicted queries of {} choose, as a share of the true query's best {:g} % of "
                      "the tokens: {}, {} decode queries, full attention.",
                      source.model, 100 * o.share, prompts_of(profile, source), profile.queries)) +
      "\ndistance  same %\n";
  const std::vector<double> distances = column_means(profile.by_distance);
  for (std::size_t i = 0; i < distances.size(); ++i)
    out += fmt::format("{:>8}  {:>6}  {}\n", i + 1, percent(distances[i]), bar(distances[i]));
  Table table;
  table.head = {"weights", "windows", "rope", "with shift %", "spread", "best of prompts", "without %", "spread"};
  std::string plot = "\nwith shift, by reading\n";
  for (std::size_t i = 0; i < profile.variants.size(); ++i) {
    const ShiftProfile::Variant& v = profile.variants[i];
    const std::string name = v.name();
    const auto part = [&name](const char* key) {
      const std::size_t at = name.find(key) + std::string(key).size();
      return name.substr(at, name.find(',', at) - at);
    };
    const double with = mean(v.with_shift);
    table.rows.push_back({part("weights="), part("windows="), part("rope="), percent(with),
                          percent(profile.spread([i](const auto& p) { return p.with_shift[i]; })),
                          std::to_string(profile.wins(i)), percent(mean(v.without)),
                          percent(profile.spread([i](const auto& p) { return p.without[i]; }))});
    plot += fmt::format("{:>6}  {:<40}  {}\n", percent(with), bar(with), name);
  }
  return out + "\n" + table.text() + plot + "\n" + prompts_text(profile) +
         paragraph(
             fmt::format("with shift: weights found for the newest query, applied one token later, as asyncspade "
                         "predicts; without: found for the true query itself and applied to its predecessors. W = {}, "
                         "epsilon = {:g}. Means over layers, query heads and queries; spread: standard deviation of "
                         "the prompts' means; best of prompts: in how many no other reading is better with shift. Best "
                         "with shift: {}. published: figure 4 shows more than {:g} % over the 16 most recent queries, "
                         "figure 5 as much or more "
                         "with shift than without (Qwen3; read from plots).",
                         o.window, o.epsilon, profile.best().name(), 100 * kFigure4));
}

Json query_shift_json(const ShiftProfile& profile, const HeadSource& source) {
  const ShiftOptions& o = profile.options;
  Json fields = {{"queries", profile.queries},
                 {"window", o.window},
                 {"share", o.share},
                 {"epsilon", o.epsilon},
                 {"best", profile.best().name()},
                 {"by_distance", rounded(column_means(profile.by_distance))},
                 {"variants", Json::array()},
                 {"each_prompt", Json::array()},
                 {"layers", rounded(profile.by_distance)}};
  for (const ShiftProfile::Variant& v : profile.variants) {
    fields["variants"].push_back(
        {{"options", v.name()}, {"with_shift", rounded(v.with_shift)}, {"without_shift", rounded(v.without)}});
  }
  for (const ShiftProfile::Prompt& p : profile.each_prompt) {
    fields["each_prompt"].push_back({{"name", p.name},
                                     {"tokens", p.tokens},
                                     {"queries", p.queries},
                                     {"by_distance", rounded(p.by_distance)},
                                     {"with_shift", rounded(p.with_shift)},
                                     {"without_shift", rounded(p.without)}});
  }
  return profile_json("tandem-query-shift-2", source, profile, fields);
}

}  // namespace tandem::eval
