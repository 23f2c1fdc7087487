// The windows of a perplexity run: its text's first tokens, cut into stretches of equal length.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/model/model.h"

namespace tandem::eval {

struct PerplexityOptions;

/// Windows times tokens of a window: what is held in memory, 4 bytes each (and 8 of invented prose).
inline constexpr std::uint64_t kMostWindowTokens = 64u << 20;

class Windows {
 public:
  /// Encodes as much of the text as the windows take. InputError for a text that is too short, Interrupted where
  /// options.interrupted says so meanwhile.
  Windows(const PerplexityOptions& options, const Model& model);

  std::uint64_t first_token(std::uint32_t index) const { return std::uint64_t{index} * length_; }  // of the text's
  /// The window's tokens, the begin token before those of the text if the model has one.
  std::vector<std::int32_t> tokens(std::uint32_t index) const;

 private:
  std::vector<std::int32_t> bos_, all_;
  std::size_t length_;  // without BOS
};

/// Prose of made-up sentences, as RULER's embedded source has it: what is scored where no text is given. More bytes
/// begin with the same ones. `interrupted` as in EngineOptions.
std::string invented_prose(std::uint64_t seed, std::size_t bytes, const std::function<bool()>& interrupted = {});

/// "invented-20260101-0123456789abcdef": the seed, and a hash of the wording and words that it is made of.
std::string invented_prose_name(std::uint64_t seed);

}  // namespace tandem::eval
