#include "eval/perplexity/perplexity.h"

#include <algorithm>
#include <fmt/format.h>

#include "engine/common/error.h"
#include "eval/ruler/random.h"
#include "eval/ruler/wording.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

using Tokens = std::vector<std::int32_t>;

void check(const PerplexityOptions& options, const Model& model) {
  if (options.windows < 1 || options.scored < 1)
    throw_input_error("There is nothing to score: give at least one token.");
  if (options.context < 2) throw_input_error("--context is {}: give at least 2 tokens.", options.context);
  if (std::size_t{options.context} + options.scored > model.config.max_positions) {
    throw_input_error("--context {} and --new {} exceed the {} positions of model '{}' (max_position_embeddings).",
                      options.context, options.scored, model.config.max_positions, model.name);
  }
}

std::vector<Tokens> cut_windows(const PerplexityOptions& options, const Model& model, std::string_view text,
                                const std::string& name) {
  const Tokens bos = model.tokenizer->encode("", /*add_bos=*/true);
  const Tokens all = model.tokenizer->encode(text, /*add_bos=*/false);
  const std::size_t length = options.context + options.scored - bos.size();
  if (all.size() < length * options.windows) {
    throw_input_error("{} has {} tokens; {} windows of {} need {}: give a longer text or fewer windows.", name,
                      all.size(), options.windows, length, length * options.windows);
  }
  std::vector<Tokens> windows;
  for (std::size_t i = 0; i < options.windows; ++i) {
    Tokens window = bos;
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * length);
    window.insert(window.end(), first, first + static_cast<std::ptrdiff_t>(length));
    windows.push_back(std::move(window));
  }
  return windows;
}

/// Sums over windows; divided once all are there.
void add(const DecodeResult& result, MethodLoss& loss, double& steps) {
  for (const DecodedSequence& s : result.sequences) {
    double sum = 0;
    for (const double p : s.log_probabilities) sum -= p;
    loss.nll.push_back(sum / double(s.log_probabilities.size()));
    for (int side = 0; side < 2; ++side) loss.attended[side] += double(s.attended[side]) / double(s.steps.size());
  }
  for (const StepIdle& step : result.idle.steps) {
    if (step.step == Device::kSetupStep || step.step == 0) continue;
    loss.step_ms += double(step.window) * 1e-6;
    ++steps;
  }
}

}  // namespace

std::string invented_prose(std::uint64_t seed, std::size_t bytes) {
  Random random(seed);
  std::string text;
  while (text.size() < bytes) text += random_prose(ruler_wording(), random) + " ";
  return text;
}

Perplexity decode_perplexity(const PerplexityOptions& options, const Model& model, Device& device, ThreadPool& pool,
                             std::string_view text, const std::string& name) {
  check(options, model);
  const std::vector<Tokens> windows = cut_windows(options, model, text, name);
  Perplexity result;
  result.model = model.name;
  result.weights_hash = model.weights_hash;
  result.tokenizer_hash = model.tokenizer->hash();
  result.text = name;
  result.text_hash = fmt::format("{:016x}", fnv1a64(text));
  result.clock = device.clock_name();
  result.context = options.context;
  result.scored = options.scored;
  result.batch = options.batch;
  std::vector<std::unique_ptr<Method>> methods;
  for (const std::string& spec : options.methods) {
    methods.push_back(make_method(spec));
    result.methods.push_back({spec, methods.back()->spelled_out(), {}, {}, 0});
  }
  EngineOptions engine_options = options.engine;
  engine_options.max_batch = options.batch;
  Engine engine(model, device, pool, engine_options);
  std::vector<double> steps(methods.size());
  std::uint64_t done = 0;
  for (std::size_t first = 0; first < windows.size(); first += options.batch) {
    const std::size_t last = std::min<std::size_t>(first + options.batch, windows.size());
    std::vector<std::unique_ptr<Prefix>> prefixes;
    std::vector<DecodeRequest> requests;
    std::vector<Tokens> forced;
    for (std::size_t i = first; i < last; ++i) {
      const auto split = windows[i].begin() + options.context;
      prefixes.push_back(engine.prefill(Tokens(windows[i].begin(), split)));
      requests.push_back({prefixes.back().get(), options.scored});
      forced.emplace_back(split, windows[i].end());
    }
    for (std::size_t m = 0; m < methods.size(); ++m) {
      add(engine.decode(*methods[m], requests, {.forced = forced}), result.methods[m], steps[m]);
      done += last - first;
      if (options.progress) options.progress(done, std::uint64_t{options.windows} * methods.size());
    }
    for (const auto& prefix : prefixes) engine.release(*prefix);
  }
  for (std::size_t m = 0; m < methods.size(); ++m) {
    if (steps[m] > 0) result.methods[m].step_ms /= steps[m];
    for (double& tokens : result.methods[m].attended) tokens /= options.windows;
  }
  return result;
}

}  // namespace tandem::eval
