// Every kind of tokenizer file; one that is accepted must encode and decode any text.
#include <filesystem>

#include "engine/common/paths.h"
#include "engine/model/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/golden/golden.h"

namespace {

using namespace tandem;

void use(const std::string& folder) {
  const auto tokenizer = load_tokenizer(folder);
  const std::string text = "Hello  wörld 1234\n<|im_end|> \xff\xf0\x9f 你好 e\xcc\x81 </s>=\x01=\x1b\u05d0";
  for (const Specials specials : {Specials::as_text, Specials::parsed}) {
    const auto ids = tokenizer->encode(text, true, specials);
    tokenizer->decode(ids);
    StreamingDecoder stream(*tokenizer);
    for (const std::int32_t id : ids) stream.push(id);
    stream.finish();
  }
  tokenizer->special("<|im_end|>");
  tokenizer->hash();
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path golden = testing::golden_folder() / "tokenizers";
  // The first byte of an input says which file it is.
  const std::vector<std::pair<const char*, std::filesystem::path>> files = {
      {"tokenizer.json", golden / "small_llama3" / "tokenizer.json"},
      {"tokenizer.json", golden / "small_qwen2" / "tokenizer.json"},
      {"vocab.json", golden / "small_qwen2_files" / "vocab.json"},
      {"merges.txt", golden / "small_qwen2_files" / "merges.txt"},
      {"tokenizer_config.json", golden / "small_qwen2_files" / "tokenizer_config.json"},
      {"tokenizer.model", golden / "small_tiktoken" / "tokenizer.model"},
      {"tokenizer.model", data_path("models/seed") / "tokenizer.model"},
      {"tokenizer.json", golden / "small_smollm2" / "tokenizer.json"},
  };
  fuzz::Target target;
  for (std::size_t i = 0; i < files.size(); ++i)
    target.seeds.push_back(static_cast<char>('a' + i) + fuzz::read_seed(files[i].second.string()));
  std::vector<std::unique_ptr<fuzz::ScratchFolder>> folders;
  for (const auto& file : files) {
    folders.push_back(std::make_unique<fuzz::ScratchFolder>());
    for (const char* beside : {"vocab.json", "merges.txt", "tokenizer_config.json"}) {
      const std::filesystem::path other = golden / "small_qwen2_files" / beside;
      const std::string name = file.first;
      if (name == "vocab.json" || name == "merges.txt" || name == "tokenizer_config.json")
        folders.back()->write(beside, fuzz::read_seed(other.string()));
    }
  }
  target.consume = [&](const std::string& input) {
    if (input.empty()) return;
    const std::size_t kind = static_cast<unsigned char>(input[0]) % files.size();
    const std::size_t which = input[0] >= 'a' && input[0] < static_cast<char>('a' + files.size())
                                  ? static_cast<std::size_t>(input[0] - 'a')
                                  : kind;
    folders[which]->write(files[which].first, input.substr(1));
    use(folders[which]->path());
  };
  return fuzz::run(argc, argv, target);
}
