#include "eval/heads/query_shift_report.h"

#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "eval/report/table.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kFigure4 = 0.4;  // AsyncSpade section 3.1: "above 40 %" over the 16 most recent queries
constexpr std::size_t kBarColumns = 40;

std::string percent(double share) {
  return fmt::format("{:.1f}", 100 * share);
}

std::string bar(double share) {
  std::string out;
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::lround(share * kBarColumns)); ++i) out += "█";
  return out;
}

Json rounded(const std::vector<double>& values) {
  Json json = Json::array();
  for (const double x : values) json.push_back(std::round(x * 1e6) / 1e6);
  return json;
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

std::string query_shift_text(const ShiftProfile& profile, const HeadSource& source) {
  const ShiftOptions& o = profile.options;
  std::string out =
      wrap(fmt::format("What earlier and predicted queries of {} choose, as a share of the true query's best {:g} % of "
                       "the tokens: {} ({}), {} tokens on average, {} decode queries, full attention.",
                       source.model, 100 * o.share, counted(profile.prompts, "prompt"), source.prompts,
                       profile.tokens / profile.prompts, profile.queries),
           terminal_width()) +
      "\n\ndistance  same %\n";
  const std::vector<double> distances = profile.mean_by_distance();
  for (std::size_t i = 0; i < distances.size(); ++i)
    out += fmt::format("{:>8}  {:>6}  {}\n", i + 1, percent(distances[i]), bar(distances[i]));
  Table table;
  table.head = {"weights", "windows", "rope", "with shift %", "spread", "best of prompts", "without %", "spread"};
  std::string plot = "\nwith shift, by reading\n";
  for (std::size_t i = 0; i < profile.variants.size(); ++i) {
    const ShiftProfile::Variant& v = profile.variants[i];
    const std::string name = v.variant.name();
    const auto part = [&name](const char* key) {
      const std::size_t at = name.find(key) + std::string(key).size();
      return name.substr(at, name.find(',', at) - at);
    };
    const double with = ShiftProfile::mean(v.with_shift);
    table.rows.push_back({part("weights="), part("windows="), part("rope="), percent(with),
                          percent(profile.spread([i](const auto& p) { return p.with_shift[i]; })),
                          std::to_string(profile.wins(i)), percent(ShiftProfile::mean(v.without)),
                          percent(profile.spread([i](const auto& p) { return p.without[i]; }))});
    plot += fmt::format("{:>6}  {:<40}  {}\n", percent(with), bar(with), name);
  }
  return out + "\n" + table.text() + plot + "\n" + prompts_text(profile) +
         wrap(
             fmt::format("with shift: weights found for the newest query, applied one token later, as asyncspade "
                         "predicts; without: found for the true query itself and applied to its predecessors. W = {}, "
                         "epsilon = {:g}. Means over layers, query heads and queries; spread: standard deviation of "
                         "the prompts' means; best of prompts: in how many no other reading is better with shift. Best "
                         "with shift: {}. published: "
                         "figure 4 shows more than {:g} % over the 16 most recent queries, figure 5 as much or more "
                         "with shift than without (Qwen3; read from plots).",
                         o.window, o.epsilon, profile.best().variant.name(), 100 * kFigure4),
             terminal_width()) +
         "\n";
}

Json query_shift_json(const ShiftProfile& profile, const HeadSource& source) {
  const ShiftOptions& o = profile.options;
  Json json = profile_head("tandem-query-shift-2", source, profile.prompts, profile.tokens);
  json.update({{"queries", profile.queries},
               {"window", o.window},
               {"share", o.share},
               {"epsilon", o.epsilon},
               {"best", profile.best().variant.name()},
               {"by_distance", rounded(profile.mean_by_distance())},
               {"variants", Json::array()},
               {"each_prompt", Json::array()},
               {"layers", Json::array()}});
  for (const ShiftProfile::Variant& v : profile.variants) {
    json["variants"].push_back(
        {{"options", v.variant.name()}, {"with_shift", rounded(v.with_shift)}, {"without_shift", rounded(v.without)}});
  }
  for (const ShiftProfile::Prompt& p : profile.each_prompt) {
    json["each_prompt"].push_back({{"name", p.name},
                                   {"tokens", p.tokens},
                                   {"queries", p.queries},
                                   {"by_distance", rounded(p.by_distance)},
                                   {"with_shift", rounded(p.with_shift)},
                                   {"without_shift", rounded(p.without)}});
  }
  for (const std::vector<double>& layer : profile.by_distance) json["layers"].push_back(rounded(layer));
  return json;
}

}  // namespace tandem::eval
