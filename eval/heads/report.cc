#include "eval/heads/report.h"

#include <cmath>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "eval/report/table.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

std::string percent_or_dash(double share) {
  return std::isnan(share) ? "-" : fmt::format("{:.1f}", 100 * share);
}
std::string number(double x) {
  return std::isnan(x) ? "-" : fmt::format("{:.3f}", x);
}

std::vector<std::string> cells(std::vector<std::string> names, const HeadStats& s) {
  names.insert(names.end(),
               {percent_or_dash(s.sink_mass), percent_or_dash(s.window_mass), percent_or_dash(s.streaming)});
  for (const double share : s.budget[1]) names.push_back(percent_or_dash(share));
  names.insert(names.end(), {percent_or_dash(s.budget[0][0]), percent_or_dash(s.token_overlap),
                             percent_or_dash(s.block_overlap), number(s.cosine_next)});
  return names;
}

std::vector<std::string> heads_of(std::vector<std::string> names) {
  for (const char* head :
       {"sinks", "window", "stream", "95% t", "95% 16", "95% 32", "95% 64", "90% t", "same t", "same b", "ahead"}) {
    names.emplace_back(head);
  }
  return names;
}

std::string legend(const HeadOptions& o) {
  return fmt::format(
      "All shares in %; ahead is a cosine.\n"
      "sinks, window: attention mass on the first {} and on the last {} tokens.\n"
      "stream: queries at which sinks ({}) and window ({}) alone give the head's output within {:g} of the layer's "
      "largest head output: a streaming head by Fluxion §3.2, Eq. 2.\n"
      "95% t, 16, 32, 64: share of the context in the fewest tokens, or blocks of 16, 32, 64 tokens, that carry 95 % "
      "of "
      "the mass; 90% t: tokens for 90 %.\n"
      "same t, b: how much of the top 1/{} of the tokens by score (AsyncSpade §3.1, Fig. 4), and of the blocks of {} "
      "by "
      "Quest's bound, the next decode query chooses again.\n"
      "ahead: cosine of the query and its prediction from the previous layer's input (ScoutAttention §3.3, Table 1).",
      o.sinks, o.window, o.streaming_sinks, o.window, o.tolerance, kOverlapShare, kOverlapBlock);
}

Json rounded(double x) {
  if (std::isnan(x)) return nullptr;
  const double r = std::round(x * 1e6) / 1e6;
  return r == 0 ? 0.0 : r;  // no minus zero
}

Json budgets_json(const Budgets& budgets) {
  Json json = Json::object();
  for (std::size_t t = 0; t < kMassTargets.size(); ++t) {
    Json& row = json[fmt::format("{:.2f}", kMassTargets[t])];
    for (std::size_t b = 0; b < kBudgetBlocks.size(); ++b)
      row[std::to_string(kBudgetBlocks[b])] = rounded(budgets[t][b]);
  }
  return json;
}

Json stats_json(const HeadStats& s) {
  return {{"sink_mass", rounded(s.sink_mass)},
          {"window_mass", rounded(s.window_mass)},
          {"streaming", rounded(s.streaming)},
          {"budget", budgets_json(s.budget)},
          {"token_overlap", rounded(s.token_overlap)},
          {"block_overlap", rounded(s.block_overlap)},
          {"layer_ahead_cosine", {{"next", rounded(s.cosine_next)}, {"own", rounded(s.cosine_own)}}}};
}

Json kv_json(const KvHeadStats& s) {
  return {{"sink_mass", rounded(s.sink_mass)},
          {"window_mass", rounded(s.window_mass)},
          {"streaming", rounded(s.streaming)},
          {"budget", budgets_json(s.budget)}};
}

}  // namespace

Json profile_head(const char* schema, const HeadSource& source, std::uint64_t prompts, std::uint64_t tokens) {
  Json head = {{"schema", schema},
               {"command", source.command},
               {"tandem_version", source.tandem_version},
               {"git_commit", source.git_commit},
               {"model", source.model},
               {"weights_hash", source.weights_hash},
               {"tokenizer_hash", source.tokenizer_hash},
               {"source", source.prompts},
               {"prompts", prompts},
               {"mean_tokens", tokens / prompts}};
  if (!source.gpu.empty()) head["gpu"] = source.gpu;
  return head;
}

