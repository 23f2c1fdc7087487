#include "eval/compare/compare.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "engine/common/error.h"
#include "eval/ruler/protocol.h"
#include "eval/run/decoded.h"
#include "eval/scoring/string_match.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

struct Prepared {
  RulerSample sample;
  std::vector<std::int32_t> prompt;
  std::unique_ptr<Prefix> prefix;
};

std::vector<std::int32_t> encode_prompt(const CompareOptions& options, const Model& model, std::string_view prompt) {
  if (options.official) return encode_official(*model.tokenizer, prompt);
  return model.tokenizer->encode(prompt, /*add_bos=*/true);
}

TokenCounter token_counter(const CompareOptions& options, const Model& model) {
  return
      [&](std::string_view prompt) { return static_cast<std::uint32_t>(encode_prompt(options, model, prompt).size()); };
}

void check_official(const CompareOptions& options, const Model& model) {
  const TokenCounter counter = token_counter(options, model);
  for (const std::uint32_t length : options.lengths) {
    for (const std::string& task : options.tasks) {
      for (std::uint32_t i = 0; i < options.samples; ++i) {
        const RulerSample sample = options.official->sample(task, length, i, counter);
        if (sample.prompt_tokens + sample.max_new_tokens > model.config.max_positions + 1) {
          throw_input_error(
              "Sample {} of {} at length {} has {} tokens and {} are generated, more than the {} positions of model "
              "'{}' "
              "(max_position_embeddings): choose shorter files with --lengths.",
              i, task, length, sample.prompt_tokens, sample.max_new_tokens, model.config.max_positions, model.name);
        }
        check_device_room(options.engine, model, options.batch, sample.prompt_tokens, "--lengths");
      }
    }
  }
}

SampleKey key_of(const RulerSample& sample, const std::string& method) {
  return {"ruler", sample.task, sample.length, sample.index, method};
}

SampleResult result_of(const Prepared& prepared, const std::string& method, const DecodedSequence& decoded,
                       const Model& model) {
  SampleResult r;
  r.benchmark = "ruler";
  r.task = prepared.sample.task;
  r.length = prepared.sample.length;
  r.index = prepared.sample.index;
  r.method = method;
  r.prompt_tokens = static_cast<std::uint32_t>(prepared.prompt.size());
  r.tokens = decoded.tokens;
  r.prediction = postprocess_prediction(model.tokenizer->decode(decoded.tokens));
  r.answers = prepared.sample.answers;
  r.score = ruler_score(find_ruler_task(r.task), r.prediction, r.answers);
  for (const NearTie& tie : decoded.near_ties) r.near_ties.push_back({tie.step, double(tie.margin)});
  r.depth = prepared.sample.depth;
  return r;
}

}  // namespace

void fill_manifest(const CompareOptions& options, Manifest& manifest) {
  manifest.methods = method_entries(options.methods);
  manifest.benchmark = "ruler";
  manifest.tasks = options.tasks;
  manifest.lengths = options.lengths;
  manifest.samples = options.samples;
  manifest.seed = options.seed;
  RulerProtocol protocol;
  protocol.tokenizer_hash = manifest.tokenizer_hash;
  protocol.texts = options.texts;
  if (options.official) {
    protocol.data_hash = options.official->hash();
    const ChatTemplate found = options.official->chat_template();
    if (!found.mark.empty()) protocol.chat_template = found.known ? "in-files" : "unknown";
  }
  for (const MethodEntry& entry : manifest.methods) protocol.budgets[entry.name] = find_method(entry.name).budget;
  manifest.protocol_id = ruler_protocol_id(protocol);
}

CompareOptions from_official(CompareOptions options) {
  options.tasks = options.official->tasks();
  options.lengths = options.official->lengths();
  options.samples = std::min(options.samples, options.official->samples());
  return options;
}

std::vector<std::string> official_notes(const OfficialRuler& files, std::uint32_t samples, const Tokenizer& tokenizer) {
  std::vector<std::string> notes;
  if (files.samples() < samples) {
    notes.push_back(fmt::format("--samples is {}, but {} has only {}: {} samples of every task and length are used.",
                                samples, files.fewest(), files.samples(), files.samples()));
  }
  const ChatTemplate found = files.chat_template();
  if (found.mark.empty()) return notes;
  if (!found.known) {
    notes.push_back(
        fmt::format("The official files have prompts that begin with \"{}\", which looks like a chat template, but "
                    "like none that is "
                    "known here: they are used as they are, special tokens being read as such, and the protocol says "
                    "template:unknown.",
                    found.mark));
  } else {
    notes.push_back(fmt::format(
        "The official files have a chat template (\"{}\") around their prompts: it is used as it is.", found.mark));
  }
  if (found.mark.starts_with('<') && tokenizer.special(found.mark) < 0) {
    notes.push_back(fmt::format(
        "\"{}\" is no special token of this model's tokenizer: the files were made for another model.", found.mark));
  }
  return notes;
}

