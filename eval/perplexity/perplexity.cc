#include "eval/perplexity/perplexity.h"

#include <algorithm>
#include <fmt/core.h>
#include <numeric>
#include <set>

#include "engine/common/error.h"
#include "engine/model/utf8.h"
#include "eval/ruler/random.h"
#include "eval/run/decoded.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

using Tokens = std::vector<std::int32_t>;

WindowLoss loss_of(const SampleKey& key, std::uint64_t first_token, const std::vector<double>& log_probabilities) {
  WindowLoss loss{key};
  loss.first_token = first_token;
  loss.scored = static_cast<std::uint32_t>(log_probabilities.size());
  const auto mean = [&](std::size_t begin, std::size_t end) {
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum -= log_probabilities[i];
    return sum / static_cast<double>(end - begin);
  };
  const std::size_t n = log_probabilities.size(), stretches = std::min<std::size_t>(kPositionStretches, n);
  loss.nll = mean(0, n);
  loss.nll_by_position.reserve(stretches);
  for (std::size_t b = 0; b < stretches; ++b)
    loss.nll_by_position.push_back(mean(b * n / stretches, (b + 1) * n / stretches));
  return loss;
}

}  // namespace

Windows cut_windows(const PerplexityOptions& options, const Model& model) {
  if (options.windows < 1 || options.scored < 1)
    throw_input_error("There is nothing to score: give at least one window and one token.");
  if (options.context < 2) throw_input_error("--context is {}: give at least 2 tokens.", options.context);
  if (std::size_t{options.context} + options.scored > model.config.max_positions) {
    throw_input_error("--context {} and --new {} exceed the {} positions of model '{}' (max_position_embeddings).",
                      options.context, options.scored, model.config.max_positions, model.name);
  }
  if (options.text) {
    const std::string& text = *options.text;
    if (const std::size_t valid = valid_utf8_bytes(text); valid < text.size()) {
      throw_input_error("{}: byte {} (0x{:02x}) is no UTF-8. Perplexity depends on every byte: convert the file first.",
                        options.text_source, valid, static_cast<unsigned char>(text[valid]));
    }
  }
  check_device_room(options.engine, model, options.batch, options.context, "--context");
  return {options, model};
}

void fill_manifest(const PerplexityOptions& options, Manifest& manifest) {
  manifest.methods = method_entries(options.methods);
  manifest.benchmark = kPerplexity;
  manifest.tasks = {options.text_name};
  manifest.lengths = {options.context};
  manifest.samples = options.windows;
  manifest.seed = options.seed;
  const std::string text =
      options.text ? fmt::format("{:016x}", fnv1a64(*options.text)) : invented_prose_name(options.seed);
  manifest.protocol_id = fmt::format("perplexity/decode+text:{}+tok:{}+context:{}+new:{}+windows:adjacent", text,
                                     manifest.tokenizer_hash, options.context, options.scored);
}

void run_perplexity(const PerplexityOptions& options, const Windows& windows, const Model& model, Device& device,
                    ThreadPool& pool, RunFolder& folder) {
  EngineOptions engine_options = options.engine;
  engine_options.max_batch = options.batch;
  keep_what_methods_need(engine_options, options.methods, model);
  Engine engine(model, device, pool, engine_options);
  const PrefixCache prefixes_kept(options.prefix_files, engine_options);
  std::vector<std::unique_ptr<Method>> methods;
  methods.reserve(options.methods.size());
  for (const std::string& spec : options.methods) methods.push_back(make_method(spec));
  const std::set<SampleKey> done_before = folder.finished();
  const auto key_of = [&](std::uint32_t window, std::size_t method) {
    return SampleKey{kPerplexity, options.text_name, options.context, window, options.methods[method]};
  };
  std::uint64_t total = 0, done = 0;  // of this shard
  const auto tick = [&](std::uint64_t count) {
    done += count;
    if (options.progress) options.progress(done, total);
  };
  struct Batch {
    std::uint32_t first, count;
  };
  std::vector<Batch> batches;
  for (std::uint32_t first = 0, count = 0; first < options.windows; first += count) {
    count = std::min(options.batch, options.windows - first);
    if (!options.shard.has(first / options.batch)) continue;
    total += std::uint64_t{count} * methods.size();
    done += std::uint64_t{count} * methods.size();
    // A batch is redone whole if any of it is missing: its timings belong together.
    std::size_t missing = 0;
    for (std::uint32_t i = 0; i < count; ++i)
      for (std::size_t m = 0; m < methods.size(); ++m) missing += done_before.contains(key_of(first + i, m)) ? 0 : 1;
    if (missing == 0) continue;
    batches.push_back({first, count});
    done -= std::uint64_t{count} * methods.size();
  }
  tick(0);  // what was there has taken no time of this run
  for (const auto& [first, count] : batches) {
    std::vector<std::unique_ptr<Prefix>> prefixes;
    std::vector<DecodeRequest> requests;
    std::vector<Tokens> forced;
    for (std::uint32_t i = 0; i < count; ++i) {
      const Tokens window = windows.tokens(first + i);
      const auto split = window.begin() + options.context;
      prefixes.push_back(prefixes_kept.prefill(engine, Tokens(window.begin(), split)));
      requests.push_back({prefixes.back().get(), options.scored});
      forced.emplace_back(split, window.end());
    }
    for (std::size_t m = 0; m < methods.size(); ++m) {
      const DecodeResult result = engine.decode(*methods[m], requests, {.forced = forced});
      const std::int64_t prefill_ns = prefill_ns_of(requests, methods[m]->needs(engine.shape()));
      for (std::uint32_t i = 0; i < count; ++i) {
        const SampleKey key = key_of(first + i, m);
        if (done_before.contains(key)) continue;
        folder.append(loss_of(key, windows.first_token(first + i), result.sequences[i].log_probabilities));
        folder.append(timing_of(key, result, i, prefill_ns, device.clock_name()));
      }
      tick(count);
    }
    for (const auto& prefix : prefixes) engine.release(*prefix);
  }
  folder.arrange(keys_in_order(folder.manifest(), options.batch));
}

}  // namespace tandem::eval
