#include "engine/model/weights.h"

#include <chrono>
#include <cmath>
#include <fstream>
#include <random>
#include <vector>

#include "engine/kernels/convert.h"
#include "engine/model/safetensors.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kQ = "model.layers.1.self_attn.q_proj.weight";

/// Every view of the weights, in one order.
std::vector<MatrixView> views_of(const ModelWeights& w) {
  std::vector<MatrixView> views = {w.embedding, w.final_norm, w.lm_head};
  for (const LayerWeights& l : w.layers) {
    for (const MatrixView& m : {l.input_norm, l.q, l.k, l.v, l.q_bias, l.k_bias, l.v_bias, l.o, l.q_norm, l.k_norm,
                                l.post_norm, l.gate, l.up, l.down}) {
      views.push_back(m);
    }
  }
  return views;
}

bool is_bias(const ModelWeights& w, const MatrixView& view) {
  return std::any_of(w.layers.begin(), w.layers.end(), [&](const LayerWeights& l) {
    return view.data == l.q_bias.data || view.data == l.k_bias.data || view.data == l.v_bias.data;
  });
}

void expect_equal(const ModelWeights& a, const ModelWeights& b) {
  const auto left = views_of(a), right = views_of(b);
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    ASSERT_EQ(left[i].rows, right[i].rows);
    ASSERT_EQ(left[i].cols, right[i].cols);
    ASSERT_EQ(left[i].type, right[i].type);
    if (left[i].bytes() == 0) continue;
    EXPECT_EQ(0, std::memcmp(left[i].data, right[i].data, left[i].bytes())) << i;
  }
}

class Weights : public ::testing::TestWithParam<const char*> {
 protected:
  Weights() {
    std::filesystem::copy_file(golden_folder() / GetParam() / "config.json", folder_.path() / "config.json");
    std::tie(header_, body_) = split_safetensors(read_bytes(golden_folder() / GetParam() / "model.safetensors"));
    config_ = load_config(folder_.path());
  }
  void write() { write_bytes(file_, safetensors_bytes(header_.dump(), body_)); }
  ModelWeights load() {
    write();
    return load_weights(folder_.path(), config_);
  }
  std::string sentence() {
    return sentence_of([&] { load(); });
  }
  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "model.safetensors";
  Json header_;
  std::string body_;
  ModelConfig config_;
};
INSTANTIATE_TEST_SUITE_P(Architectures, Weights, ::testing::Values("tiny_llama", "tiny_qwen2", "tiny_qwen3"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(Weights, EveryTensorLandsInItsSlot) {
  const ModelWeights w = load();
  ASSERT_EQ(w.layers.size(), 2u);
  const auto bytes_at = [&](const std::string& name) {
    return body_.data() + header_.at(name).at("data_offsets").at(0).get<std::size_t>();
  };
  std::size_t named = 0, bytes = 0, widened = 0;
  const auto expect = [&](const std::string& name, const MatrixView& view, std::uint32_t rows, std::uint32_t cols) {
    ASSERT_TRUE(header_.contains(name)) << name;
    EXPECT_EQ(view.rows, rows) << name;
    EXPECT_EQ(view.cols, cols) << name;
    if (name.ends_with(".bias")) {  // stored as bf16, kept as f32
      EXPECT_EQ(view.type, DType::f32);
      for (std::uint32_t i = 0; i < cols; ++i)
        EXPECT_EQ(load_element(view.data, DType::f32, i), load_element(bytes_at(name), DType::bf16, i)) << name;
      bytes -= view.bytes() / 2;
      widened += view.bytes() / 2;
    } else {
      EXPECT_EQ(0, std::memcmp(view.data, bytes_at(name), view.bytes())) << name;
    }
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.type), 0u) << name;
    ++named;
    bytes += view.bytes();
  };
  expect("model.embed_tokens.weight", w.embedding, 128, 48);
  expect("model.norm.weight", w.final_norm, 1, 48);
  if (config_.tied_embeddings) {
    EXPECT_EQ(w.lm_head.data, w.embedding.data);
  } else {
    expect("lm_head.weight", w.lm_head, 128, 48);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string p = "model.layers." + std::to_string(i) + ".";
    const LayerWeights& l = w.layers[i];
    expect(p + "input_layernorm.weight", l.input_norm, 1, 48);
    expect(p + "self_attn.q_proj.weight", l.q, 96, 48);
    expect(p + "self_attn.k_proj.weight", l.k, 48, 48);
    expect(p + "self_attn.v_proj.weight", l.v, 48, 48);
    expect(p + "self_attn.o_proj.weight", l.o, 48, 96);
    expect(p + "post_attention_layernorm.weight", l.post_norm, 1, 48);
    expect(p + "mlp.gate_proj.weight", l.gate, 96, 48);
    expect(p + "mlp.up_proj.weight", l.up, 96, 48);
    expect(p + "mlp.down_proj.weight", l.down, 48, 96);
    EXPECT_EQ(bool(l.q_bias), config_.qkv_bias);
    if (config_.qkv_bias) {
      expect(p + "self_attn.q_proj.bias", l.q_bias, 1, 96);
      expect(p + "self_attn.k_proj.bias", l.k_bias, 1, 48);
      expect(p + "self_attn.v_proj.bias", l.v_bias, 1, 48);
    }
    if (config_.qk_norm) {
      expect(p + "self_attn.q_norm.weight", l.q_norm, 1, 16);
      expect(p + "self_attn.k_norm.weight", l.k_norm, 1, 16);
    } else {
      EXPECT_FALSE(l.q_norm);
      EXPECT_FALSE(l.k_norm);
    }
  }
  EXPECT_EQ(named + (header_.contains("__metadata__") ? 1 : 0), header_.size());  // the file holds nothing else
  EXPECT_EQ(w.bytes(), bytes + widened);
  EXPECT_EQ(bytes, body_.size());
}

