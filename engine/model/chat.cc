#include "engine/model/chat.h"

#include <algorithm>

#include "engine/common/error.h"
#include "engine/common/trimmed.h"
#include "engine/model/folder_template.h"

namespace tandem {
namespace {

using Messages = std::span<const ChatMessage>;

// Stands in every system message of Llama 3.1: the models' own default, so that a prompt is the same every day.
constexpr const char* kDate = "26 Jul 2024";

struct Name {
  const char* name;
  ChatFormat format;
};
constexpr Name kNames[] = {
    {"llama-2", ChatFormat::llama2},    {"llama-3", ChatFormat::llama3},    {"llama-3.1", ChatFormat::llama31},
    {"llama-3.2", ChatFormat::llama31}, {"llama-3.3", ChatFormat::llama31}, {"qwen2", ChatFormat::qwen2},
    {"qwen2.5", ChatFormat::qwen25},    {"qwen3", ChatFormat::qwen3},       {"smollm2", ChatFormat::smollm2}};

/// White space as Python's str.strip() and Jinja's trim have it, as far as one byte goes.
std::string_view stripped(std::string_view text) {
  return trimmed(text, " \t\n\v\f\r\x1c\x1d\x1e\x1f");
}

std::string_view without_newlines(std::string_view text, bool left, bool right) {
  while (left && text.starts_with('\n')) text.remove_prefix(1);
  while (right && text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

void check_roles(Messages messages, bool alternating) {
  if (messages.empty()) throw_input_error("The conversation is empty: it needs at least one message.");
  std::size_t turn = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant")
      throw_input_error("Message {} has the role '{}': there are system, user and assistant.", i, role);
    if (role == "system") {
      if (i != 0) throw_input_error("Message {} is the system's, which may only be the first.", i);
      continue;
    }
    if (alternating && (role == "user") != (turn % 2 == 0))
      throw_input_error("Message {} is the {}'s, but in this format user and assistant take turns.", i, role);
    ++turn;
  }
}

std::string llama2(Messages messages) {
  std::string out, system;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& m = messages[i];
    if (m.role == "system") {
      system = "<<SYS>>\n" + m.content + "\n<</SYS>>\n\n";
    } else if (m.role == "user") {
      out += fmt::format("<s>[INST] {} [/INST]", stripped(system + m.content));
      system.clear();
    } else {
      out += fmt::format(" {} </s>", stripped(m.content));
    }
  }
  return out;
}

std::string llama3(Messages messages, const ChatOptions& options, bool with_date) {
  std::string out = "<|begin_of_text|>";
  const auto add = [&out](std::string_view role, std::string_view content) {
    out += fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>", role, content);
  };
  if (with_date) {
    const bool given = messages[0].role == "system";
    add("system", fmt::format("Cutting Knowledge Date: December 2023\nToday Date: {}\n\n{}", kDate,
                              given ? stripped(messages[0].content) : std::string_view()));
    if (given) messages = messages.subspan(1);
  }
  for (const ChatMessage& m : messages) add(m.role, stripped(m.content));
  if (options.generate) out += "<|start_header_id|>assistant<|end_header_id|>\n\n";
  return out;
}

std::string chatml(std::string_view role, std::string_view content) {
  return fmt::format("<|im_start|>{}\n{}<|im_end|>\n", role, content);
}

/// Qwen2's, Qwen2.5's and SmolLM2's, which differ in what they say where the conversation has no system message.
std::string plain_chatml(Messages messages, const ChatOptions& options, std::string_view default_system) {
  std::string out;
  if (messages[0].role != "system") out += chatml("system", default_system);
  for (const ChatMessage& m : messages) out += chatml(m.role, m.content);
  if (options.generate) out += "<|im_start|>assistant\n";
  return out;
}

/// An answer's reasoning, "<think>...</think>", is kept only behind the last question.
std::string qwen3_answer(const ChatMessage& m, bool behind_last_question, bool last) {
  std::string_view content = m.content, reasoning;
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  if (const std::size_t first = content.find(kClose); first != std::string_view::npos) {
    reasoning = without_newlines(content.substr(0, first), false, true);
    if (const std::size_t open = reasoning.rfind(kOpen); open != std::string_view::npos)
      reasoning.remove_prefix(open + kOpen.size());
    reasoning = without_newlines(reasoning, true, false);
    content = without_newlines(content.substr(content.rfind(kClose) + kClose.size()), true, false);
  }
  if (!behind_last_question || (!last && stripped(reasoning).empty())) return chatml("assistant", content);
  return chatml("assistant", fmt::format("<think>\n{}\n</think>\n\n{}", without_newlines(reasoning, true, true),
                                         without_newlines(content, true, false)));
}

std::string qwen3(Messages messages, const ChatOptions& options) {
  std::size_t last_question = messages.size() - 1;
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string& text = messages[i].content;
    const bool tool = text.starts_with("<tool_response>") && text.ends_with("</tool_response>");
    if (messages[i].role == "user" && !tool) {
      last_question = i;
      break;
    }
  }
  std::string out;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& m = messages[i];
    out += m.role == "assistant" ? qwen3_answer(m, i > last_question, i + 1 == messages.size())
                                 : chatml(m.role, m.content);
  }
  if (options.generate)
    out += options.thinking ? "<|im_start|>assistant\n" : "<|im_start|>assistant\n<think>\n\n</think>\n\n";
  return out;
}

}  // namespace

std::vector<std::string> chat_format_names() {
  std::vector<std::string> names;
  for (const Name& n : kNames) names.emplace_back(n.name);
  return names;
}

std::string to_string(ChatFormat format) {
  return std::ranges::find_if(kNames, [format](const Name& n) { return n.format == format; })->name;
}

ChatFormat chat_format_by_name(std::string_view name) {
  for (const Name& n : kNames)
    if (n.name == name) return n.format;
  const std::vector<std::string> names = chat_format_names();
  throw_input_error("There is no chat format '{}'.{} There are {}.", name, did_you_mean(name, names),
                    join_names(names));
}

std::string render_chat(ChatFormat format, Messages messages, const ChatOptions& options) {
  check_roles(messages, format == ChatFormat::llama2);
  switch (format) {
    case ChatFormat::llama2:
      return llama2(messages);
    case ChatFormat::llama3:
      return llama3(messages, options, false);
    case ChatFormat::llama31:
      return llama3(messages, options, true);
    case ChatFormat::qwen2:
      return plain_chatml(messages, options, "You are a helpful assistant.");
    case ChatFormat::qwen25:
      return plain_chatml(messages, options, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
    case ChatFormat::qwen3:
      return qwen3(messages, options);
    case ChatFormat::smollm2:
      return plain_chatml(messages, options, "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
  }
  return {};
}

std::string ChatWriter::write(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  if (const auto* format = std::get_if<ChatFormat>(&how_)) return render_chat(*format, messages, options);
  return std::get<1>(how_)->render(messages, options);
}

std::string ChatWriter::name() const {
  if (const auto* format = std::get_if<ChatFormat>(&how_)) return to_string(*format);
  return "folder-" + std::get<1>(how_)->hash();
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
