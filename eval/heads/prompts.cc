#include "eval/heads/prompts.h"

#include <algorithm>

#include "engine/common/error.h"
#include "engine/model/utf8.h"
#include "eval/ruler/ruler.h"

namespace tandem::eval {

std::vector<HeadPrompt> ruler_head_prompts(const Model& model, const std::vector<std::string>& tasks,
                                           std::uint32_t length, std::uint32_t samples, std::uint64_t seed) {
  const TokenCounter counter = [&](std::string_view text) {
    return static_cast<std::uint32_t>(model.tokenizer->encode(text, /*add_bos=*/true).size());
  };
  std::vector<HeadPrompt> prompts;
  for (const std::string& task : tasks) {
    for (const RulerSample& sample : make_ruler_samples(task, length, samples, seed, counter)) {
      HeadPrompt prompt;
      prompt.name = fmt::format("{} {}", task, sample.index);
      prompt.tokens = model.tokenizer->encode(sample.prompt, /*add_bos=*/true);
      prompt.first_query = static_cast<std::uint32_t>(prompt.tokens.size() - 1);
      const auto answer = model.tokenizer->encode(" " + sample.answers.front(), /*add_bos=*/false);
      prompt.tokens.insert(prompt.tokens.end(), answer.begin(), answer.end());
      prompts.push_back(std::move(prompt));
    }
  }
  return prompts;
}

std::vector<HeadPrompt> text_head_prompts(const Model& model, std::string_view text, const std::string& name,
                                          std::uint32_t length, std::uint32_t samples) {
  if (const std::size_t valid = valid_utf8_bytes(text); valid < text.size())
    throw_input_error("--text-file '{}': byte {} (0x{:02x}) is no UTF-8. Convert the text first.", name, valid,
                      static_cast<unsigned char>(text[valid]));
  const auto bos = model.tokenizer->encode("", /*add_bos=*/true);
  const auto tokens = model.tokenizer->encode(text, /*add_bos=*/false);
  const std::size_t window = length - bos.size();
  if (tokens.size() < window) {
    throw_input_error("--text-file '{}' has {} tokens, but a window of --length needs {}: give a longer text.", name,
                      tokens.size(), window);
  }
  std::vector<HeadPrompt> prompts;
  for (std::uint32_t i = 0; i < samples; ++i) {
    const std::size_t begin = samples == 1 ? 0 : (tokens.size() - window) * i / (samples - 1);
    HeadPrompt prompt;
    prompt.name = fmt::format("text from token {}", begin);
    prompt.tokens = bos;
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
    prompt.tokens.insert(prompt.tokens.end(), first, first + static_cast<std::ptrdiff_t>(window));
    prompt.first_query = length - 1 - std::min(kTextQueries, length - 1);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace tandem::eval
