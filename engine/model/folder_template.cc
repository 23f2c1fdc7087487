#include "engine/model/folder_template.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/model/json_fields.h"
#include "engine/model/safetensors.h"
#include "engine/model/tokenizer_settings.h"
#include "engine/model/utf8.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kScript = "engine/model/folder_template.py";
constexpr std::size_t kLargestTemplate = std::size_t{1} << 22;           // bytes
constexpr std::size_t kLargestAnswer = (std::size_t{64} << 20) * 4 + 1;  // bytes, of the script's characters
// The script has limits of CPU time that end it sooner, however busy the machine is; these are for what takes none.
constexpr std::chrono::seconds kLongestAnswer{30};
// What strftime_now() says: a prompt is the same every day, and Llama 3.1's says this date by default.
constexpr std::array kToday = {2024, 7, 26};

struct Source {
  std::string file, text;
};

std::string template_file(const fs::path& file) {
  std::string text = read_file(file, kLargestTemplate);
  if (valid_utf8_bytes(text) != text.size()) throw_input_error("{}: the chat template is no UTF-8.", file.string());
  return text;
}

/// The template named "default", of those that a field of tokenizer_config.json lists.
const Json* default_of(const Json& field) {
  if (field.is_string()) return &field;
  if (field.is_object()) return field.contains("default") ? &field["default"] : nullptr;
  const Json* found = nullptr;
  for (std::size_t i = 0; field.is_array() && i < field.size(); ++i) {
    const Json& named = field[i];
    if (named.is_object() && named.value("name", Json()) == "default" && named.contains("template"))
      found = &named["template"];
  }
  return found;
}

bool has_templates(const fs::path& folder) {
  std::error_code refused;
  for (fs::directory_iterator at(folder, refused), end; !refused && at != end; at.increment(refused))
    if (at->path().filename().string().ends_with(".jinja")) return true;
  return false;
}

/// In transformers' order: default.jinja, chat_template.jinja, tokenizer_config.json. An empty text: there is none.
Source template_of(const fs::path& folder) {
  if (folder.empty()) return {};
  const fs::path additional = folder / "additional_chat_templates";
  for (const fs::path& file : {additional / "default.jinja", folder / "chat_template.jinja"})
    if (path_exists(file)) return {file.string(), template_file(file)};
  if (has_templates(additional))
    throw_input_error("{} has templates, but none with the name 'default', and there is no {}.", additional.string(),
                      (folder / "chat_template.jinja").string());
  const std::string file = (folder / "tokenizer_config.json").string();
  const Json config = path_exists(file) ? read_json_object(file) : Json::object();
  if (!config.contains("chat_template") || config["chat_template"].is_null()) return {};
  const Json* const text = default_of(config["chat_template"]);
  if (text == nullptr || !text->is_string())
    throw_input_error(
        "{}: field 'chat_template' must be a text, or a list of templates of which one has the name 'default'.", file);
  return {file, text->get<std::string>()};
}

}  // namespace

std::map<std::string, std::string> named_special_tokens(const fs::path& folder) {
  std::optional<TokenizerJsonFacts> facts;
  if (const fs::path file = folder / "tokenizer.json"; path_exists(file))
    facts = TokenizerJsonFacts{is_byte_level(read_file(file, kMostOfTokenizerJson)), {}};
  TokenizerSettings settings = read_tokenizer_settings(folder, facts);
  settings.name_by_class();
  std::map<std::string, std::string> tokens;
  for (const TokenizerSettings::Named& name : settings.named) tokens[name.field] = name.token.text;
  return tokens;
}

std::shared_ptr<FolderTemplate> FolderTemplate::open(const fs::path& folder) {
  const Source source = template_of(folder);
  if (source.text.empty()) return nullptr;
  return std::shared_ptr<FolderTemplate>(new FolderTemplate(source.file, source.text, named_special_tokens(folder)));
}

FolderTemplate::FolderTemplate(std::string file, const std::string& text,
                               const std::map<std::string, std::string>& variables)
    : file_(std::move(file)), process_(kScript) {
  const std::string request = json_text(Json{{"template", text}, {"variables", variables}, {"date", kToday}});
  hash_ = hash_digits(request);
  ask(request);
}

std::string FolderTemplate::render(std::span<const ChatMessage> messages, const ChatOptions& options) {
  if (messages.empty()) throw_input_error("The conversation is empty: it needs at least one message.");
  Json variables = {{"add_generation_prompt", options.generate}};
  if (!options.thinking) variables["enable_thinking"] = false;
  Json list = Json::array();
  for (const ChatMessage& message : messages) list.push_back({{"role", message.role}, {"content", message.content}});
  const std::string request = json_text(Json{{"messages", std::move(list)}, {"variables", variables}});
  const std::lock_guard lock(one_at_a_time_);
  std::string text = ask(request);
  if (text.empty()) throw_input_error("{}: the chat template writes nothing for this conversation.", file_);
  return text;
}

std::string FolderTemplate::ask(const std::string& request) {
  PythonAnswer answer = process_.ask(request, kLargestAnswer, kLongestAnswer);
  constexpr const char* kNeeds =
      "{}: running the chat template needs {}: install the Debian package python3-jinja2, or choose a format with "
      "--chat-format: {}.";
  switch (answer.end) {
    case PythonEnd::done:
      break;
    case PythonEnd::no_package:
      throw_input_error(kNeeds, file_, "Python's jinja2", join_names(chat_format_names()));
    case PythonEnd::not_installed:
      throw_input_error(kNeeds, file_, "python3 and its jinja2", join_names(chat_format_names()));
    case PythonEnd::not_started:
      throw_run_error("No new process could be started: {} was not run.", file_);
    case PythonEnd::failed:
      if (answer.out_of_time) throw_input_error("{}: the chat template takes too long and was stopped.", file_);
      throw_run_error("The process that runs {} ended without an answer.", file_);
  }
  const char kind = answer.text.empty() ? '?' : answer.text[0];
  answer.text.erase(0, 1);
  if (kind == '=') return std::move(answer.text);
  if (answer.text.ends_with('!')) answer.text.pop_back();
  if (!answer.text.ends_with('.') && !answer.text.ends_with('?')) answer.text += '.';
  if (kind == '!') throw_input_error("{}: the chat template refuses this conversation: {}", file_, answer.text);
  throw_input_error("{}: the chat template cannot be run: {}", file_, answer.text);
}

}  // namespace tandem
