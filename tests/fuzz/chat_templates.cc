// A model folder's chat template: the field that holds it, the template itself, and conversations that it writes. Each
// folder costs a Python process, a conversation none.
#include <span>
#include <sstream>

#include "engine/model/folder_template.h"
#include "tests/fuzz/fuzz.h"
#include "tests/golden/golden.h"

namespace tandem::fuzz {
namespace {

void render(const fuzz::ScratchFolder& folder) {
  const auto own = FolderTemplate::open(folder.path());
  const ChatMessage hello{"user", "Hello"};
  if (own != nullptr) own->render({&hello, 1}, {});
}

}  // namespace

int fuzz_chat_templates(int argc, char** argv) {
  const auto golden = [](const char* name) {
    return fuzz::read_seed((testing::golden_folder() / "chat_templates" / name).string());
  };
  const fuzz::ScratchFolder config, file, fixed;
  fixed.write("chat_template.jinja", golden("llama2.jinja"));
  fixed.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const auto own = FolderTemplate::open(fixed.path());
  return fuzz::run(
      argc, argv,
      {{"template.tokenizer_config.json",
        {R"({"bos_token": "<s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}"})",
         R"({"chat_template": [{"name": "rag", "template": "x"}, {"name": "default", "template": "y"}]})",
         R"({"tokenizer_class": "LlamaTokenizer", "chat_template": {"rag": "x", "default": "{{ eos_token }}"}})"},
        [&](const std::string& input) {
          config.write("tokenizer_config.json", input);
          render(config);
        }},
       {"chat_template.jinja",
        {golden("llama31.jinja"), golden("qwen25.jinja"), golden("qwen3.jinja")},
        [&](const std::string& input) {
          file.write("chat_template.jinja", input);
          render(file);
        }},
       // Lines of roles and contents in turns.
       {"conversation",
        {"system\nBe brief.\nuser\nHello", "user\nHello\nassistant\nHi.\nuser\nBye"},
        [&](const std::string& input) {
          std::vector<ChatMessage> messages;
          std::istringstream lines(input);
          for (std::string role, content; std::getline(lines, role); messages.push_back({role, content}))
            std::getline(lines, content);
          own->render(messages, {});
        }}});
}

}  // namespace tandem::fuzz
