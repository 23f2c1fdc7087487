#include "engine/model/word_splitter.h"

#include <cstdint>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/common/error.h"
#include "engine/model/word_expression.h"

namespace tandem {

const char* const kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct WordSplitter::Expression {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  Expression() = default;
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  ~Expression() {
    pcre2_code_free(code);
    pcre2_match_context_free(context);
  }
};

WordSplitter::WordSplitter(const std::vector<std::string>& expressions, const std::string& file) : file_(file) {
  for (const std::string& text : expressions) {
    const std::string pattern = pcre2_expression(text, file);
    int error = 0;
    PCRE2_SIZE where = 0;
    auto expression = std::make_unique<Expression>();
    expression->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &where, nullptr);
    if (expression->code == nullptr) {
      PCRE2_UCHAR message[256] = {};
      pcre2_get_error_message(error, message, sizeof message);
      throw_input_error("{}: the expression '{}' cannot be compiled ({}).", file, text,
                        reinterpret_cast<const char*>(message));
    }
    std::uint32_t matches_nothing = 0;
    pcre2_pattern_info(expression->code, PCRE2_INFO_MATCHEMPTY, &matches_nothing);
    if (matches_nothing != 0)
      throw_input_error("{}: the expression '{}' can match the empty text, which is not supported.", file, text);
    pcre2_jit_compile(expression->code, PCRE2_JIT_COMPLETE);  // without it matching is slower, not different
    expression->context = pcre2_match_context_create(nullptr);
    pcre2_set_match_limit(expression->context, 50'000'000);  // against expressions that try everything
    expressions_.push_back(std::move(expression));
  }
}

WordSplitter::~WordSplitter() = default;

bool WordSplitter::split(std::string_view text, const std::function<bool(std::string_view)>& word) const {
  return split(text, 0, word);
}

bool WordSplitter::split(std::string_view text, std::size_t at,
                         const std::function<bool(std::string_view)>& word) const {
  if (text.empty()) return true;
  if (at == expressions_.size()) return word(text);
  const Expression& expression = *expressions_[at];
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(expression.code, nullptr));
  std::size_t done = 0;
  while (done < text.size()) {
    const auto run = [&](std::uint32_t more) {
      return pcre2_match(expression.code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), done,
                         PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | more, match.get(), expression.context);
    };
    int found = run(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = run(PCRE2_NO_JIT);  // compiled code has 32 KB of stack
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      throw_input_error("{}: its expression for words cannot be matched against the text (PCRE2 error {}).", file_,
                        found);
    }
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match.get());
    if (span[0] > done && !split(text.substr(done, span[0] - done), at + 1, word)) return false;
    if (!split(text.substr(span[0], span[1] - span[0]), at + 1, word)) return false;
    done = span[1];
  }
  return split(text.substr(done), at + 1, word);
}

}  // namespace tandem
