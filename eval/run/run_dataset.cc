#include "eval/run/run_dataset.h"

#include <algorithm>
#include <limits>
#include <set>

#include "engine/common/error.h"
#include "eval/run/decoded.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

Parting::Choice choice_of(const TopTwo& top) {
  const auto finite = [](float logit) { return double{std::max(logit, std::numeric_limits<float>::lowest())}; };
  return {{top.best, top.second}, {finite(top.best_logit), finite(top.second_logit)}};
}

/// Where the tokens of a method that loses nothing part from full's, which had the same prompt and way of sampling.
std::optional<Parting> parting_of(const DecodedSequence& full, const DecodedSequence& own) {
  const auto token = [](const DecodedSequence& of, std::size_t step) {
    return step < of.tokens.size() ? of.tokens[step] : of.stop_token;
  };
  for (std::size_t step = 0; step < std::min(full.top.size(), own.top.size()); ++step)
    if (token(full, step) != token(own, step))
      return Parting{static_cast<std::uint32_t>(step), choice_of(full.top[step]), choice_of(own.top[step])};
  return std::nullopt;
}

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

/// One run: what is the same for all its batches.
class DatasetRun {
 public:
  DatasetRun(const Dataset& dataset, const DatasetRunOptions& options, const Model& model, Device& device,
             ThreadPool& pool, RunFolder& folder)
      : dataset_(dataset),
        tokenizer_(*model.tokenizer),
        options_(options),
        device_(device),
        folder_(folder),
        engine_(model, device, pool, engine_options_of(options, model)),
        done_before_(folder.finished()),
        traced_(options.methods.size()) {
    methods_.reserve(options.methods.size());
    for (const std::string& spec : options.methods)
      methods_.push_back(options.make ? options.make(spec) : make_method(spec));
    for (std::size_t m = 0; m < methods_.size(); ++m) order_.push_back(m);
    std::ranges::stable_partition(order_, [&](std::size_t m) { return is_full(m); });
  }

  void run() {
    const std::vector<Batch> missing = missing_batches();
    for (const Batch& batch : missing) done_ -= std::uint64_t{batch.count} * methods_.size();
    tick(0);  // what was there has taken no time of this run
    for (const Batch& batch : missing) {
      if (options_.engine.interrupted && options_.engine.interrupted()) throw Interrupted();
      run_batch(batch);
    }
    folder_.arrange(keys_in_order(folder_.manifest(), options_.batch));
  }

 private:
  struct Batch {
    std::string task;
    std::uint32_t length, first, count;
  };

  void tick(std::uint64_t samples) {
    done_ += samples;
    if (options_.progress) options_.progress(done_, total_);
  }

  /// Of this shard, whose samples are total_ and done_ then.
  std::vector<Batch> missing_batches() {
    const Manifest& manifest = folder_.manifest();
    std::vector<Batch> missing;
    std::uint64_t number = 0;
    for (const std::uint32_t length : manifest.lengths) {
      for (const std::string& task : manifest.tasks) {
        const std::uint32_t samples = manifest.samples_of(task);
        for (std::uint32_t first = 0, count = 0; first < samples; first += count) {
          count = std::min(options_.batch, samples - first);
          if (!options_.shard.has(number++)) continue;
          total_ = done_ += std::uint64_t{count} * methods_.size();
          if (is_missing({dataset_.name(), task, length, first, ""}, count))
            missing.push_back({task, length, first, count});
        }
      }
    }
    return missing;
  }

  /// A batch is redone whole if any of it is missing: its timings belong together.
  bool is_missing(SampleKey first, std::uint32_t count) const {
    return std::any_of(options_.methods.begin(), options_.methods.end(), [&](const std::string& method) {
      first.method = method;
      if (options_.lacks && options_.lacks(first)) return true;
      SampleKey key = first;
      for (std::uint32_t i = 0; i < count; ++i, ++key.index)
        if (!done_before_.contains(key)) return true;
      return false;
    });
  }