TEST_P(Weights, EveryMissingTensorIsNamedWithTheFile) {
  const Json sound = header_;
  for (const auto& [name, entry] : sound.items()) {
    if (name == "__metadata__") continue;
    header_ = sound;
    header_["unused." + name] = header_[name];  // an unknown tensor is tolerated, a missing one is not
    header_.erase(name);
    EXPECT_THAT(sentence(), AllOf(HasSubstr("'" + name + "' is missing"), HasSubstr(file_.string())));
  }
}

TEST_P(Weights, UnknownTensorsAreIgnored) {
  const ModelWeights before = load();
  header_["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
      {"dtype", "I64"}, {"shape", {2}}, {"data_offsets", {body_.size(), body_.size() + 16}}};
  body_ += std::string(16, 'x');
  expect_equal(before, load());
}

TEST_P(Weights, TensorsOfLayersThatTheConfigurationDoesNotHaveAreRefused) {
  const std::string more = "model.layers.2.input_layernorm.weight";
  const Json tensor = {{"dtype", "I64"}, {"shape", {2}}, {"data_offsets", {body_.size(), body_.size() + 16}}};
  body_ += std::string(16, 'x');
  header_[more] = tensor;
  EXPECT_THAT(sentence(), AllOf(HasSubstr("'" + more + "' has no place in the model that config.json describes"),
                                HasSubstr("2 layers")));
  header_.erase(more);
  header_["model.layers.0.self_attn.unknown.weight"] = tensor;
  EXPECT_THAT(sentence(), HasSubstr("self_attn.unknown.weight' has no place"));
}

