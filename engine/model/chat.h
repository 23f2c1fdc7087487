// Conversations in the form that instruct models were trained on. The formats are those of the published models' chat
// templates without tools; tests compare them with what the templates write.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/config.h"

namespace tandem {

struct ChatMessage {
  std::string role;  // "system" (first only), "user", "assistant"
  std::string content;
};

enum class ChatFormat { llama2, llama3, llama31, qwen2, qwen25, qwen3, smollm2 };

struct ChatOptions {
  bool generate = true;  // end with the opening of the assistant's answer
  bool thinking = true;  // qwen3: false closes the reasoning before it begins
  // llama31: stands in every system message. The models' own default, fixed, so that a prompt is the same every day.
  std::string date = "26 Jul 2024";
};

/// "llama-2", "llama-3", "llama-3.1" (also 3.2 and 3.3), "qwen2", "qwen2.5", "qwen3", "smollm2". InputError with
/// the nearest name.
ChatFormat chat_format_by_name(std::string_view name);
std::vector<std::string> chat_format_names();
std::string to_string(ChatFormat format);

/// The special token with which an answer ends.
std::string_view end_of_answer(ChatFormat format);

struct DetectedFormat {
  ChatFormat format = ChatFormat::llama2;
  std::string assumption;  // a sentence for the user: what the format was taken from, and that it may be wrong
};

/// By the marks of the template in tokenizer_config.json or chat_template.jinja; where there is none, by the model
/// type. A template is not run, and one that has a known one's marks may still write something else: hence
/// `assumption`. InputError for a template without known marks, and for a folder that says nothing.
DetectedFormat detect_chat_format(const std::filesystem::path& folder, const ModelConfig& config);

/// The text, special tokens (the begin of the sequence included) written out: to be encoded with Specials::parsed and
/// without another begin token. InputError for roles in an order that the format does not have.
std::string render_chat(ChatFormat format, std::span<const ChatMessage> messages, const ChatOptions& options = {});

}  // namespace tandem
