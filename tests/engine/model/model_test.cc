#include "engine/model/model.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "engine/model/safetensors.h"
#include "tests/golden/golden.h"

namespace tandem::testing {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

/// A copy of the tiny Qwen3 golden model that tests may damage.
class DamagedModel : public ::testing::Test {
 protected:
  DamagedModel() {
    folder_ = fs::temp_directory_path() / fs::path("tandem-model-test-XXXXXX");
    std::string name = folder_.string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy_file(golden_folder() / "tiny_qwen3" / file, folder_ / file);
  }
  ~DamagedModel() override { fs::remove_all(folder_); }

  std::string error() const {
    try {
      load_model(folder_.string(), /*with_tokenizer=*/false);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  }
  void edit_config(const std::function<void(Json&)>& edit) {
    Json json = Json::parse(read(golden_folder() / "tiny_qwen3" / "config.json"));
    edit(json);
    write(folder_ / "config.json", json.dump());
  }
  /// Rewrites the safetensors header, bytes untouched.
  void edit_header(const std::function<void(Json&)>& edit) {
    const std::string all = read(golden_folder() / "tiny_qwen3" / "model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, all.data(), 8);
    Json header = Json::parse(all.substr(8, length));
    edit(header);
    write_header(header.dump(), all.substr(8 + length));
  }
  void write_header(const std::string& header, const std::string& body) {
    const std::uint64_t length = header.size();
    write(folder_ / "model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + header + body);
  }
  fs::path folder_;
};

TEST_F(DamagedModel, TheUntouchedCopyLoads) {
  EXPECT_EQ(error(), "");
}

TEST_F(DamagedModel, EveryBadConfigFieldIsNamed) {
  const struct {
    const char* field;
    Json value;
  } cases[] = {{"num_hidden_layers", 0},
               {"num_hidden_layers", -3},
               {"num_hidden_layers", 1e30},
               {"num_hidden_layers", "two"},
               {"hidden_size", nullptr},
               {"hidden_size", 1u << 30},
               {"vocab_size", 2.5},
               {"num_key_value_heads", 4},
               {"head_dim", 15},
               {"rms_norm_eps", -1},
               {"model_type", "mamba"},
               {"model_type", 7},
               {"max_position_embeddings", 0},
               {"rope_scaling", {{"type", "yarn"}}},
               {"attention_bias", true},
               {"hidden_act", "gelu"},
               {"eos_token_id", 128},
               {"eos_token_id", "x"},
               {"tie_word_embeddings", "yes"}};
  for (const auto& c : cases) {
    edit_config([&](Json& json) { json[c.field] = c.value; });
    const std::string name = std::string(c.field) == "head_dim" ? "head dimension" : c.field;
    EXPECT_THAT(error(), ::testing::AllOf(::testing::HasSubstr(name), ::testing::HasSubstr("config.json")))
        << c.field << " = " << c.value;
  }
  for (const char* text : {"", "{", "[]", "null", "\xff\xfe{}"}) {
    write(folder_ / "config.json", text);
    EXPECT_THAT(error(), ::testing::HasSubstr("config.json")) << text;
  }
  fs::remove(folder_ / "config.json");
  EXPECT_THAT(error(), ::testing::HasSubstr("cannot be read"));
}

TEST_F(DamagedModel, StopTokensComeFromBothFiles) {
  edit_config([](Json& json) { json["eos_token_id"] = {2, 5}; });
  write(folder_ / "generation_config.json", R"({"eos_token_id": [5, 9]})");
  EXPECT_EQ(load_config(folder_).stop_tokens, (std::vector<std::int32_t>{2, 5, 9}));
}

TEST_F(DamagedModel, WrongTensorsAreNamed) {
  const std::string q = "model.layers.1.self_attn.q_proj.weight";
  edit_header([&](Json& h) { h.erase(q); });
  EXPECT_THAT(error(), ::testing::AllOf(::testing::HasSubstr(q), ::testing::HasSubstr("missing")));
  edit_header([&](Json& h) { h[q]["shape"] = {48, 96}; });
  EXPECT_THAT(error(), ::testing::AllOf(::testing::HasSubstr(q), ::testing::HasSubstr("[48, 96]"),
                                        ::testing::HasSubstr("[96, 48]")));
  edit_header([&](Json& h) { h[q]["dtype"] = "I32"; });
  EXPECT_THAT(error(), ::testing::AllOf(::testing::HasSubstr(q), ::testing::HasSubstr("I32")));
  edit_header([&](Json& h) { h[q]["dtype"] = "Q4"; });
  EXPECT_THAT(error(), ::testing::HasSubstr("unknown dtype 'Q4'"));
  edit_header([&](Json& h) { h["unused.tensor"] = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}}; });
  EXPECT_EQ(error(), "");
}

TEST_F(DamagedModel, HostileHeadersAreSentences) {
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  const std::vector<Json> offsets = {{0, 1ull << 62}, {100, 50}, {-1, 4}, {"0", "4"}, {0}, {0, 4, 8}, 7, {0, 0.5}};
  for (const Json& o : offsets) {
    edit_header([&](Json& h) { h[q]["data_offsets"] = o; });
    EXPECT_NE(error(), "") << o;
  }
  const std::vector<Json> shapes = {{1ull << 40, 1ull << 40},   {-96, -48}, "x", {96}, {96, 48, 1}, {96.5, 48},
                                    {1, 1, 1, 1, 1, 1, 1, 1, 1}};
  for (const Json& s : shapes) {
    edit_header([&](Json& h) { h[q]["shape"] = s; });
    EXPECT_NE(error(), "") << s;
  }
  edit_header([&](Json& h) { h["overlap"] = h[q]; });
  EXPECT_THAT(error(), ::testing::HasSubstr("overlap"));
  for (
      const std::string& header :
      {std::string("[]"), std::string("{"), std::string("{}x"), std::string(R"({"a":1})"), std::string(R"({"a":{}})"),
       std::string(1000000, '['), R"({"a":)" + std::string(100000, '[') + "}",
       std::string(
           R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})")}) {
    write_header(header, "");
    EXPECT_NE(error(), "") << header.substr(0, 60);
  }
  for (const std::string& bytes :
       {std::string(), std::string("1234567"), std::string(8, '\xff'), std::string("\x10\0\0\0\0\0\0\0{}", 10)}) {
    write(folder_ / "model.safetensors", bytes);
    EXPECT_THAT(error(), ::testing::HasSubstr("model.safetensors"));
  }
  fs::remove(folder_ / "model.safetensors");
  EXPECT_THAT(error(), ::testing::HasSubstr("model.safetensors.index.json"));
  for (const char* index : {"{}", R"({"weight_map": 3})", R"({"weight_map": {"a": "../x"}})",
                            R"({"weight_map": {"a": "gone.safetensors"}})"}) {
    write(folder_ / "model.safetensors.index.json", index);
    EXPECT_NE(error(), "") << index;
  }
}

TEST_F(DamagedModel, RandomDamageGivesASentenceOrAModel) {
  const std::string all = read(golden_folder() / "tiny_qwen3" / "model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, all.data(), 8);
  std::mt19937 random(4);
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string bytes = all;
    if (i % 3 == 0) bytes.resize(random() % bytes.size());
    for (unsigned n = random() % 4; n-- > 0;) {
      if (bytes.empty()) break;
      bytes[random() % std::min<std::size_t>(bytes.size(), 8 + header)] = static_cast<char>(random());
    }
    write(folder_ / "model.safetensors", bytes);
    refused += error().empty() ? 0 : 1;  // anything but InputError fails the test
  }
  EXPECT_GT(refused, 200);
}

TEST(Shards, AnIndexJoinsFiles) {
  const Model single = load_model((golden_folder() / "tiny_qwen3").string(), false);
  const fs::path folder = fs::temp_directory_path() / "tandem-shards-test";
  fs::create_directories(folder);
  fs::copy_file(golden_folder() / "tiny_qwen3" / "config.json", folder / "config.json",
                fs::copy_options::overwrite_existing);
  const TensorFiles files = TensorFiles::open_folder(golden_folder() / "tiny_qwen3");
  Json index, headers[2];
  std::string bodies[2];
  int next = 0;
  for (const auto& [name, info] : files.tensors()) {
    const int shard = next++ % 2;
    const std::size_t at = bodies[shard].size();
    bodies[shard].append(reinterpret_cast<const char*>(info.bytes.data()), info.bytes.size());
    headers[shard][name] = {{"dtype", info.dtype}, {"shape", info.shape}, {"data_offsets", {at, bodies[shard].size()}}};
    index["weight_map"][name] = "part-" + std::to_string(shard) + ".safetensors";
  }
  for (int shard = 0; shard < 2; ++shard) {
    const std::string header = headers[shard].dump();
    const std::uint64_t length = header.size();
    write(folder / ("part-" + std::to_string(shard) + ".safetensors"),
          std::string(reinterpret_cast<const char*>(&length), 8) + header + bodies[shard]);
  }
  write(folder / "model.safetensors.index.json", index.dump());
  const Model joined = load_model(folder.string(), false);
  for (std::size_t i = 0; i < single.weights.layers.size(); ++i) {
    const MatrixView a = single.weights.layers[i].down, b = joined.weights.layers[i].down;
    EXPECT_EQ(0, std::memcmp(a.data, b.data, a.bytes()));
  }
  EXPECT_EQ(joined.weights.bytes(), single.weights.bytes());
  fs::remove_all(folder);
}

TEST(LoadModel, NamesAreFoundOrSuggested) {
  EXPECT_EQ(load_model("embedded").name, "embedded");
  try {
    load_model("embeded");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("Did you mean 'embedded'?"));
  }
}

TEST(Tokenizer, GivesSentencePiecesIdsAndDecodesBack) {
  const auto tokenizer = load_tokenizer(data_path("models/seed"));
  std::ifstream in(golden_folder() / "tokens.json");
  const Json json = Json::parse(in);
  std::size_t count = 0;
  for (const Json& c : json.at("cases")) {
    const std::string text = c[0].get<std::string>();
    const auto ids = tokenizer->encode(text, false);
    EXPECT_EQ(ids, c[1].get<std::vector<std::int32_t>>()) << text;
    EXPECT_EQ(tokenizer->decode(ids), text);
    ++count;
  }
  EXPECT_GT(count, 300u);
  EXPECT_EQ(tokenizer->encode("", true), (std::vector<std::int32_t>{1}));
}

TEST(Tokenizer, ADamagedFileIsASentence) {
  const fs::path folder = fs::temp_directory_path() / "tandem-tokenizer-test";
  fs::create_directories(folder);
  const std::string good = read(data_path("models/seed") / "tokenizer.model");
  for (const std::string& bytes :
       {std::string(), std::string("not a model"), good.substr(0, 1000), good.substr(0, 7)}) {
    write(folder / "tokenizer.model", bytes);
    EXPECT_THROW(load_tokenizer(folder), InputError) << bytes.size();
  }
  fs::remove(folder / "tokenizer.model");
  write(folder / "tokenizer.json", "{}");
  EXPECT_THROW(load_tokenizer(folder), InputError);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tandem::testing