TEST_P(Weights, AHeadBesideTiedEmbeddingsIsTheSameOrRefused) {
  if (!config_.tied_embeddings) return;  // a head of its own is what these have
  constexpr const char *kEmbedding = "model.embed_tokens.weight", *kHead = "lm_head.weight";
  const ModelWeights plain = load();
  const Json entry = header_[kEmbedding];
  const auto begin = entry["data_offsets"][0].get<std::size_t>(), end = entry["data_offsets"][1].get<std::size_t>();
  const std::string bytes = body_.substr(begin, end - begin);
  header_[kHead] = entry;
  header_[kHead]["data_offsets"] = {body_.size(), body_.size() + bytes.size()};
  body_ += bytes;
  expect_equal(plain, load());
  body_.back() = static_cast<char>(body_.back() ^ 1);
  EXPECT_THAT(sentence(),
              AllOf(HasSubstr(kHead), HasSubstr(kEmbedding), HasSubstr("'tie_word_embeddings'"), HasSubstr("row 127")));
  header_[kHead]["shape"] = {48, 128};
  EXPECT_THAT(sentence(), AllOf(HasSubstr(kHead), HasSubstr("[48, 128]")));
  body_.resize(body_.size() - bytes.size());  // the head alone
  header_.erase(kEmbedding);
  header_[kHead] = entry;
  expect_equal(plain, load());
}

TEST_P(Weights, NamesMayLackTheModelsPrefix) {
  const ModelWeights plain = load();
  Json bare;
  for (const auto& [name, entry] : header_.items()) bare[name.starts_with("model.") ? name.substr(6) : name] = entry;
  header_ = bare;
  expect_equal(plain, load());
  header_["layers.1.mlp.other.weight"] = header_["layers.1.mlp.up_proj.weight"];
  header_.erase("layers.1.mlp.up_proj.weight");
  EXPECT_THAT(sentence(), HasSubstr("up_proj.weight' is missing"));
}

TEST_P(Weights, WrongShapesAndDtypesAreNamed) {
  header_[kQ]["shape"] = {48, 96};
  EXPECT_THAT(sentence(),
              AllOf(HasSubstr(kQ), HasSubstr("[48, 96]"), HasSubstr("[96, 48]"), HasSubstr(file_.string())));
  header_[kQ]["shape"] = {96 * 48};
  EXPECT_THAT(sentence(), AllOf(HasSubstr(kQ), HasSubstr("[4608]")));
  header_[kQ]["shape"] = {96, 48, 1};
  EXPECT_THAT(sentence(), HasSubstr(kQ));
  header_[kQ]["shape"] = {96, 48};
  const std::string sound = header_[kQ]["dtype"], integer = sound == "F32" ? "I32" : "I16";
  header_[kQ]["dtype"] = integer;
  EXPECT_THAT(sentence(), AllOf(HasSubstr(kQ), HasSubstr(integer), HasSubstr("F32, F16 or BF16")));
  header_[kQ]["dtype"] = sound;
  EXPECT_EQ(sentence(), "");
  config_.layers = 3;
  EXPECT_THAT(sentence(), AllOf(HasSubstr("model.layers.2."), HasSubstr("3 layers")));
}

TEST_P(Weights, TensorsOffTheirAlignmentAreCopied) {
  const ModelWeights plain = load();
  const std::string text = header_.dump();
  for (std::size_t pad = 0; pad < 4; ++pad) {  // spaces after the header move every tensor
    write_bytes(file_, safetensors_bytes(text + std::string(pad, ' '), body_));
    const ModelWeights moved = load_weights(folder_.path(), config_);
    for (const MatrixView& view : views_of(moved)) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.type), 0u);
    }
    expect_equal(plain, moved);
  }
}

