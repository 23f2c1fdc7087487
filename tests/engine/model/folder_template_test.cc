#include "engine/model/folder_template.h"

#include <sys/resource.h>
#include <thread>
#include <vector>

#include "engine/model/chat.h"
#include "engine/model/tokenizer.h"
#include "tests/engine/common/own_home.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<ChatMessage> kHello = {{"user", "Hello"}};

const Json& goldens() {
  static const Json json = parse_json(read_bytes(golden_folder() / "chat_templates.json"), "goldens");
  return json;
}

std::string golden_template(const std::string& name) {
  return read_bytes(golden_folder() / "chat_templates" / (name + ".jinja"));
}

/// A folder with this template, which sees these special tokens.
class TemplateFolder {
 public:
  explicit TemplateFolder(const std::string& text, Json variables = Json::object()) {
    write("tokenizer_config.json", json_text(variables));
    write("chat_template.jinja", text);
  }
  void write(const std::string& file, const std::string& bytes) const {
    std::filesystem::create_directories((folder_ / file).parent_path());
    write_bytes(folder_ / file, bytes);
  }
  void remove(const std::string& file) const { std::filesystem::remove_all(folder_ / file); }
  const std::filesystem::path& path() const { return folder_.path(); }
  std::shared_ptr<FolderTemplate> open() const { return FolderTemplate::open(path()); }
  std::string said() const {
    return sentence_of([&] { open()->render(kHello, {}); });
  }

 private:
  TemporaryFolder folder_;
};

std::string rendered(FolderTemplate& own, const Json& golden) {
  std::vector<ChatMessage> messages;
  for (const Json& message : golden.at(0)) messages.push_back({message.at("role"), message.at("content")});
  return own.render(messages, {.generate = golden.at(1), .thinking = golden.at(2).value("enable_thinking", true)});
}

TEST(FolderTemplate, WritesWhatTransformersWrites) {
  const Json& cases = goldens().at("cases");
  EXPECT_GE(cases.size(), 20u);
  EXPECT_GE(goldens().at("templates").size(), 12u);
  for (const auto& [name, golden] : goldens().at("templates").items()) {
    const TemplateFolder folder(golden_template(name), golden.at("variables"));
    const auto own = folder.open();
    int texts = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Json& expected = golden.at("texts").at(i);
      std::string text;
      const std::string refused = sentence_of([&] { text = rendered(*own, cases[i]); });
      if (expected.is_string()) {
        EXPECT_EQ(text, expected.get<std::string>()) << name << ", case " << i << ": " << refused;
        ++texts;
      } else {
        std::string reason = expected.at("refused");
        if (reason.ends_with('!')) reason.pop_back();
        EXPECT_THAT(refused, AllOf(HasSubstr(folder.path().string()), HasSubstr("refuses"), HasSubstr(reason))) << name;
      }
    }
    EXPECT_GE(texts, 20) << name;
  }
}

TEST(FolderTemplate, ItsTextHasTheIdsOfTransformers) {
  for (const auto& [name, golden] : goldens().at("ids").items()) {
    const TemplateFolder folder(golden_template(name), golden.at("variables"));
    const auto own = folder.open();
    const auto tokenizer = load_tokenizer(source_folder() / golden.at("tokenizer").get<std::string>());
    for (const Json& one : golden.at("ids")) {
      const std::string text = rendered(*own, goldens().at("cases").at(one.at(0).get<std::size_t>()));
      EXPECT_EQ(tokenizer->encode(text, /*add_bos=*/false, Specials::parsed),
                one.at(1).get<std::vector<std::int32_t>>())
          << name << ": " << text;
    }
  }
}

TEST(FolderTemplate, SpecialTokensAreThoseThatTransformersPasses) {
  EXPECT_GE(goldens().at("folders").size(), 12u);
  for (const Json& golden : goldens().at("folders")) {
    const TemporaryFolder folder;
    write_bytes(folder / "tokenizer_config.json", json_text(golden.at("config")));
    if (!golden.at("map").is_null()) write_bytes(folder / "special_tokens_map.json", json_text(golden.at("map")));
    EXPECT_EQ(Json(named_special_tokens(folder.path())), golden.at("variables")) << golden;
  }
}

