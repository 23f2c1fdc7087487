// Reads prompts of the RULER tasks back, for tests: token counters, needles, keys.
#pragma once

#include <algorithm>
#include <cctype>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "eval/ruler_tasks/draft.h"

namespace tandem::eval {

// Counters stand in for a tokenizer: words, single characters, and pieces of three characters (whose count does not
// grow with every added sentence by the same amount). One token each for the begin of the sequence.
inline std::uint32_t count_words(std::string_view text) {
  std::uint32_t words = 1;
  bool inside = false;
  for (const char c : text) {
    const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!space && !inside) ++words;
    inside = !space;
  }
  return words;
}
inline std::uint32_t count_characters(std::string_view text) {
  return static_cast<std::uint32_t>(text.size()) + 1;
}
inline std::uint32_t count_thirds(std::string_view text) {
  return static_cast<std::uint32_t>(text.size() / 3) + 1;
}

inline const std::map<std::string, TokenCounter>& counters() {
  static const std::map<std::string, TokenCounter> all = {
      {"words", count_words}, {"characters", count_characters}, {"thirds", count_thirds}};
  return all;
}

/// A sample with exactly `units` units of haystack, whatever its length in tokens.
inline RulerSample make_ruler_sample_with(std::string_view task, std::uint32_t length, std::uint32_t index,
                                          std::uint64_t seed, const TokenCounter& count_tokens, std::uint32_t units,
                                          const RulerTexts& texts = {}) {
  const RulerTask& found = find_ruler_task(task);
  const auto draft = make_draft({&found, length, index, seed, &texts});
  RulerSample sample;
  sample.prompt = draft->prompt(units, &sample.depth);
  sample.answers = draft->answers();
  sample.prompt_tokens = count_tokens(sample.prompt);
  sample.max_new_tokens = ruler_max_new_tokens(found, length);
  sample.haystack_units = units;
  return sample;
}

inline std::size_t occurrences(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

struct Found {
  std::string key, value;
};

/// Text between `before` and `after` from `at` on; moves `at` behind it, to npos where there is none. By hand, because
/// std::regex sets off GCC 12's false "maybe uninitialized" under the sanitizers.
inline std::string between(const std::string& text, const std::string& before, const std::string& after,
                           std::size_t& at) {
  at = text.find(before, at);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + before.size(), end = text.find(after, begin);
  at = end == std::string::npos ? end : end + after.size();
  return text.substr(begin, end - begin);
}

inline std::vector<Found> needles_in(const std::string& prompt) {
  std::vector<Found> found;
  const std::size_t end = prompt.rfind('\n');
  for (std::size_t at = 0; (at = prompt.find("The secret ", at)) < end;) {
    Found needle;
    needle.key = between(prompt, " for ", " is ", at);
    at -= 4;
    needle.value = between(prompt, " is ", ".", at);
    found.push_back(needle);
  }
  return found;
}

inline std::string asked_key(const std::string& prompt) {
  std::size_t at = prompt.rfind('\n');
  EXPECT_TRUE(prompt.substr(at + 1).starts_with("Question: What is the secret ")) << prompt;
  const std::string first = between(prompt, " for ", "? Answer: The secret ", at);
  const std::string second = between(prompt, " for ", " is", at);
  EXPECT_EQ(first, second);
  EXPECT_EQ(at, prompt.size());
  return first;
}

inline bool is_number(std::string_view text) {
  return text.size() == 7 && text[0] != '0' &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// RFC 4122, version 4, lower case.
inline bool is_uuid(std::string_view text) {
  if (text.size() != 36 || text[14] != '4' || std::string_view("89ab").find(text[19]) == std::string_view::npos)
    return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : std::string_view("0123456789abcdef").find(text[i]) == std::string_view::npos)
      return false;
  }
  return true;
}

}  // namespace tandem::eval
