#include "engine/model/chat.h"

#include "engine/common/json.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

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

TEST(Chat, AWrongNameIsASentence) {
  EXPECT_THAT(sentence_of([] { chat_format_by_name("lama-3"); }), HasSubstr("Did you mean 'llama-3'?"));
}

}  // namespace
}  // namespace tandem::testing
