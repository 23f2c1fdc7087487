// Writes a model's conversations: by its folder's own template, or in a format of chat.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>

#include "engine/model/chat.h"
#include "engine/model/tokenizer.h"

namespace tandem {

class FolderTemplate;

class ChatWriter {
 public:
  ChatWriter(ChatFormat format) : how_(format) {}  // NOLINT(google-explicit-constructor): a format is a writer
  explicit ChatWriter(std::shared_ptr<FolderTemplate> own) : how_(std::move(own)) {}

  /// The text, special tokens (the begin of the sequence included) written out: to be encoded with Specials::parsed and
  /// without another begin token. InputError for a conversation that it does not take; for several threads.
  std::string write(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;

  /// "qwen2.5", or "folder-" with the template's hash: part of a run's protocol id.
  std::string name() const;
  bool is(ChatFormat format) const;

  /// The special token that it writes behind an answer; -1 where there is none.
  std::int32_t end_of_answer(const Tokenizer& tokenizer) const;

 private:
  std::variant<ChatFormat, std::shared_ptr<FolderTemplate>> how_;
};

}  // namespace tandem
