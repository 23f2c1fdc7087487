// The prompts that heads are profiled on: RULER samples of the embedded source with their answers, or windows of a
// text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/heads/heads.h"

namespace tandem::eval {

/// `samples` per task, each of at most `length` tokens; the queries produce the answer.
std::vector<HeadPrompt> ruler_head_prompts(const Model& model, const std::vector<std::string>& tasks,
                                           std::uint32_t length, std::uint32_t samples, std::uint64_t seed);

inline constexpr std::uint32_t kTextQueries = 32;

/// `samples` windows of `length` tokens at even distances; the queries are the last kTextQueries of each. InputError
/// where the text is no UTF-8 or shorter than one window; `name` stands for it in the sentence.
std::vector<HeadPrompt> text_head_prompts(const Model& model, std::string_view text, const std::string& name,
                                          std::uint32_t length, std::uint32_t samples);

}  // namespace tandem::eval
