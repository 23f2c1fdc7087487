// Perplexity in decode mode: a window's context is prefilled with full attention, then every further token of the text
// is fed and goes through the method, so that its losses add up as in a generation. Methods are compared on the same
// tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/common/interrupt.h"
#include "engine/model/model.h"
#include "eval/report/statistics.h"
#include "eval/run/dataset.h"

namespace tandem::eval {

struct PerplexityOptions {
  std::optional<std::string> text;  // UTF-8; none: invented prose
  std::string text_file;            // as it can be typed again; empty without a text
  std::uint64_t seed = 0;           // of invented prose
  std::uint32_t context = 1024;     // tokens of a window before the scored ones, BOS included
  std::uint32_t scored = 256;       // tokens of a window that are scored
  std::uint32_t windows = 32;
  std::function<bool()> interrupted = tandem::interrupted;  // polled while the text is encoded
};

class Perplexity final : public Dataset {
 public:
  /// Cuts the text's first tokens into windows of equal length; of a longer text no more is encoded. InputError for a
  /// text that is no UTF-8 or too short for the windows, and windows that the model has no positions for or that are
  /// too many; Interrupted.
  Perplexity(PerplexityOptions options, const Model& model);

  std::string name() const override { return kPerplexity; }
  std::vector<std::string> tasks() const override;
  std::vector<std::uint32_t> lengths() const override { return {options_.context}; }
  std::uint32_t samples_of(const std::string&) const override { return options_.windows; }
  std::uint64_t seed() const override { return options_.seed; }
  std::string protocol_id(const Manifest& manifest) const override;
  std::string arguments() const override;
  /// A window: its context as the prompt, the begin token before it if the model has one, the other tokens fed.
  DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override;
  std::uint32_t longest_prompt() const override { return options_.context; }
  RunReport report(const RunFolder& folder) const override;

 private:
  PerplexityOptions options_;
  std::vector<std::int32_t> bos_, all_;  // all_: of the text, window after window
};

/// A method's losses in a run's figures.
struct MethodLoss {
  std::string label;                    // as typed
  std::vector<double> nll;              // per window, in their order: mean nats of a token
  Estimate loss;                        // mean of `nll`; IntervalKind::none where all windows are alike, as one is
  Estimate difference;                  // to the baseline, window by window; n is 0 for the baseline itself
  std::vector<double> nll_by_position;  // means over the windows, per stretch of the scored tokens
};

struct PerplexitySummary {
  Summary run;                      // `overall` has mean nats of a token in place of an accuracy; no other cells
  std::uint32_t scored = 0;         // tokens of a window
  std::vector<MethodLoss> methods;  // as run.methods
};

/// InputError for a run without windows, with windows that score different numbers of tokens, and what
/// RunFolder::windows() and timings() refuse.
PerplexitySummary summarise_perplexity(const RunFolder& folder);

std::string perplexity_report(const PerplexitySummary& summary, bool markdown, bool with_plot = false);
std::string to_json_text(const PerplexitySummary& summary);

/// Prose of made-up sentences, as RULER's embedded source has it: what is scored where no text is given. More bytes
/// begin with the same ones. `interrupted` as in EngineOptions.
std::string invented_prose(std::uint64_t seed, std::size_t bytes, const std::function<bool()>& interrupted = {});

}  // namespace tandem::eval
