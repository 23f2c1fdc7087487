#include "eval/answers/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/common/error.h"

namespace tandem::eval {
namespace {

constexpr std::uint32_t kMostSteps = 2000000;  // of one match
constexpr std::uint32_t kMostHeap = 64 << 10;  // KiB

}  // namespace

Pattern::Pattern(std::string_view expression) {
  int error = 0;
  PCRE2_SIZE where = 0;
  code_ = std::shared_ptr<void>(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                              PCRE2_UTF | PCRE2_UCP, &error, &where, nullptr),
                                [](void* code) { pcre2_code_free(static_cast<pcre2_code*>(code)); });
  TANDEM_CHECK(code_ != nullptr, "expression '{}' has error {} at {}", expression, error, where);
}

std::vector<std::string_view> Pattern::first(std::string_view text, std::size_t from) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_match_limit(limits.get(), kMostSteps);
  pcre2_set_heap_limit(limits.get(), kMostHeap);
  const int found =
      pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, 0, data.get(), limits.get());
  std::vector<std::string_view> parts;
  if (found <= 0) return parts;
  const PCRE2_SIZE* at = pcre2_get_ovector_pointer(data.get());
  for (std::uint32_t i = 0; i < pcre2_get_ovector_count(data.get()); ++i) {
    const bool is_there = i < static_cast<std::uint32_t>(found) && at[2 * i] != PCRE2_UNSET;
    parts.push_back(is_there ? text.substr(at[2 * i], at[2 * i + 1] - at[2 * i]) : std::string_view());
  }
  return parts;
}

std::string Pattern::replaced(std::string_view text,
                              const std::function<std::string(const std::vector<std::string_view>&)>& by) const {
  std::string out;
  std::size_t done = 0, from = 0;
  while (from <= text.size()) {
    const std::vector<std::string_view> parts = first(text, from);
    if (parts.empty()) break;
    const auto begin = static_cast<std::size_t>(parts[0].data() - text.data());
    out += text.substr(done, begin - done);
    out += by(parts);
    done = begin + parts[0].size();
    from = parts[0].empty() ? done + 1 : done;  // no expression here matches nothing within a character
  }
  return out += text.substr(std::min(done, text.size()));
}

std::vector<std::string> Pattern::split(std::string_view text) const {
  std::vector<std::string> out;
  std::size_t done = 0;
  for (auto parts = first(text, 0); !parts.empty() && !parts[0].empty(); parts = first(text, done)) {
    const auto begin = static_cast<std::size_t>(parts[0].data() - text.data());
    out.emplace_back(text.substr(done, begin - done));
    done = begin + parts[0].size();
  }
  out.emplace_back(text.substr(done));
  return out;
}

}  // namespace tandem::eval
