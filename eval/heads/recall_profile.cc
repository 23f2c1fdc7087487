#include "eval/heads/recall_profile.h"

#include <algorithm>
#include <fmt/format.h>

#include "engine/common/error.h"
#include "eval/report/statistics.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

/// Adds the ratios of one prompt's decode to `sums`.
void add(Engine& engine, const RecallOptions& options, const Prefix& prefix, const std::string& recall,
         const std::vector<std::vector<std::int32_t>>& forced, Ratios& sums) {
  const char separator = options.method.find(':') == std::string::npos ? ':' : ',';
  const auto method = make_method(fmt::format("{}{}recall={}", options.method, separator, recall));
  std::vector<std::vector<std::uint64_t>> host;
  const DecodeRequest request{&prefix, options.steps};
  engine.decode(*method, {&request, 1}, {.host_tokens = &host, .forced = forced});
  const ModelShape shape = engine.shape();
  sums.resize(shape.layers, std::vector<double>(options.steps));
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (std::uint32_t step = 0; step < options.steps; ++step)
      sums[layer][step] += double(host[step][layer]) / shape.kv_heads / options.budget;
  }
}

void divide(Ratios& sums, double n) {
  for (std::vector<double>& layer : sums) {
    for (double& ratio : layer) ratio /= n;
  }
}

}  // namespace

double mean(const Ratios& ratios) {
  return mean(column_means(ratios));
}

double RecallProfile::mean_interval() const {
  return mean(std::vector<double>(intervals.begin(), intervals.end()));
}

std::uint32_t longest_interval(const std::vector<double>& ratios, double threshold) {
  const auto first = std::find_if(ratios.begin(), ratios.end(), [&](double ratio) { return ratio >= threshold; });
  return std::max<std::uint32_t>(1, static_cast<std::uint32_t>(first - ratios.begin()));
}

RecallProfile profile_recall(Engine& engine, const std::vector<HeadPrompt>& prompts, const RecallOptions& options,
                             const ProfileProgress& progress) {
  RecallProfile profile;
  profile.options = options;
  const auto full = make_method("full");
  std::vector<std::vector<std::vector<std::int32_t>>> forced;
  std::uint64_t done = 0;
  Ratios changed;
  // One prompt at a time is in the store: prefilling twice costs less than keeping all.
  const auto with_prefix = [&](const HeadPrompt& prompt, const auto& work) {
    const auto prefix = engine.prefill(std::span<const std::int32_t>(prompt.tokens).first(prompt.first_query + 1));
    try {
      work(*prefix);
    } catch (...) {
      engine.release(*prefix);
      throw;
    }
    engine.release(*prefix);
    if (progress) progress(++done, 2 * prompts.size());
  };
  forced.reserve(prompts.size());
  for (const HeadPrompt& prompt : prompts) {
    with_prefix(prompt, [&](const Prefix& prefix) {
      const DecodeRequest request{&prefix, options.steps};
      forced.push_back({engine.decode(*full, {&request, 1}).sequences[0].tokens});
      TANDEM_CHECK(forced.back()[0].size() == options.steps, "a prompt ended early");
      add(engine, options, prefix, "0", forced.back(), profile.without);
      add(engine, options, prefix, "1", forced.back(), changed);
      profile.tokens += prefix.prompt.size();
    });
  }
  profile.prompts = prompts.size();
  divide(profile.without, double(prompts.size()));
  divide(changed, double(prompts.size()));
  if (mean(profile.without) == 0) {
    throw_input_error(
        "All blocks of every prompt are resident under a budget of {} tokens, so there is nothing to recall: give a "
        "longer --length or a smaller --budget.",
        options.budget);
  }
  // With a recall in every step the residents are what the step before chose. The first step's are the prompt's.
  for (const std::vector<double>& layer : changed)
    profile.changed.push_back(mean(std::vector<double>(layer.begin() + 1, layer.end())));
  for (const std::vector<double>& layer : profile.without)
    profile.intervals.push_back(longest_interval(layer, options.threshold));
  const std::string recall = fmt::format("{}", fmt::join(profile.intervals, "-"));
  for (std::size_t i = 0; i < prompts.size(); ++i)
    with_prefix(prompts[i],
                [&](const Prefix& prefix) { add(engine, options, prefix, recall, forced[i], profile.with); });
  divide(profile.with, double(prompts.size()));
  return profile;
}

}  // namespace tandem::eval
