// tandem info of a model's folder.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/common/json.h"
#include "tests/cli/program.h"
#include "tests/engine/model/model_folder.h"
#include "tests/golden/golden.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A model of one layer whose weights are zeros, with one of the golden tokenizers.
class ModelWith {
 public:
  ModelWith(const std::string& tokenizer, std::uint32_t vocab) {
    constexpr std::uint32_t kHidden = 16, kMlp = 24;
    const Json config = {{"model_type", "llama"},
                         {"hidden_size", kHidden},
                         {"intermediate_size", kMlp},
                         {"num_hidden_layers", 1},
                         {"num_attention_heads", 2},
                         {"num_key_value_heads", 1},
                         {"head_dim", 8},
                         {"vocab_size", vocab},
                         {"rms_norm_eps", 1e-5},
                         {"rope_theta", 10000.0},
                         {"max_position_embeddings", 4096},
                         {"hidden_act", "silu"},
                         {"tie_word_embeddings", true}};
    write_bytes(path() / "config.json", config.dump());
    add("model.embed_tokens.weight", {vocab, kHidden});
    add("model.norm.weight", {kHidden});
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add_of_layer(norm, {kHidden});
    for (const char* square : {"self_attn.q_proj", "self_attn.o_proj"}) add_of_layer(square, {kHidden, kHidden});
    for (const char* narrow : {"self_attn.k_proj", "self_attn.v_proj"}) add_of_layer(narrow, {8, kHidden});
    for (const char* up : {"mlp.gate_proj", "mlp.up_proj"}) add_of_layer(up, {kMlp, kHidden});
    add_of_layer("mlp.down_proj", {kHidden, kMlp});
    write_bytes(path() / "model.safetensors", safetensors_bytes(header_.dump(), std::string(bytes_, '\0')));
    for (const auto& file : std::filesystem::directory_iterator(golden_folder() / "tokenizers" / tokenizer))
      std::filesystem::copy_file(file.path(), path() / file.path().filename());
  }
  std::filesystem::path path() const { return folder_.path(); }

 private:
  void add(const std::string& name, const std::vector<std::uint32_t>& shape) {
    std::size_t size = 4;
    for (const std::uint32_t n : shape) size *= n;
    header_[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {bytes_, bytes_ + size}}};
    bytes_ += size;
  }
  void add_of_layer(const std::string& name, const std::vector<std::uint32_t>& shape) {
    add("model.layers.0." + name + ".weight", shape);
  }

  TemporaryFolder folder_;
  Json header_ = Json::object();
  std::size_t bytes_ = 0;
};

TEST(Info, NamesBytesThatTheTokenizerLeavesOut) {
  const ModelWith lacking("small_smollm2", 700);
  const cli::Outcome outcome = cli::run("info --model " + lacking.path().string());
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("1 layer, hidden 16, MLP 24"));
  EXPECT_THAT(outcome.text, ::testing::ContainsRegex("tokenizer      has no token for [0-9]+ bytes \\(0x[0-9a-f]{2}, "
                                                     "0x[0-9a-f]{2}, 0x[0-9a-f]{2}, 0x[0-9a-f]{2}, ...\\): texts lose "
                                                     "them"));
  const ModelWith whole("small_llama3", 1000);
  const cli::Outcome other = cli::run("info --model " + whole.path().string());
  ASSERT_EQ(other.code, 0) << other.text;
  EXPECT_THAT(other.text, Not(HasSubstr("tokenizer ")));
}

TEST(Info, APartOfAProfilesNameIsEnough) {
  const std::string whole = cli::run("info --hw rtx-4090", cli::kOnlyOutput).text;
  EXPECT_THAT(whole, HasSubstr("4090"));
  for (const char* part : {"4090", "RTX-4090"}) {
    EXPECT_EQ(cli::run(std::string("info --hw ") + part, cli::kOnlyOutput).text, whole);
    EXPECT_EQ(cli::run(std::string("info --hw ") + part, cli::kOnlyErrors).text,
              "'" + std::string(part) + "' is the hardware profile rtx-4090.\n");
  }
  EXPECT_EQ(cli::run("info --hw h100", cli::kOnlyErrors).text, "");  // asyncspade-h100 has it, too
  const cli::Outcome several = cli::run("info --hw a100", cli::kOnlyErrors);
  EXPECT_EQ(several.code, 2);
  EXPECT_THAT(several.text, HasSubstr("'asyncspade-a100' or 'fluxion-a100'"));
  const cli::Outcome list = cli::run("plan --as llama-3.1-8b --hw 4090,h200 --context 4K --batch 1");
  EXPECT_EQ(list.code, 0) << list.text;
  EXPECT_THAT(list.text, HasSubstr("'4090' is the hardware profile rtx-4090."));
}

}  // namespace
}  // namespace tandem::testing
