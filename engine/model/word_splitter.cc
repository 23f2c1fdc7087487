#include "engine/model/word_splitter.h"

#include <algorithm>
#include <cstdint>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"

namespace tandem {

const char* const kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

struct Free {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

// Steps are PCRE2's: roughly, times that a part of an expression is tried. Published expressions take a few for each
// byte of a text, since none looks at a byte from more than a few places.
constexpr std::uint64_t kSteps = 1'000'000, kStepsOfByte = 100;  // of a text
constexpr std::uint32_t kFewSteps = 256;                         // from one place, which nobody counts
constexpr std::size_t kPlaces = 4096;                            // tried in one call
constexpr std::uint32_t kHeap = 64 << 10;                        // KiB, where compiled code does not do

}  // namespace

/// What is left of a text's steps.
struct WordSplitter::Budget {
  std::uint64_t steps;
  std::unique_ptr<pcre2_match_context, Free> context{pcre2_match_context_create(nullptr)};
};

WordSplitter::WordSplitter(const std::vector<std::string>& expressions, const std::string& file) : file_(file) {
  for (const std::string& text : expressions) {
    const std::string pattern = pcre2_expression(text, file);
    int error = 0;
    PCRE2_SIZE where = 0;
    const Expression& expression = expressions_.emplace_back(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT, &error, &where,
                      nullptr),
        pcre2_code_free);
    if (expression == nullptr) {
      PCRE2_UCHAR message[256] = {};
      pcre2_get_error_message(error, message, sizeof message);
      throw_input_error("{}: the expression '{}' cannot be compiled ({}).", file, text,
                        reinterpret_cast<const char*>(message));
    }
    std::uint32_t matches_nothing = 0;
    pcre2_pattern_info(expression.get(), PCRE2_INFO_MATCHEMPTY, &matches_nothing);
    if (matches_nothing != 0)
      throw_input_error("{}: the expression '{}' can match the empty text, which is not supported.", file, text);
    pcre2_jit_compile(expression.get(), PCRE2_JIT_COMPLETE);  // without it matching is slower, not different
  }
}

bool WordSplitter::split(std::string_view text, const std::function<bool(std::string_view)>& word) const {
  Budget budget{kSteps + kStepsOfByte * text.size()};
  pcre2_set_heap_limit(budget.context.get(), kHeap);
  return split(text, 0, budget, word);
}

bool WordSplitter::split(std::string_view text, std::size_t at, Budget& budget,
                         const std::function<bool(std::string_view)>& word) const {
  if (text.empty()) return true;
  if (at == expressions_.size()) return word(text);
  const Expression& expression = expressions_[at];
  const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create_from_pattern(expression.get(), nullptr));
  std::size_t done = 0;
  while (find(expression, text, done, budget, match.get())) {
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match.get());
    if (span[0] > done && !split(text.substr(done, span[0] - done), at + 1, budget, word)) return false;
    if (!split(text.substr(span[0], span[1] - span[0]), at + 1, budget, word)) return false;
    done = span[1];
  }
  return split(text.substr(done), at + 1, budget, word);
}

bool WordSplitter::find(const Expression& expression, std::string_view text, std::size_t from, Budget& budget,
                        pcre2_real_match_data_8* match) const {
  // Where a place takes many steps, places are tried one by one, with more and more steps at the budget's cost.
  std::uint64_t most = kFewSteps;
  std::size_t places = kPlaces;
  for (std::size_t place = from; place < text.size();) {
    stop_if_interrupted();
    const std::size_t last = std::min(place + places, text.size());
    pcre2_set_match_limit(budget.context.get(), static_cast<std::uint32_t>(most));
    pcre2_set_offset_limit(budget.context.get(), last);
    const auto run = [&](std::uint32_t more) {
      return pcre2_match(expression.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), place,
                         PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | more, match, budget.context.get());
    };
    int found = run(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = run(PCRE2_NO_JIT);  // compiled code has 32 KB of stack
    if (found >= 0) return true;
    if (found == PCRE2_ERROR_MATCHLIMIT && most <= budget.steps) {
      budget.steps -= most;
      most = std::min<std::uint64_t>(4 * most, UINT32_MAX);
      places = 0;
    } else if (found == PCRE2_ERROR_NOMATCH) {
      most = kFewSteps;
      place = last + 1;
      while (place < text.size() && (static_cast<unsigned char>(text[place]) & 0xC0) == 0x80) ++place;
    } else {
      throw_input_error("{}: its expression for words cannot be matched against the text (PCRE2 error {}{}).", file_,
                        found, found == PCRE2_ERROR_MATCHLIMIT ? ": too many steps" : "");
    }
  }
  return false;
}

}  // namespace tandem
