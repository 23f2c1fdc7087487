// What a model can take in, and whether work goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/model/model.h"

namespace tandem {

struct EngineOptions;

/// InputError for a token outside the vocabulary.
void check_tokens(const Model& model, std::span<const std::int32_t> prompt);
/// InputError where a prompt of this many tokens and what is generated behind it need more positions than there are.
/// The last token that is generated needs none.
void check_positions(const Model& model, std::size_t prompt_tokens, std::uint32_t new_tokens);

/// InputError that begins with `what` where a text has more tokens than the model has positions. Of a text with far
/// more only the beginning is encoded; whether one with few more fits is left to check_positions().
void check_text_fits(const Model& model, std::string_view text, std::string_view what);

/// Between steps and chunks: Interrupted where EngineOptions::interrupted says so, RunError as MappedFile::check_all().
void check_going_on(const EngineOptions& options);

}  // namespace tandem
