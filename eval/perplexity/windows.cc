#include "eval/perplexity/windows.h"

#include <algorithm>
#include <fmt/core.h>
#include <span>

#include "engine/common/error.h"
#include "eval/perplexity/perplexity.h"
#include "eval/ruler/random.h"
#include "eval/ruler/wording.h"

namespace tandem::eval {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::size_t kPartBytes = 256 << 10;  // of text that is encoded at a time: a few milliseconds

void check(const std::function<bool()>& interrupted) {
  if (interrupted && interrupted()) throw Interrupted();
}

/// The text's first `count` ids; fewer where it has no more.
Tokens first_ids(const Tokenizer& tokenizer, std::string_view text, std::size_t count,
                 const std::function<bool()>& interrupted) {
  Tokens ids;
  tokenizer.encode_parts(text, kPartBytes, [&](std::span<const std::int32_t> part) {
    check(interrupted);
    ids.insert(ids.end(), part.begin(), part.begin() + std::ptrdiff_t(std::min(part.size(), count - ids.size())));
    return ids.size() < count;
  });
  return ids;
}

/// The first `count` ids of prose without end.
Tokens first_ids_of_prose(const Tokenizer& tokenizer, std::uint64_t seed, std::size_t count,
                          const std::function<bool()>& interrupted) {
  constexpr std::size_t kLastWord = 64;  // ids at the end of a text may be others where it goes on
  for (std::size_t bytes = 8 * count;; bytes *= 2) {
    Tokens ids = first_ids(tokenizer, invented_prose(seed, bytes, interrupted), count + kLastWord, interrupted);
    if (ids.size() < count + kLastWord) continue;
    ids.resize(count);
    return ids;
  }
}

}  // namespace

Windows::Windows(const PerplexityOptions& options, const Model& model)
    : bos_(model.tokenizer->encode("", /*add_bos=*/true)), length_(options.context + options.scored - bos_.size()) {
  const std::size_t count = length_ * options.windows;
  if (count > kMostWindowTokens) {
    throw_input_error("--windows {} of {} tokens are {} tokens, more than the {} that a run may have: give fewer.",
                      options.windows, length_, count, kMostWindowTokens);
  }
  const std::function<bool()>& interrupted = options.interrupted;
  if (!options.text) {
    all_ = first_ids_of_prose(*model.tokenizer, options.seed, count, interrupted);
    return;
  }
  all_ = first_ids(*model.tokenizer, *options.text, count, interrupted);
  if (all_.size() < count) {
    throw_input_error("{} has {} tokens; {} windows of {} need {}: give a longer text or fewer windows.",
                      options.text_source, all_.size(), options.windows, length_, count);
  }
}

std::vector<std::int32_t> Windows::tokens(std::uint32_t index) const {
  Tokens window = bos_;
  const auto first = all_.begin() + static_cast<std::ptrdiff_t>(first_token(index));
  window.insert(window.end(), first, first + static_cast<std::ptrdiff_t>(length_));
  return window;
}

std::string invented_prose(std::uint64_t seed, std::size_t bytes, const std::function<bool()>& interrupted) {
  Random random(seed);
  std::string text;
  for (std::size_t sentences = 0; text.size() < bytes; ++sentences) {
    if (sentences % 1024 == 0) check(interrupted);
    text += random_prose(ruler_wording(), random) + " ";
  }
  return text;
}

std::string invented_prose_name(std::uint64_t seed) {
  const RulerWording& wording = ruler_wording();
  return fmt::format("invented-{}-{:016x}", seed, fnv1a64(wording.wording_hash + wording.words_hash));
}

}  // namespace tandem::eval