TEST(FolderTemplate, AByteLevelTokenizerHasNoNamesOfLlamas) {
  using Names = std::map<std::string, std::string>;
  const TemporaryFolder folder;
  write_bytes(folder / "tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer", "eos_token": "<b>"})");
  EXPECT_EQ(named_special_tokens(folder.path()),
            (Names{{"bos_token", "<s>"}, {"eos_token", "<b>"}, {"unk_token", "<unk>"}}));
  write_bytes(folder / "tokenizer.json", R"({"decoder": {"type": "ByteLevel"}})");
  EXPECT_EQ(named_special_tokens(folder.path()), (Names{{"eos_token", "<b>"}}));
}

TEST(FolderTemplate, TheTemplateIsTheOneThatTransformersTakes) {
  const TemplateFolder folder("file");
  const auto text = [&] { return folder.open()->render(kHello, {}); };
  folder.write("tokenizer_config.json", R"({"chat_template": "field"})");
  EXPECT_EQ(text(), "file");
  folder.write("additional_chat_templates/rag.jinja", "rag");
  EXPECT_EQ(text(), "file");
  folder.write("additional_chat_templates/default.jinja", "additional");
  EXPECT_EQ(text(), "additional");
  folder.remove("additional_chat_templates/default.jinja");
  folder.remove("chat_template.jinja");
  EXPECT_THAT(folder.said(), AllOf(HasSubstr("additional_chat_templates"), HasSubstr("'default'")));
  folder.remove("additional_chat_templates");
  EXPECT_EQ(text(), "field");
  const auto field = [&](const std::string& json) {
    folder.write("tokenizer_config.json", R"({"chat_template": )" + json + "}");
  };
  field(R"([{"name": "tool_use", "template": "x"}, {"name": "default", "template": "named"}])");
  EXPECT_EQ(text(), "named");
  field(R"({"rag": "x", "default": "by name"})");
  EXPECT_EQ(text(), "by name");
  for (const char* none :
       {"[]", "7", "{}", R"([{"name": "tool_use", "template": "x"}])", R"([{"name": "default", "template": 7}])"}) {
    field(none);
    EXPECT_THAT(folder.said(), AllOf(HasSubstr("'chat_template'"), HasSubstr("tokenizer_config.json"))) << none;
  }
  field("null");
  EXPECT_EQ(folder.open(), nullptr);
  folder.remove("tokenizer_config.json");
  EXPECT_EQ(folder.open(), nullptr);
  EXPECT_EQ(FolderTemplate::open(""), nullptr) << "a model in memory has no files, here or elsewhere";
}

TEST(FolderTemplate, TheHashTellsTextsAndSpecialTokensApart) {
  const auto hash = [](const std::string& text, const Json& variables) {
    return TemplateFolder(text, variables).open()->hash();
  };
  const Json begin = {{"bos_token", "<s>"}};
  EXPECT_EQ(hash("a", begin), hash("a", begin));
  EXPECT_NE(hash("a", begin), hash("b", begin));
  EXPECT_NE(hash("a", begin), hash("a", {{"bos_token", "<b>"}}));
  EXPECT_EQ(hash("a", begin).size(), 16u);
}

/// CPU time of processes that have ended: on a busy machine a clock on the wall says nothing.
double seconds_of_children() {
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) * 1e-6; };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