void check_compare(const CompareOptions& options, const Model& model) {
  const ModelConfig& c = model.config;
  if (options.official) return check_official(options, model);
  for (const std::uint32_t length : options.lengths) {
    if (length > c.max_positions) {
      throw_input_error("--lengths: {} is more than the {} positions of model '{}' (max_position_embeddings).", length,
                        c.max_positions, model.name);
    }
    for (const std::string& task : options.tasks) {
      check_ruler_samples(task, length, options.samples, options.seed, token_counter(options, model), options.texts);
      check_device_room(options.engine, model, options.batch,
                        length - ruler_max_new_tokens(find_ruler_task(task), length), "--lengths");
    }
  }
}

RulerSample compare_sample(const CompareOptions& options, const Model& model, const std::string& task,
                           std::uint32_t length, std::uint32_t index, std::vector<std::int32_t>& prompt) {
  const TokenCounter counter = token_counter(options, model);
  RulerSample sample = options.official ? options.official->sample(task, length, index, counter)
                                        : make_ruler_sample(task, length, index, options.seed, counter, options.texts);
  prompt = encode_prompt(options, model, sample.prompt);
  return sample;
}

void run_compare(const CompareOptions& options, const Model& model, Device& device, ThreadPool& pool, RunFolder& folder,
                 const TraceOfFirst& trace_of_first) {
  EngineOptions engine_options = options.engine;
  engine_options.max_batch = options.batch;
  keep_what_methods_need(engine_options, options.methods, model);
  Engine engine(model, device, pool, engine_options);
  std::vector<std::unique_ptr<Method>> methods;
  methods.reserve(options.methods.size());
  for (const std::string& text : options.methods)
    methods.push_back(options.make ? options.make(text) : make_method(text));
  const std::set<SampleKey> done_before = folder.finished();
  const auto resumed = [&](const std::string& method) {
    return std::any_of(done_before.begin(), done_before.end(),
                       [&](const SampleKey& key) { return key.method == method; });
  };
  std::vector<bool> traced(methods.size());

  const std::uint64_t total =
      std::uint64_t{options.tasks.size()} * options.lengths.size() * options.samples * options.methods.size();
  std::uint64_t done = 0;
  const auto tick = [&](std::uint64_t samples) {
    done += samples;
    if (options.progress) options.progress(done, total);
  };
  for (const std::uint32_t length : options.lengths) {
    for (const std::string& task : options.tasks) {
      for (std::uint32_t first = 0; first < options.samples; first += options.batch) {
        if (engine_options.interrupted && engine_options.interrupted()) throw Interrupted();
        const std::uint32_t count = std::min(options.batch, options.samples - first);
        // A batch is redone whole if any of it is missing: its timings belong together.
        std::uint32_t missing = 0;
        for (const std::string& method : options.methods) {
          for (std::uint32_t i = 0; i < count; ++i)
            missing += done_before.count({"ruler", task, length, first + i, method}) == 0 ? 1 : 0;
          missing += options.lacks && options.lacks({"ruler", task, length, first, method}) ? 1 : 0;
        }
        if (missing == 0) {
          tick(std::uint64_t{count} * methods.size());
          continue;
        }
        std::vector<Prepared> batch(count);
        for (std::uint32_t i = 0; i < count; ++i) {
          batch[i].sample = compare_sample(options, model, task, length, first + i, batch[i].prompt);
          batch[i].prefix = engine.prefill(batch[i].prompt);
        }
        for (std::size_t m = 0; m < methods.size(); ++m) {
          std::vector<DecodeRequest> requests;
          requests.reserve(batch.size());
          for (const Prepared& p : batch) requests.push_back({p.prefix.get(), p.sample.max_new_tokens});
          const std::int64_t prefill_ns = prefill_ns_of(requests, methods[m]->needs(engine.shape()));
          const DecodeResult result = engine.decode(*methods[m], requests);
          if (trace_of_first && !traced[m]) trace_of_first(m, resumed(options.methods[m]), result.trace);
          traced[m] = true;
          if (options.decoded) options.decoded(key_of(batch.front().sample, options.methods[m]));
          for (std::uint32_t i = 0; i < count; ++i) {
            if (done_before.count(key_of(batch[i].sample, options.methods[m])) != 0) continue;
            folder.append(result_of(batch[i], options.methods[m], result.sequences[i], model));
            folder.append(
                timing_of(key_of(batch[i].sample, options.methods[m]), result, i, prefill_ns, device.clock_name()));
          }
          tick(count);
        }
        for (const Prepared& p : batch) engine.release(*p.prefix);
      }
    }
  }
  folder.arrange(keys_in_order(folder.manifest(), options.batch));
}

}  // namespace tandem::eval