std::string head_report_text(const HeadProfile& profile, const HeadSource& source, bool each_head) {
  std::string out = wrap(fmt::format("Attention heads of {}: {} ({}), {} tokens on average, {} decode queries, "
                                     "full attention.",
                                     source.model, counted(profile.prompts, "prompt"), source.prompts,
                                     profile.tokens / profile.prompts, profile.queries),
                         terminal_width()) +
                    "\n\n";
  Table layers;
  layers.head = heads_of({"layer"});
  for (std::size_t l = 0; l < profile.layers.size(); ++l)
    layers.rows.push_back(cells({std::to_string(l)}, profile.layers[l].mean()));
  layers.rows.push_back(cells({"all"}, profile.mean()));
  out += layers.text() + "\n";
  if (each_head) {
    Table heads;
    heads.head = heads_of({"head"});
    for (std::size_t l = 0; l < profile.layers.size(); ++l) {
      for (std::size_t h = 0; h < profile.layers[l].q_heads.size(); ++h)
        heads.rows.push_back(cells({fmt::format("{}.{}", l, h)}, profile.layers[l].q_heads[h]));
    }
    out += heads.text() + "\n";
    Table groups;
    groups.head = {"KV head", "sinks", "window", "stream", "95% t", "95% 16", "95% 32", "95% 64", "90% t"};
    for (std::size_t l = 0; l < profile.layers.size(); ++l) {
      for (std::size_t g = 0; g < profile.layers[l].kv_heads.size(); ++g) {
        const KvHeadStats& s = profile.layers[l].kv_heads[g];
        std::vector<std::string> row = {fmt::format("{}.{}", l, g), percent_or_dash(s.sink_mass),
                                        percent_or_dash(s.window_mass), percent_or_dash(s.streaming)};
        for (const double share : s.budget[1]) row.push_back(percent_or_dash(share));
        row.push_back(percent_or_dash(s.budget[0][0]));
        groups.rows.push_back(std::move(row));
      }
    }
    out += groups.text() + "A KV head streams when all its query heads do; its budget is that of all they choose.\n\n";
  }
  return out + wrap(legend(profile.options), terminal_width()) + "\n";
}

nlohmann::ordered_json head_profile_json(const HeadProfile& profile, const HeadSource& source) {
  const HeadOptions& o = profile.options;
  Json json = profile_head("tandem-heads-1", source, profile.prompts, profile.tokens);
  json.update({{"queries", profile.queries},
               {"definitions",
                {{"sinks", o.sinks},
                 {"window", o.window},
                 {"streaming_sinks", o.streaming_sinks},
                 {"streaming_tolerance", o.tolerance},
                 {"overlap_share", 1.0 / kOverlapShare},
                 {"overlap_block", kOverlapBlock},
                 {"budget",
                  "share of the context in the fewest blocks of n tokens that carry this share of the attention mass"},
                 {"layer_ahead_cosine", "under this layer's norm (next) and under the previous layer's (own)"},
                 {"input_change",
                  "a layer's input beside the previous layer's: cosine of the two; length of what the previous layer "
                  "adds to its input, in lengths of that input (added)"}}},
               {"mean", stats_json(profile.mean())},
               {"layers", Json::array()}});
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const InputChange& input = profile.layers[l].input;
    Json layer = {{"layer", l},
                  {"mean", stats_json(profile.layers[l].mean())},
                  {"input_change", {{"cosine", rounded(input.cosine)}, {"added", rounded(input.added)}}}};
    for (const HeadStats& head : profile.layers[l].q_heads) layer["q_heads"].push_back(stats_json(head));
    for (const KvHeadStats& head : profile.layers[l].kv_heads) layer["kv_heads"].push_back(kv_json(head));
    json["layers"].push_back(std::move(layer));
  }
  return json;
}

}  // namespace tandem::eval