  void run_batch(const Batch& batch) {
    const auto& [task, length, first, count] = batch;
    std::vector<DatasetSample> samples;
    std::vector<std::unique_ptr<Prefix>> prefixes;
    std::vector<DecodeRequest> requests;
    std::vector<Sampling> sampling;
    std::vector<std::vector<std::int32_t>> forced;
    samples.reserve(count);
    prefixes.reserve(count);
    requests.reserve(count);
    sampling.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      const DatasetSample& sample = samples.emplace_back(dataset_.sample(task, length, first + i));
      prefixes.push_back(engine_.prefill(sample.prompt));
      requests.push_back({prefixes.back().get(), sample.max_new_tokens, sample.stop_tokens});
      sampling.push_back(sample.sampling);
      if (!sample.forced.empty()) forced.push_back(sample.forced);
    }
    DecodeOptions decode;
    decode.forced = forced;
    if (std::any_of(sampling.begin(), sampling.end(), [](const Sampling& how) { return how.temperature > 0; }))
      decode.sampling = sampling;  // the simulated cost of drawing is only where there is any
    std::vector<DecodedSequence> full;
    for (const std::size_t m : order_) {
      const std::int64_t prefill_ns = prefill_ns_of(requests, methods_[m]->needs(engine_.shape()));
      DecodeResult result = engine_.decode(*methods_[m], requests, decode);
      keep(samples, m, result, full, prefill_ns, requests);  // the run's folder begins with the first of them
      if (options_.trace_of_first && !traced_[m])
        options_.trace_of_first(m, has_samples_of(options_.methods[m]), result.trace);
      traced_[m] = true;
      if (options_.decoded) options_.decoded(key_of(samples.front(), m));
      if (is_full(m)) full = std::move(result.sequences);
      tick(count);
    }
    for (const auto& prefix : prefixes) engine_.release(*prefix);
  }

  bool is_full(std::size_t m) const { return methods_[m]->spelled_out() == "full"; }

  /// `full`: its sequences, where it has decoded the batch.
  void keep(const std::vector<DatasetSample>& samples, std::size_t m, const DecodeResult& result,
            const std::vector<DecodedSequence>& full, std::int64_t prefill_ns,
            std::span<const DecodeRequest> requests) {
    if (!samples.front().forced.empty()) return keep_losses(samples, m, result, prefill_ns, requests);
    const bool compares = !full.empty() && methods_[m]->needs(engine_.shape()).lossless;
    std::vector<std::string> predictions;
    predictions.reserve(samples.size());
    for (const DecodedSequence& decoded : result.sequences)
      predictions.push_back(dataset_.prediction(tokenizer_.decode(decoded.tokens)));
    const std::vector<Score> scores = dataset_.scores(samples, predictions);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const SampleKey key = key_of(samples[i], m);
      if (done_before_.contains(key)) continue;
      SampleResult line;
      static_cast<SampleKey&>(line) = key;
      line.prompt_tokens = static_cast<std::uint32_t>(samples[i].prompt.size());
      line.tokens = result.sequences[i].tokens;
      line.prediction = predictions[i];
      line.answers = samples[i].answers;
      const bool cut = line.tokens.size() >= samples[i].max_new_tokens;
      line.score = cut && samples[i].cut_is_wrong ? 0 : scores[i].value;
      line.rule = scores[i].rule;
      line.by_rule = scores[i].by_rule;
      for (const NearTie& tie : result.sequences[i].near_ties) line.near_ties.push_back({tie.step, double(tie.margin)});
      const int version = folder_.manifest().schema_version;
      if (compares && version >= kPartedSince) line.parted = parting_of(full[i], result.sequences[i]);
      line.depth = samples[i].depth;
      if (version >= kDocumentsSince) line.document = samples[i].document;
      folder_.append(line);
      folder_.append(timing(key, result, i, prefill_ns, requests));
    }
  }

  void keep_losses(const std::vector<DatasetSample>& samples, std::size_t m, const DecodeResult& result,
                   std::int64_t prefill_ns, std::span<const DecodeRequest> requests) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const SampleKey key = key_of(samples[i], m);
      if (done_before_.contains(key)) continue;
      folder_.append(loss_of(key, samples[i].first_token, result.sequences[i].log_probabilities));
      folder_.append(timing(key, result, i, prefill_ns, requests));
    }
  }

  SampleTiming timing(const SampleKey& key, const DecodeResult& result, std::size_t row, std::int64_t prefill_ns,
                      std::span<const DecodeRequest> requests) const {
    SampleTiming made = timing_of(key, result, row, prefill_ns, device_.clock_name());
    made.reused_tokens = requests[row].prefix->reused;
    return made;
  }

  SampleKey key_of(const DatasetSample& sample, std::size_t method) const {
    return {dataset_.name(), sample.task, sample.length, sample.index, options_.methods[method]};
  }

  bool has_samples_of(const std::string& method) const {
    return std::any_of(done_before_.begin(), done_before_.end(),
                       [&](const SampleKey& key) { return key.method == method; });
  }

  const Dataset& dataset_;
  const Tokenizer& tokenizer_;
  const DatasetRunOptions& options_;
  Device& device_;
  RunFolder& folder_;
  Engine engine_;
  std::vector<std::unique_ptr<Method>> methods_;
  std::vector<std::size_t> order_;  // full first: the lossless ones are compared with it
  const std::set<SampleKey> done_before_;
  std::vector<bool> traced_;
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace

EngineOptions engine_options_of(const DatasetRunOptions& options, const Model& model) {
  EngineOptions engine = options.engine;
  engine.max_batch = options.batch;
  keep_what_methods_need(engine, options.methods, model);
  return engine;
}

void run_dataset(const Dataset& dataset, const DatasetRunOptions& options, const Model& model, Device& device,
                 ThreadPool& pool, RunFolder& folder) {
  DatasetRun(dataset, options, model, device, pool, folder).run();
}

}  // namespace tandem::eval
