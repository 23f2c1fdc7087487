// Every kind of tokenizer file, and the files that name special tokens beside one; what is accepted must encode and
// decode any text.
#include "engine/model/tokenizer.h"

#include <filesystem>
#include <map>

#include "engine/common/paths.h"
#include "tests/fuzz/fuzz.h"
#include "tests/golden/golden.h"

namespace tandem::fuzz {
namespace {

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

int fuzz_tokenizer(int argc, char** argv) {
  const std::filesystem::path golden = testing::golden_folder() / "tokenizers";
  const fuzz::ScratchFolder json, model, files, named;
  const auto seed = [](const std::filesystem::path& file) { return fuzz::read_seed(file.string()); };
  const auto alone = [](const fuzz::ScratchFolder& folder, const char* name) {
    return [&folder, name](const std::string& input) {
      folder.write(name, input);
      use(folder.path());
    };
  };
  // One of the three is damaged, the others are whole.
  const auto beside_others = [&](const std::string& damaged) {
    return [&, damaged](const std::string& input) {
      for (const std::string name : {"vocab.json", "merges.txt", "tokenizer_config.json"})
        files.write(name, name == damaged ? input : seed(golden / "small_qwen2_files" / name));
      use(files.path());
    };
  };
  std::vector<fuzz::Format> formats = {
      {"tokenizer.json",
       {seed(golden / "small_llama3" / "tokenizer.json"), seed(golden / "small_qwen2" / "tokenizer.json"),
        seed(golden / "small_smollm2" / "tokenizer.json")},
       alone(json, "tokenizer.json")},
      {"tokenizer.model",
       {seed(golden / "small_tiktoken" / "tokenizer.model"), seed(data_path("models/seed") / "tokenizer.model")},
       alone(model, "tokenizer.model")}};
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer_config.json"})
    formats.push_back({name, {seed(golden / "small_qwen2_files" / name)}, beside_others(name)});
  // Files that name special tokens, which count only where there is no added_tokens_decoder.
  named.write("tokenizer.json", seed(golden / "small_llama3" / "tokenizer.json"));
  const std::map<std::string, std::string> settings = {
      {"tokenizer_config.json",
       R"({"pad_token": {"__type": "AddedToken", "content": "<a>"}, "extra_special_tokens": ["<b>"],)"
       R"( "model_specific_special_tokens": {"image_token": "<c>"}})"},
      {"special_tokens_map.json",
       R"({"bos_token": {"content": "<d>", "lstrip": true}, "extra_special_tokens": [{"content": "<e>"}, "<f>"]})"},
      {"added_tokens.json", R"({"<a>": 705, "<g>": 706})"}};
  for (const auto& [damaged, valid] : settings) {
    formats.push_back({"named." + damaged, {valid}, [&, name = damaged](const std::string& input) {
                         for (const auto& [other, whole] : settings) named.write(other, other == name ? input : whole);
                         use(named.path());
                       }});
  }
  return fuzz::run(argc, argv, formats);
}

}  // namespace tandem::fuzz
