// Perplexity in decode mode: a window's context is prefilled with full attention, then every further token of the text
// is fed and goes through the method, so that its losses add up as in a generation. Methods are compared on the same
// tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/common/interrupt.h"
#include "engine/model/model.h"
#include "eval/perplexity/windows.h"
#include "eval/run/dataset.h"

namespace tandem::eval {

struct PerplexityOptions {
  std::optional<std::string> text;  // UTF-8; none: invented prose
  std::string text_name;            // stands for it in results: UTF-8, never empty
  std::string text_source;          // stands for it in sentences: the file as it was named
  std::string text_file;            // as it can be typed again; empty without a text
  std::uint64_t seed = 0;           // of invented prose
  std::uint32_t context = 1024;     // tokens of a window before the scored ones, BOS included
  std::uint32_t scored = 256;       // tokens of a window that are scored
  std::uint32_t windows = 32;
  std::function<bool()> interrupted = tandem::interrupted;  // polled while the text is encoded
};

class Perplexity final : public Dataset {
 public:
  /// Cuts the text into windows, which do not overlap; the first begins with the text. InputError for a text that is no
  /// UTF-8 or too short for the windows, and windows that the model has no positions for or that are too many
  /// (kMostWindowTokens); Interrupted.
  Perplexity(PerplexityOptions options, const Model& model);

  std::string name() const override { return kPerplexity; }
  std::vector<std::string> tasks() const override { return {options_.text_name}; }
  std::vector<std::uint32_t> lengths() const override { return {options_.context}; }
  std::uint32_t samples_of(const std::string&) const override { return options_.windows; }
  std::uint64_t seed() const override { return options_.seed; }
  std::string protocol_id(const Manifest& manifest) const override;
  std::string arguments() const override;
  /// A window: its context as the prompt, the other tokens fed.
  DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override;
  std::uint32_t longest_prompt() const override { return options_.context; }
  RunReport report(const RunFolder& folder) const override;

  const Windows& windows() const { return windows_; }

 private:
  PerplexityOptions options_;
  Windows windows_;
};

}  // namespace tandem::eval
