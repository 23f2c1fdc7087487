// Compares methods on RULER: each prompt is prefilled once and decoded with every method; accuracy, latency, idle time
// and bytes come from the same run. Writes samples and timings to a run folder as they are finished.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/model/model.h"
#include "engine/runtime/engine.h"
#include "eval/report/run_folder.h"
#include "eval/ruler/official.h"

namespace tandem::eval {

struct CompareOptions {
  std::vector<std::string> methods;               // specs; the first is the baseline
  std::shared_ptr<const OfficialRuler> official;  // samples from files; else from the embedded source
  RulerTexts texts;                               // of the embedded source, where they are from files
  std::vector<std::string> tasks;                 // RULER task names
  std::vector<std::uint32_t> lengths;
  std::uint32_t samples = 0;  // per task and length
  std::uint64_t seed = 0;
  std::uint32_t batch = 1;  // sequences decoded together
  EngineOptions engine;
  std::function<std::unique_ptr<Method>(const std::string& spec)> make;  // empty: make_method
  /// A method has decoded a batch, whose results are kept next; the key of the batch's first sample.
  std::function<void(const SampleKey& first)> decoded;
  /// Whether what `decoded` keeps about such a batch is missing, though its results are there: it is decoded again.
  std::function<bool(const SampleKey& first)> lacks;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // in decoded samples, all methods
};

/// The manifest's entries that follow from the options (methods spelled out, tasks, lengths, protocol); its tokenizer
/// is set already.
void fill_manifest(const CompareOptions& options, Manifest& manifest);

/// A copy of the options with the tasks and lengths that options.official has read, and no more samples than every
/// file has.
CompareOptions from_official(CompareOptions options);

/// Sentences for the user of official files: fewer samples than the `samples` asked for, a chat template around the
/// prompts, a template that is not this tokenizer's.
std::vector<std::string> official_notes(const OfficialRuler& files, std::uint32_t samples, const Tokenizer& tokenizer);

/// Throws InputError for lengths that the model has no positions for, that a task does not fit into, or whose prefilled
/// batch is more than the device's KV budget. To be called before the run folder is made, so that a typo neither
/// replaces an earlier run nor is found in the middle of a long one.
void check_compare(const CompareOptions& options, const Model& model);

/// The run's sample, and in `prompt` its tokens as the model is given them.
RulerSample compare_sample(const CompareOptions& options, const Model& model, const std::string& task,
                           std::uint32_t length, std::uint32_t index, std::vector<std::int32_t>& prompt);

/// Called once per method (by index) with the trace of its first decode in this process; `resumed`: samples of it had
/// been finished before.
using TraceOfFirst = std::function<void(std::size_t method, bool resumed, const Trace&)>;

/// Runs what the folder does not hold yet, and puts its lines in order. Throws Interrupted between batches when
/// options.engine.interrupted says so; finished samples are in the folder then.
void run_compare(const CompareOptions& options, const Model& model, Device& device, ThreadPool& pool, RunFolder& folder,
                 const TraceOfFirst& trace_of_first = {});

}  // namespace tandem::eval