TEST(FolderTemplate, HostileTemplatesEndInASentence) {
  const std::string many = "{% for i in range(100000) %}", end = "{% endfor %}";
  const std::pair<std::string, const char*> hostile[] = {
      {many + many + end + end, "takes too long"},
      {"{{ 9 ** (9 ** 9) }}", "takes too long"},
      {"{{ range(1000000000) }}", "cannot be run"},
      {"{{ 'x' * 1000000000 }}", "memory"},
      {"{% set x %}" + many + "{{ 'x' * 100000 }}" + end + "{% endset %}", "memory"},
      {many + "{{ 'x' * 10000 }}" + end, "writes more than"},
      {"{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"},
      {"{{ cycler.__init__.__globals__.os.popen('id').read() }}", "unsafe"},
      {"{{ raise_exception.__globals__ }}", "writes nothing"},
      {"{{ '{0.__class__.__mro__}'.format(1) }}", "cannot be run"},
      {"{{ messages.append(messages) }}", "unsafe"},
      {"{% set ns = namespace(__init__=1) %}", "underscore"},
      {"{% include '/etc/passwd' %}", "cannot be run"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"},
      {"{{ " + std::string(5000, '(') + std::string(5000, ')') + " }}", "recursion"},
      {"{{ 1 + }}", "line 1"},
      {"x\n{% if %}", "line 2"},
      {"{{ nothing.at_all }}", "'nothing' is undefined"},
      {"{{ '\\ud800' }}", "surrogate"},
      {"{{ raise_exception('\x1b[31m no\n') }}", "refuses this conversation: [31m no."},
      {"", "no chat template"},
      {"\xff", "no UTF-8"},
  };
  for (const auto& [text, why] : hostile) {
    const double before = seconds_of_children();
    const TemplateFolder folder(text);
    const std::string said = text.empty() && folder.open() == nullptr ? "no chat template" : folder.said();
    EXPECT_THAT(said, HasSubstr(why)) << text;
    EXPECT_LT(said.size(), 600u);
    EXPECT_LT(seconds_of_children() - before, 5) << text;
  }
}

TEST(FolderTemplate, OneThatFailsOnceStillRenders) {
  const TemplateFolder folder("{{ raise_exception('no') if messages[0].content == 'x' }}{{ messages[0].content }}");
  const auto own = folder.open();
  EXPECT_THAT(sentence_of([&] { own->render(std::vector<ChatMessage>{{"user", "x"}}, {}); }), HasSubstr(": no."));
  EXPECT_EQ(own->render(kHello, {}), "Hello");
  EXPECT_THAT(sentence_of([&] { own->render({}, {}); }), HasSubstr("empty"));
}

TEST(FolderTemplate, ThreadsGetTheirOwnTexts) {
  const TemplateFolder folder("{{ messages[0].content }}");
  const auto own = folder.open();
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<ChatMessage> mine = {
          {"user", std::string(static_cast<std::size_t>(10'000 * t) + 1, char('a' + t))}};
      for (int i = 0; i < 50; ++i) EXPECT_EQ(own->render(mine, {}), mine[0].content);
    });
  }
}

TEST(FolderTemplate, WithoutJinjaThePackageIsNamed) {
  const TemplateFolder folder("x");
  const OwnHome home;
  home.use();
  home.write("engine/model/folder_template.py", "import sys; sys.exit(4)");
  EXPECT_THAT(folder.said(), AllOf(HasSubstr("python3-jinja2"), HasSubstr("--chat-format"), HasSubstr("llama-3.1")));
  home.write("engine/model/folder_template.py", "import sys; sys.exit(1)");
  EXPECT_THROW(folder.open(), RunError);
}

TEST(ChatWriter, ANameAndTheEndOfAnAnswerComeFromEither) {
  const auto tokenizer = load_tokenizer(golden_folder() / "tokenizers/small_qwen2");
  const std::int32_t end = tokenizer->special("<|im_end|>");
  ASSERT_GE(end, 0);
  const ChatWriter format = ChatFormat::qwen25;
  EXPECT_EQ(format.name(), "qwen2.5");
  EXPECT_EQ(format.end_of_answer(*tokenizer), end);
  EXPECT_EQ(ChatWriter(ChatFormat::llama3).end_of_answer(*tokenizer), -1) << "its end is no token here";
  for (const char* name : {"qwen3", "smollm2"}) {
    const TemplateFolder folder(golden_template(name));
    const ChatWriter own(folder.open());
    EXPECT_THAT(own.name(), ::testing::MatchesRegex("folder-[0-9a-f]{16}"));
    EXPECT_FALSE(own.is(ChatFormat::qwen25));
    EXPECT_EQ(own.end_of_answer(*tokenizer), end) << name;
  }
  const TemplateFolder plain("{{ messages[-1].content }}"), refusing("{{ raise_exception('never') }}");
  EXPECT_EQ(ChatWriter(plain.open()).end_of_answer(*tokenizer), -1);
  EXPECT_EQ(ChatWriter(refusing.open()).end_of_answer(*tokenizer), -1);
  const TemplateFolder lost("{{ messages[-1].content }}\x01");
  EXPECT_EQ(ChatWriter(lost.open()).end_of_answer(*load_tokenizer(golden_folder() / "tokenizers/small_smollm2")), -1);
}

TEST(ChatWriter, FormatsEndAnAnswerWithTheirToken) {
  const auto llama = load_tokenizer(golden_folder() / "tokenizers/small_llama3");
  for (const ChatFormat format : {ChatFormat::llama3, ChatFormat::llama31})
    EXPECT_EQ(ChatWriter(format).end_of_answer(*llama), llama->special("<|eot_id|>"));
  const auto pieces = load_tokenizer(source_folder() / "models/seed");
  EXPECT_EQ(ChatWriter(ChatFormat::llama2).end_of_answer(*pieces), pieces->special("</s>"));
}

}  // namespace
}  // namespace tandem::testing
