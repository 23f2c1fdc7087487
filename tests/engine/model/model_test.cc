#include "engine/model/model.h"

#include <fstream>
#include <vector>

#include "engine/common/paths.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class WorkingFolder {  // changes into a folder and back
 public:
  explicit WorkingFolder(const fs::path& to) : before_(fs::current_path()) { fs::current_path(to); }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;
  ~WorkingFolder() { fs::current_path(before_); }

 private:
  fs::path before_;
};

TEST(LoadModel, TheEmbeddedModelIsComplete) {
  const Model model = load_model("embedded");
  EXPECT_EQ(model.name, "embedded");
  EXPECT_EQ(model.folder, data_path("models") / kEmbeddedModel);
  EXPECT_EQ(model.config.layers, model.weights.layers.size());
  EXPECT_EQ(model.tokenizer->vocab_size(), model.config.vocab);
  EXPECT_EQ(model.tokenizer->bos(), model.config.bos);
  EXPECT_EQ(model.weights.embedding.type, DType::bf16);
  // 5.4 million parameters of two bytes: 2048*256 + 256 + 6 * (819,200 matrices' + 640 norms') by hand.
  const std::size_t layer = 512 * 256 * 2 + 128 * 256 * 2 + 3 * 256 * 640 + 2 * 256 + 2 * 64;
  EXPECT_EQ(model.weights.bytes(), 2 * (std::size_t{2048} * 256 + 256 + 6 * layer));
  EXPECT_THAT(model.weights_hash, ::testing::MatchesRegex("[0-9a-f]{16}"));
  const Model by_name = load_model(kEmbeddedModel), by_path = load_model(model.folder.string() + "/");
  EXPECT_EQ(by_name.name, kEmbeddedModel);
  EXPECT_EQ(by_path.name, kEmbeddedModel);
  EXPECT_EQ(by_name.weights_hash, model.weights_hash);
  EXPECT_EQ(by_path.weights_hash, model.weights_hash);
  EXPECT_EQ(by_path.config_hash, model.config_hash);
}

TEST(LoadModel, EveryShippedModelIsWholeAndSmall) {
  std::vector<std::string> names;
  for (const auto& folder : fs::directory_iterator(data_path("models"))) {
    if (!fs::exists(folder.path() / "config.json")) continue;
    names.push_back(folder.path().filename().string());
    SCOPED_TRACE(names.back());
    const Model model = load_model(names.back());
    EXPECT_EQ(model.folder, folder.path());
    EXPECT_EQ(model.config.q_heads, 4 * model.config.kv_heads);
    EXPECT_EQ(model.config.head_dim, 64u);
    EXPECT_EQ(model.tokenizer->vocab_size(), model.config.vocab);
    EXPECT_LE(model.weights.bytes(), names.back() == "tiny" ? 2'000'000u : 25'000'000u);
    for (const auto& file : fs::directory_iterator(folder.path()))
      if (file.is_regular_file()) {
        EXPECT_LE(file.file_size(), 12'000'000u) << file.path();
      }
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("seed", "deep", "tiny"));
}

TEST(LoadModel, FoldersHaveTheirOwnNames) {
  const WorkingFolder here(golden_folder() / "tiny_llama");
  EXPECT_EQ(load_model(".", false).name, "tiny_llama");
  EXPECT_EQ(load_model("../tiny_qwen3/", false).name, "tiny_qwen3");
  EXPECT_NE(load_model(".", false).weights_hash, load_model("../tiny_qwen3", false).weights_hash);
}

TEST(LoadModel, AnEditedConfigurationIsAnotherModel) {
  const TemporaryFolder copy;
  fs::copy(golden_folder() / "tiny_llama", copy.path() / "model");
  const Model before = load_model(copy.path() / "model", false);
  const fs::path file = copy.path() / "model" / "config.json";
  std::string text = read_bytes(file);
  std::ofstream(file) << "\n " << text;
  EXPECT_EQ(load_model(copy.path() / "model", false).config_hash, before.config_hash) << "other spaces";
  const std::string theta = "\"rope_theta\": ";
  const std::size_t at = text.find(theta);
  ASSERT_NE(at, std::string::npos) << text;
  std::ofstream(file) << text.insert(at + theta.size(), "9");
  const Model after = load_model(copy.path() / "model", false);
  EXPECT_EQ(after.weights_hash, before.weights_hash);
  EXPECT_NE(after.config_hash, before.config_hash);
}

TEST(LoadModel, ABareNameIsTheShippedModel) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "seed");  // empty: loading it would fail
  const WorkingFolder here(folder.path());
  EXPECT_EQ(load_model("seed").config.layers, 4u);
  EXPECT_THAT(sentence_of([] { load_model("./seed"); }), HasSubstr("config.json"));
  fs::copy(golden_folder() / "tiny_qwen3", folder.path() / "recipe");  // no shipped model has that name
  EXPECT_EQ(load_model("recipe", false).config.vocab, 128u);
}

TEST(LoadModel, UnknownNamesAreSentences) {
  EXPECT_THAT(sentence_of([] { load_model("embeded"); }), HasSubstr("Did you mean 'embedded'?"));
  EXPECT_THAT(sentence_of([] { load_model("sead"); }), AllOf(HasSubstr("Did you mean 'seed'?"), HasSubstr("embedded")));
  EXPECT_THAT(sentence_of([] { load_model("no/such/folder/anywhere/at/all"); }), HasSubstr("There is no model"));
  const std::string file = (data_path("models/seed") / "config.json").string();
  EXPECT_THAT(sentence_of([&] { load_model(file); }), HasSubstr("is a file"));
  for (const std::string& name : {std::string(), std::string(5000, 'a')}) {
    EXPECT_THAT(sentence_of([&] { load_model(name); }), HasSubstr("There is no model")) << name.size();
  }
}

TEST(LoadModel, PointersOfGitLfsAreNoFiles) {
  for (const char* pointer : {"config.json", "model.safetensors", "tokenizer.model"}) {
    const TemporaryFolder folder;
    for (const char* file : {"config.json", "model.safetensors", "tokenizer.model"})
      fs::copy_file(data_path("models/tiny") / file, folder.path() / file);
    write_bytes(folder.path() / pointer, "version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 1234\n");
    EXPECT_THAT(sentence_of([&] { load_model(folder.path().string()); }),
                AllOf(HasSubstr(pointer), HasSubstr("is a pointer of Git LFS")));
  }
}

TEST(LoadModel, ATokenizerMustFitTheModel) {
  const TemporaryFolder folder;
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy_file(golden_folder() / "tiny_qwen3" / file, folder.path() / file);
  }
  const std::string name = folder.path().string();
  EXPECT_EQ(load_model(name, false).tokenizer, nullptr);
  EXPECT_THAT(sentence_of([&] { load_model(name); }), HasSubstr("has no tokenizer: neither tokenizer.model"));
  fs::copy_file(data_path("models/seed") / "tokenizer.model", folder.path() / "tokenizer.model");
  EXPECT_THAT(sentence_of([&] { load_model(name); }), AllOf(HasSubstr("tokenizer.model"), HasSubstr("LlamaTokenizer")))
      << "transformers would read it as Qwen2Tokenizer";
  write_bytes(folder.path() / "tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  EXPECT_THAT(sentence_of([&] { load_model(name); }), AllOf(HasSubstr("2048 pieces"), HasSubstr("128")));
}

}  // namespace
}  // namespace tandem::testing
