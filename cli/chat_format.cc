#include "cli/chat_format.h"

#include <cstdio>
#include <fmt/ranges.h>

#include "cli/say.h"
#include "engine/common/error.h"

namespace tandem::cli {

ChatFormat choose_chat_format(const std::string& given, Model& model) {
  const DetectedFormat chosen =
      given.empty() ? detect_chat_format(model.folder, model.config) : DetectedFormat{chat_format_by_name(given), ""};
  const std::int32_t end = model.tokenizer->special(end_of_answer(chosen.format));
  if (end < 0 && given.empty()) {
    throw_input_error(
        "Model '{}' has no chat template, and its tokenizer has no '{}': it may not be an instruct model. Choose a "
        "format with --chat-format: {}.",
        model.name, end_of_answer(chosen.format), fmt::join(chat_format_names(), ", "));
  }
  if (end >= 0) model.config.stop_tokens.push_back(end);
  if (given.empty()) say(chosen.assumption);
  return chosen.format;
}

}  // namespace tandem::cli