TEST_P(Weights, NoNumberIsInfinite) {
  struct Type {
    const char* name;
    std::uint32_t bytes, infinity, largest;
  };
  const std::string norm = "model.norm.weight", body = body_;
  const Json header = header_;
  const std::size_t begin = header[norm]["data_offsets"][0], end = header[norm]["data_offsets"][1];
  const std::uint32_t count = header[norm]["shape"][0];
  for (const Type& type :
       {Type{"BF16", 2, 0x7f80, 0x7f7f}, {"F16", 2, 0x7c00, 0x7bff}, {"F32", 4, 0x7f800000, 0x7f7fffff}}) {
    const std::size_t more = std::size_t{count} * type.bytes - (end - begin);
    header_ = header;
    for (auto& [name, tensor] : header_.items())
      for (const int side : {0, 1})
        if (name != "__metadata__" && tensor["data_offsets"][side] >= end && (name != norm || side == 1))
          tensor["data_offsets"][side] = tensor["data_offsets"][side].get<std::size_t>() + more;
    header_[norm]["dtype"] = type.name;
    const auto with = [&](std::uint32_t at, std::uint32_t bits) {  // all others are the largest number
      std::string values;
      for (std::uint32_t i = 0; i < count; ++i)
        values.append(reinterpret_cast<const char*>(i == at ? &bits : &type.largest), type.bytes);
      body_ = body.substr(0, begin) + values + body.substr(end);
    };
    const std::uint32_t sign = 1u << (8 * type.bytes - 1);
    with(0, type.largest | sign);
    EXPECT_NO_THROW(load()) << type.name;
    for (const std::uint32_t at : {0u, 1u, 2u, 3u, count - 1})
      for (const std::uint32_t bits : {type.infinity, type.infinity | sign, type.infinity + 1}) {
        with(at, bits);
        EXPECT_THAT(sentence(), HasSubstr("'model.norm.weight' has 1 elements that are NaN or infinity"))
            << type.name << " " << at;
      }
  }
}

TEST_P(Weights, CopiesAreTheSameWeights) {
  const TemporaryFolder other;
  const std::string text = header_.dump();
  write_bytes(other / "model.safetensors", safetensors_bytes(text, body_));
  const ModelWeights mapped = load_weights(other.path(), config_);
  for (const auto in : {WeightPlace::In::memory, WeightPlace::In::either}) {
    for (const std::size_t pad : {0, 3}) {
      write_bytes(file_, safetensors_bytes(text + std::string(pad, ' '), body_));
      std::uint64_t last = 0, all = 0;
      const ModelWeights copied = load_weights(folder_.path(), config_, {in, [&](std::uint64_t done, std::uint64_t of) {
                                                                           EXPECT_GT(done, last);
                                                                           last = done;
                                                                           all = of;
                                                                         }});
      EXPECT_EQ(last, std::filesystem::file_size(file_));
      EXPECT_EQ(all, last);
      EXPECT_FALSE(copied.mapped);
      expect_equal(mapped, copied);
      EXPECT_EQ(copied.hash, load_weights(folder_.path(), config_).hash);
      write_bytes(file_, "nothing");  // it is not looked at any more
      expect_equal(mapped, copied);
    }
  }
  EXPECT_TRUE(mapped.mapped);
}

// The header was read before, so that these bytes may belong elsewhere.
TEST_P(Weights, AFileThatIsWrittenIntoWhileItIsCopiedIsRefused) {
  write();
  const std::string whole = read_bytes(file_);
  const auto write_into = [&](std::uint64_t, std::uint64_t) {
    std::fstream(file_).write(whole.data(), 64);
    const auto later = std::filesystem::file_time_type::clock::now() + std::chrono::seconds(1);
    std::filesystem::last_write_time(file_, later);  // clocks are coarse
  };
  EXPECT_THAT(
      [&] {
        load_weights(folder_.path(), config_, {WeightPlace::In::memory, write_into});
      },
      ::testing::ThrowsMessage<RunError>(
          AllOf(HasSubstr(file_.string()), HasSubstr("was written into while it was read"))));
}

