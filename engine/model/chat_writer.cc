#include "engine/model/chat_writer.h"

#include <vector>

#include "engine/common/error.h"
#include "engine/model/folder_template.h"

namespace tandem {

std::string ChatWriter::write(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  if (const auto* format = std::get_if<ChatFormat>(&how_)) return render_chat(*format, messages, options);
  return std::get<std::shared_ptr<FolderTemplate>>(how_)->render(messages, options);
}

std::string ChatWriter::name() const {
  if (const auto* format = std::get_if<ChatFormat>(&how_)) return to_string(*format);
  return "folder-" + std::get<std::shared_ptr<FolderTemplate>>(how_)->hash();
}

bool ChatWriter::is(ChatFormat format) const {
  const auto* mine = std::get_if<ChatFormat>(&how_);
  return mine != nullptr && *mine == format;
}

std::int32_t ChatWriter::end_of_answer(const Tokenizer& tokenizer) const {
  const std::string answer = "Forty-two";
  const std::vector<ChatMessage> messages = {{"user", "Six by seven?"}, {"assistant", answer}};
  std::string text;
  try {
    text = write(messages, {.generate = false});
  } catch (const InputError&) {
    return -1;  // a template may refuse a conversation that has ended
  }
  const std::size_t found = text.rfind(answer);
  if (found == std::string::npos) return -1;
  const std::size_t end = text.find_first_not_of(" \n", found + answer.size());
  if (end == std::string::npos) return -1;
  const std::vector<std::int32_t> ids = tokenizer.encode(text.substr(end), /*add_bos=*/false, Specials::parsed);
  if (ids.empty()) return -1;  // bytes that no token stands for
  const std::int32_t token = ids.front();
  const std::string bytes = tokenizer.bytes_of(token, /*first=*/false);
  return bytes.empty() || tokenizer.special(bytes) == token ? token : -1;
}

}  // namespace tandem
