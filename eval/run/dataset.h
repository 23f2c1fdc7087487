// A dataset: prompts with their answers, how predictions are scored, and what a report says of them. A run decodes them
// with every method (eval/run/run_dataset.h); its manifest has the tasks, the lengths and the number of samples.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/kernels/sampling.h"
#include "eval/report/run_folder.h"
#include "eval/report/summary.h"

namespace tandem::eval {

struct DatasetSample {
  std::string task;
  std::uint32_t length = 0, index = 0;  // as in SampleKey
  std::vector<std::int32_t> prompt;     // tokens as the model is given them, its begin token included
  std::vector<std::string> answers;
  std::uint32_t max_new_tokens = 0;
  std::vector<std::int32_t> stop_tokens = {};  // beside the model's (DecodeRequest)
  std::optional<double> depth = {};            // of what is asked for, 0 first, 1 last; nothing where it is not known
  std::optional<std::uint32_t> document = {};  // as in SampleResult
  Sampling sampling = {};                      // how its tokens are chosen, the same with every method
  bool cut_is_wrong = false;                   // an answer that max_new_tokens cut off scores 0, whatever it says
  /// Tokens that are fed after the prompt and scored by their probability; where there are any, none is generated.
  std::vector<std::int32_t> forced = {};
  std::uint64_t first_token = 0;  // of `forced` ones the window's, as in WindowLoss
};

struct Score {
  double value = 0;                                          // in [0, 1]
  std::optional<std::string> rule = {};                      // as in SampleResult
  std::vector<std::pair<std::string, double>> by_rule = {};  // as in SampleResult
};

/// A part of a report in both of its forms.
struct ReportSection {
  std::string markdown, terminal;
};

struct ReportPlot {
  std::string script, name;  // a shipped script that draws <name>.png
  std::string caption = {};  // below the sections; empty: the report's head shows it
};

/// All that follows from the samples of a run.
struct RunReport {
  Summary summary;
  std::vector<std::pair<std::string, std::string>> files;          // name and content
  std::function<std::string(bool markdown, bool with_plot)> head;  // what stands before the sections
  std::vector<ReportSection> sections;
  std::vector<ReportPlot> plots;  // where the first is not drawn, no other is
  std::string samples_file = "samples.jsonl";

  /// For a terminal, or report.md with the first `drawn` plots.
  std::string text(bool markdown, std::size_t drawn = 0) const;
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::string name() const = 0;  // SampleKey::benchmark
  virtual std::vector<std::string> tasks() const = 0;
  virtual std::vector<std::uint32_t> lengths() const { return {0}; }
  virtual std::uint32_t samples_of(const std::string& task) const = 0;
  virtual std::uint64_t seed() const { return 0; }
  /// One line that names all that two runs must share for their scores to be comparable. `manifest` has methods and
  /// tokenizer.
  virtual std::string protocol_id(const Manifest& manifest) const = 0;
  /// Its options as they can be typed again, but for --data: " --tasks qasper --max-length 3500".
  virtual std::string arguments() const { return ""; }

  virtual DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const = 0;
  /// Tokens that no prompt has more of.
  virtual std::uint32_t longest_prompt() const = 0;
  /// The part of a generated text that is kept and scored. Here: all of it.
  virtual std::string prediction(std::string text) const { return text; }
  /// The scores of samples of one task. Here: score() of each by itself.
  virtual std::vector<Score> scores(std::span<const DatasetSample> samples,
                                    std::span<const std::string> predictions) const;
  virtual Score score(const DatasetSample&, const std::string& /*prediction*/) const { return {}; }

  /// The entries of a manifest that follow from the dataset and the methods; its tokenizer is set already.
  void fill_manifest(const std::vector<std::string>& methods, Manifest& manifest) const;

  /// Here: the report that all runs have, with own_section() behind it, and own_json() as <name>.json.
  virtual RunReport report(const RunFolder& folder) const;
  virtual std::string own_section(const RunFolder&, const Summary&, bool /*markdown*/) const { return ""; }
  virtual std::string own_json(const RunFolder&, const Summary&) const { return ""; }
};

/// The end of a protocol id: "+budget:...+query:aware+question:in-prefill+eos:stops", for a question that is prefilled.
std::string protocol_end(const Manifest& manifest);

/// A run's summary, with what its tables have to say about the methods.
Summary summary_of(const RunFolder& folder);

}  // namespace tandem::eval
