#include "cli/chat_format.h"

#include <algorithm>
#include <memory>

#include "engine/common/error.h"
#include "engine/model/folder_template.h"

namespace tandem::cli {
namespace {

ChatWriter writer_of(const std::string& given, const Model& model) {
  if (!given.empty()) return chat_format_by_name(given);
  std::shared_ptr<FolderTemplate> own = FolderTemplate::open(model.folder);
  if (own == nullptr)
    throw_input_error(
        "Model '{}' has no chat template, so it may not be an instruct model; choose a format with --chat-format: {}.",
        model.name, join_names(chat_format_names()));
  return ChatWriter(std::move(own));
}

}  // namespace

void add_chat_format(Command command, std::string& name) {
  command.option("--chat-format", name,
                 "With --chat: " + join_names(chat_format_names()) + " [the chat template of the model's folder]");
}

void add_no_thinking(Command command, bool& flag) {
  command.flag("--no-thinking", flag, "With --chat: answer without reasoning first (Qwen3 and others that can)");
}

ChatWriter choose_chat_format(const std::string& given, bool no_thinking, Model& model) {
  ChatWriter writer = writer_of(given, model);
  const ChatMessage question{"user", "Why?"};
  if (no_thinking && writer.write({&question, 1}) == writer.write({&question, 1}, {.thinking = false}))
    throw_input_error("--no-thinking changes nothing for model '{}': its chat format has no reasoning to close.",
                      model.name);
  std::vector<std::int32_t>& stops = model.config.stop_tokens;
  const std::int32_t end = writer.end_of_answer(*model.tokenizer);
  if (end >= 0 && std::find(stops.begin(), stops.end(), end) == stops.end()) stops.push_back(end);
  return writer;
}

}  // namespace tandem::cli
