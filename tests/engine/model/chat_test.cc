#include "engine/model/chat.h"

#include "engine/common/json.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<ChatMessage> messages_of(const Json& list) {
  std::vector<ChatMessage> messages;
  for (const Json& m : list) messages.push_back({m.at("role"), m.at("content")});
  return messages;
}

TEST(Chat, IsWhatTheOfficialTemplatesWrite) {
  const Json cases = parse_json(read_bytes(golden_folder() / "chat.json"), "JSON");
  EXPECT_GT(cases.size(), 90u);
  for (const Json& c : cases) {
    ChatOptions options;
    options.generate = c.at("generate");
    options.thinking = c.value("enable_thinking", true);
    EXPECT_EQ(
        render_chat(chat_format_by_name(c.at("format").get<std::string>()), messages_of(c.at("messages")), options),
        c.at("text").get<std::string>())
        << c.at("format") << " " << c.at("messages");
  }
}

TEST(Chat, RolesOutOfPlaceAreSentences) {
  const auto said = [](ChatFormat format, std::vector<ChatMessage> messages) {
    return sentence_of([&] { render_chat(format, messages); });
  };
  for (const ChatFormat format : {ChatFormat::llama2, ChatFormat::llama31, ChatFormat::qwen3}) {
    EXPECT_THAT(said(format, {}), HasSubstr("empty"));
    EXPECT_THAT(said(format, {{"User", "x"}}), HasSubstr("'User'"));
    EXPECT_THAT(said(format, {{"user", "x"}, {"system", "y"}}), HasSubstr("only be the first"));
  }
  EXPECT_THAT(said(ChatFormat::llama2, {{"user", "x"}, {"user", "y"}}), HasSubstr("take turns"));
  EXPECT_THAT(said(ChatFormat::llama2, {{"assistant", "x"}}), HasSubstr("take turns"));
}

TEST(Chat, TheFormatIsFoundByItsMarks) {
  const TemporaryFolder folder;
  ModelConfig config;
  config.architecture = "llama";
  const auto detect = [&](const std::string& text) {
    write_bytes(folder.path() / "tokenizer_config.json", Json{{"chat_template", text}}.dump());
    return detect_chat_format(folder.path(), config).format;
  };
  EXPECT_EQ(detect("<|start_header_id|>"), ChatFormat::llama3);
  EXPECT_EQ(detect("<|start_header_id|> Cutting Knowledge Date: "), ChatFormat::llama31);
  EXPECT_EQ(detect("[INST] <<SYS>>"), ChatFormat::llama2);
  EXPECT_EQ(detect("<|im_start|> You are a helpful assistant."), ChatFormat::qwen2);
  EXPECT_EQ(detect("<|im_start|> You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
            ChatFormat::qwen25);
  EXPECT_EQ(detect("<|im_start|> enable_thinking"), ChatFormat::qwen3);
  EXPECT_EQ(detect("<|im_start|> You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
            ChatFormat::smollm2);
  EXPECT_THAT(sentence_of([&] { detect("<start_of_turn>"); }),
              AllOf(HasSubstr("none of the known"), HasSubstr("llama-3.1")));
  EXPECT_THAT(sentence_of([&] { detect(""); }), HasSubstr("no chat template"));
  const auto list = [&](const std::string& templates) {
    write_bytes(folder.path() / "tokenizer_config.json", "{\"chat_template\": " + templates + "}");
    return detect_chat_format(folder.path(), config).format;
  };
  EXPECT_EQ(list(R"([{"name": "tool_use", "template": "<|im_start|> enable_thinking"},
                     {"name": "default", "template": "[INST] <<SYS>>"}])"),
            ChatFormat::llama2);
  for (const char* none : {"[]", "7", R"([{"name": "tool_use", "template": "x"}])"})
    EXPECT_THAT(sentence_of([&] { list(none); }), HasSubstr("'chat_template'")) << none;
  config.architecture = "qwen3";
  EXPECT_EQ(detect(""), ChatFormat::qwen3);
  EXPECT_EQ(detect_chat_format("", config).format, ChatFormat::qwen3)
      << "a model in memory has no files, here or elsewhere";
  write_bytes(folder.path() / "chat_template.jinja", "<|start_header_id|>");  // newer files keep it here
  EXPECT_EQ(detect("[INST] <<SYS>>"), ChatFormat::llama3);
  EXPECT_THAT(detect_chat_format(folder.path(), config).assumption,
              AllOf(HasSubstr(folder.path().string()), HasSubstr("looks like llama-3's"), HasSubstr("--chat-format")));
  EXPECT_THAT(detect_chat_format("", config).assumption, AllOf(HasSubstr("qwen3"), HasSubstr("--chat-format")));
  EXPECT_THAT(sentence_of([] { chat_format_by_name("lama-3"); }), HasSubstr("Did you mean 'llama-3'?"));
}

}  // namespace
}  // namespace tandem::testing
