#include "eval/answers/pattern.h"

#include <algorithm>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/common/error.h"

namespace tandem::eval {
namespace {

constexpr std::uint32_t kMostSteps = 2000000;  // of one match
constexpr std::uint32_t kMostHeap = 64 << 10;  // KiB

}  // namespace

Pattern::Pattern(std::string_view expression, Of texts) {
  int error = 0;
  PCRE2_SIZE where = 0;
  code_ = std::shared_ptr<void>(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                              texts == Of::utf8 ? PCRE2_UTF | PCRE2_UCP : 0, &error, &where, nullptr),
                                [](void* code) { pcre2_code_free(static_cast<pcre2_code*>(code)); });
  TANDEM_CHECK(code_ != nullptr, "expression '{}' has error {} at {}", expression, error, where);
}

Pattern::Parts Pattern::first(std::string_view text, std::size_t from) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_match_limit(limits.get(), kMostSteps);
  pcre2_set_heap_limit(limits.get(), kMostHeap);
  const int found =
      pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, 0, data.get(), limits.get());
  Parts parts;
  if (found <= 0) return parts;
  const PCRE2_SIZE* at = pcre2_get_ovector_pointer(data.get());
  for (std::uint32_t i = 0; i < pcre2_get_ovector_count(data.get()); ++i) {
    const bool is_there = i < static_cast<std::uint32_t>(found) && at[2 * i] != PCRE2_UNSET;
    parts.push_back(is_there ? text.substr(at[2 * i], at[2 * i + 1] - at[2 * i]) : std::string_view());
  }
  return parts;
}

std::vector<Pattern::Parts> Pattern::all(std::string_view text, std::size_t from) const {
  std::vector<Parts> out;
  while (from <= text.size()) {
    Parts match = first(text, from);
    if (match.empty()) break;
    from = static_cast<std::size_t>(match[0].data() - text.data()) + std::max<std::size_t>(1, match[0].size());
    out.push_back(std::move(match));
  }
  return out;
}

std::string Pattern::replaced(std::string_view text, const std::function<std::string(const Parts&)>& by) const {
  std::string out;
  std::size_t done = 0;
  for (const Parts& match : all(text)) {
    const auto begin = static_cast<std::size_t>(match[0].data() - text.data());
    out.append(text, done, begin - done).append(by(match));
    done = begin + match[0].size();
  }
  return out.append(text, done);
}

std::string Pattern::replaced(std::string_view text, std::string_view by) const {
  return replaced(text, [by](const Parts& match) {
    std::string out;
    for (std::size_t i = 0; i < by.size(); ++i) {
      const bool is_group = by[i] == '\\' && i + 1 < by.size() && (by[i + 1] == '1' || by[i + 1] == '2');
      out += is_group ? match[static_cast<std::size_t>(by[++i] - '0')] : by.substr(i, 1);
    }
    return out;
  });
}

std::size_t group_of(const Pattern::Parts& match) {
  const auto group = std::find_if(match.begin() + 1, match.end(), [](auto part) { return part.data() != nullptr; });
  return static_cast<std::size_t>(group - match.begin());
}

}  // namespace tandem::eval
