// The chat template that a model folder holds, run as it is: by Jinja2 in a Python process of its own, as transformers
// 5.24 runs it (docs/chat_templates.md).
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "engine/common/python.h"
#include "engine/model/chat.h"

namespace tandem {

class FolderTemplate {
 public:
  /// The template of `folder`, its process started; nullptr where there is none, or no folder. InputError for files
  /// that cannot be used, a template that cannot be run, and where python3 or Jinja2 is not installed.
  static std::shared_ptr<FolderTemplate> open(const std::filesystem::path& folder);

  /// The text of a conversation, special tokens written out. InputError where the template refuses it, cannot be run,
  /// writes nothing, or exceeds its time or memory; RunError where its process is lost. For several threads.
  std::string render(std::span<const ChatMessage> messages, const ChatOptions& options);

  /// 16 hexadecimal digits of everything that decides the text beside the conversation.
  const std::string& hash() const { return hash_; }

 private:
  FolderTemplate(std::string file, const std::string& text, const std::map<std::string, std::string>& variables);
  std::string ask(const std::string& request);

  const std::string file_;
  std::string hash_;
  std::mutex one_at_a_time_;
  PythonServer process_;
};

/// The special tokens that a folder's files name (bos_token, image_token, ...): a template's variables.
std::map<std::string, std::string> named_special_tokens(const std::filesystem::path& folder);

}  // namespace tandem
