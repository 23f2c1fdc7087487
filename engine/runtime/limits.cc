#include "engine/runtime/limits.h"

#include "engine/common/error.h"
#include "engine/common/mapped_file.h"
#include "engine/runtime/engine.h"

namespace tandem {

void check_tokens(const Model& model, std::span<const std::int32_t> prompt) {
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && static_cast<std::uint32_t>(prompt[i]) < model.config.vocab) continue;
    throw_input_error("Token {} of the prompt is {}, outside the vocabulary of {}.", i, prompt[i], model.config.vocab);
  }
}

void check_positions(const Model& model, std::size_t prompt_tokens, std::uint32_t new_tokens) {
  if (prompt_tokens + new_tokens <= std::size_t{model.config.max_positions} + 1) return;
  throw_input_error("A prompt of {} tokens and {} new ones do not fit the {} positions of model '{}'.", prompt_tokens,
                    new_tokens, model.config.max_positions, model.name);
}

void check_text_fits(const Model& model, std::string_view text, std::string_view what) {
  constexpr std::size_t kPart = 64 << 10, kBytes = 8;  // a token has fewer, nearly always
  const std::size_t most = model.config.max_positions;
  if (text.size() / kBytes <= most) return;
  std::size_t tokens = 0;
  model.tokenizer->encode_parts(text, kPart, [&](std::span<const std::int32_t> part) {
    tokens += part.size();
    return tokens <= most;
  });
  if (tokens <= most) return;
  throw_input_error(
      "{} has more than {} tokens, and model '{}' has {} positions (max_position_embeddings): shorten it.", what, most,
      model.name, most);
}

void check_going_on(const EngineOptions& options) {
  if (options.interrupted && options.interrupted()) throw Interrupted();
  MappedFile::check_all();
}

}  // namespace tandem
