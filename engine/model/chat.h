// Conversations in the form that instruct models were trained on: by their folder's own template (folder_template.h),
// or in a format of published models' templates without tools, against which tests compare them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/model/tokenizer.h"

namespace tandem {

struct ChatMessage {
  std::string role;  // "system" (first only), "user", "assistant"
  std::string content;
};

enum class ChatFormat { llama2, llama3, llama31, qwen2, qwen25, qwen3, smollm2 };

struct ChatOptions {
  bool generate = true;  // end with the opening of the assistant's answer
  bool thinking = true;  // qwen3: false closes the reasoning before it begins; a template's variable enable_thinking
};

/// "llama-2", "llama-3", "llama-3.1" (also 3.2 and 3.3), "qwen2", "qwen2.5", "qwen3", "smollm2". InputError with
/// the nearest name.
ChatFormat chat_format_by_name(std::string_view name);
std::vector<std::string> chat_format_names();
std::string to_string(ChatFormat format);

/// The text, special tokens (the begin of the sequence included) written out: to be encoded with Specials::parsed and
/// without another begin token. InputError for roles in an order that the format does not have.
std::string render_chat(ChatFormat format, std::span<const ChatMessage> messages, const ChatOptions& options = {});

class FolderTemplate;

/// Writes a model's conversations: by its folder's own template, or in one of these formats.
class ChatWriter {
 public:
  ChatWriter(ChatFormat format) : how_(format) {}  // NOLINT(google-explicit-constructor): a format is a writer
  explicit ChatWriter(std::shared_ptr<FolderTemplate> own) : how_(std::move(own)) {}

  /// As render_chat(). InputError for a conversation that it does not take; for several threads.
  std::string write(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;

  std::string name() const;  // "qwen2.5", or "folder-" with the template's hash: part of a run's protocol id
  bool is(ChatFormat format) const;

  /// The special token that it writes behind an answer; -1 where there is none.
  std::int32_t end_of_answer(const Tokenizer& tokenizer) const;

 private:
  std::variant<ChatFormat, std::shared_ptr<FolderTemplate>> how_;
};

}  // namespace tandem