TEST_P(Weights, ACopyThatHasNoRoomIsRefusedAtOnce) {
  write();
  const std::uint64_t huge = std::uint64_t{1} << 42;  // a hole, which takes no room on the disk
  std::filesystem::resize_file(file_, huge);
  EXPECT_THAT(sentence_of([&] {
                load_weights(folder_.path(), config_, {WeightPlace::In::memory, {}});
              }),
              AllOf(HasSubstr("take 4398.0 GB"), HasSubstr("--weights map")));
}

TEST_P(Weights, ShardsGiveTheSameWeights) {
  const ModelWeights single = load();
  Json index, headers[2];
  std::string bodies[2];
  int next = 0;
  for (const auto& [name, entry] : header_.items()) {
    if (name == "__metadata__") continue;
    const int shard = next++ % 2;
    const auto begin = entry["data_offsets"][0].get<std::size_t>(), end = entry["data_offsets"][1].get<std::size_t>();
    headers[shard][name] = entry;
    headers[shard][name]["data_offsets"] = {bodies[shard].size(), bodies[shard].size() + end - begin};
    bodies[shard] += body_.substr(begin, end - begin);
    index["weight_map"][name] = "part-" + std::to_string(shard) + ".safetensors";
  }
  for (int shard = 0; shard < 2; ++shard) {
    write_bytes(folder_.path() / ("part-" + std::to_string(shard) + ".safetensors"),
                safetensors_bytes(headers[shard].dump(), bodies[shard]));
  }
  std::filesystem::remove(file_);
  write_bytes(folder_.path() / "model.safetensors.index.json", index.dump());
  for (const auto in : {WeightPlace::In::file, WeightPlace::In::memory})
    expect_equal(single, load_weights(folder_.path(), config_, {in, {}}));
}

TEST_P(Weights, RandomDamageGivesASentenceOrWeights) {
  write();
  const std::string sound = read_bytes(file_);
  const std::size_t header = sound.size() - body_.size();
  std::mt19937 random(9);
  int refused = 0;
  for (int i = 0; i < 150; ++i) {
    std::string bytes = sound;
    if (i % 3 == 0) bytes.resize(random() % bytes.size());
    for (unsigned n = random() % 4; n-- > 0 && !bytes.empty();) {
      bytes[random() % std::min(bytes.size(), header)] = static_cast<char>(random());
    }
    write_bytes(file_, bytes);
    refused += sentence_of([&] { load_weights(folder_.path(), config_); }).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 50);
}

TEST_P(Weights, RandomWeightsAreDeterministicFiniteAndOfTheRightShape) {
  const auto shapes = views_of(load());
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const ModelWeights a = random_weights(config_, type, 3), b = random_weights(config_, type, 3);
    expect_equal(a, b);
    EXPECT_EQ(a.hash, b.hash);
    EXPECT_NE(a.hash, random_weights(config_, type, 4).hash);
    const auto views = views_of(a);
    ASSERT_EQ(views.size(), shapes.size());
    for (std::size_t i = 0; i < views.size(); ++i) {
      EXPECT_EQ(views[i].rows, shapes[i].rows);
      EXPECT_EQ(views[i].cols, shapes[i].cols);
      if (!shapes[i]) continue;
      const bool bias = is_bias(a, views[i]);
      EXPECT_EQ(views[i].type, bias ? DType::f32 : type);
      double squares = 0;
      const std::size_t n = std::size_t{views[i].rows} * views[i].cols;
      for (std::size_t k = 0; k < n; ++k) {
        const float value = load_element(views[i].data, views[i].type, k);
        ASSERT_TRUE(std::isfinite(value));
        squares += double(value) * value;
      }
      // Norms near 1, rows of matrices near unit length (uniform of +-1.7 / sqrt(cols): variance 0.96 / cols).
      const double size = views[i].rows == 1 ? squares / double(n) : squares / views[i].rows;
      EXPECT_NEAR(size, bias ? 0.0033 : 1.0, bias ? 0.001 : 0.25) << i;
    }
  }
}

}  // namespace
}  // namespace tandem::testing
