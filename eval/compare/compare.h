// Compares methods on RULER: each prompt is prefilled once and decoded with every method; accuracy, latency, idle time
// and bytes come from the same run. Writes samples and timings to a run folder as they are finished.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/model/model.h"
#include "eval/report/run_folder.h"
#include "eval/ruler/official.h"
#include "eval/run/benchmark.h"

namespace tandem::eval {

struct CompareOptions : BenchmarkOptions {
  std::shared_ptr<const OfficialRuler> official;  // samples from files; else from the embedded source
  RulerTexts texts;                               // of the embedded source, where they are from files
  std::vector<std::string> tasks;                 // RULER task names
  std::vector<std::uint32_t> lengths;
  std::uint32_t samples = 0;  // per task and length
  std::uint64_t seed = 0;
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

/// The run's sample.
BenchmarkSample compare_sample(const CompareOptions& options, const Model& model, const std::string& task,
                               std::uint32_t length, std::uint32_t index);

/// Runs what the folder does not hold yet (run_benchmark).
void run_compare(const CompareOptions& options, const Model& model, Device& device, ThreadPool& pool, RunFolder& folder,
                 const TraceOfFirst& trace_of_first = {});

}  // namespace tandem::eval
