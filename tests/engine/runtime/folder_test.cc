// Model folders that state a fact in several places are read as transformers reads them, or refused. The folders and
// transformers' ids, logits and stop tokens are made by scripts/make_folder_goldens.py; TANDEM_FOLDERS names a file
// with more of them, and prints a line for each.
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "engine/common/json.h"
#include "engine/kernels/convert.h"
#include "tests/engine/model/model_folder.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;
namespace fs = std::filesystem;

constexpr std::uint32_t kRows = 320, kHidden = 32, kHeads = 4, kKvHeads = 2, kHeadDim = 8, kInner = 48;

/// Multiples of 1/256 up to 1/4, near 1 for norms: every stored type holds them exactly. As in the script.
std::vector<float> elements(const std::string& name, std::size_t count) {
  std::uint32_t seed = 2166136261u;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 16777619u;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto x = static_cast<std::uint32_t>((i + seed) * 2654435761u);
    x = (x ^ (x >> 15)) * 2246822519u;
    const int step = static_cast<int>((x >> 20) % 128) - 64;
    values[i] = static_cast<float>(step) / 256 + (name.find("norm") != std::string::npos ? 1.0f : 0.0f);
  }
  return values;
}

struct Tensor {
  std::string dtype = "F32";
  std::vector<std::uint32_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

Tensor tensor(const std::string& name, const std::vector<std::uint32_t>& shape) {
  std::size_t count = 1;
  for (const std::uint32_t n : shape) count *= n;
  return {"F32", shape, elements(name, count)};
}

Tensors tensors_of(const OrderedJson& model) {
  const std::string family = model.at("family");
  const std::uint32_t q = kHeads * kHeadDim, kv = kKvHeads * kHeadDim;
  std::map<std::string, std::vector<std::uint32_t>> shapes = {{"model.embed_tokens.weight", {kRows, kHidden}},
                                                              {"model.norm.weight", {kHidden}}};
  if (!model.value("tied", false)) shapes["lm_head.weight"] = {kRows, kHidden};
  for (int i = 0; i < model.value("layers", 1); ++i) {
    const std::string p = fmt::format("model.layers.{}.", i), a = p + "self_attn.";
    shapes[p + "input_layernorm.weight"] = shapes[p + "post_attention_layernorm.weight"] = {kHidden};
    shapes[a + "q_proj.weight"] = {q, kHidden};
    shapes[a + "k_proj.weight"] = shapes[a + "v_proj.weight"] = {kv, kHidden};
    shapes[a + "o_proj.weight"] = {kHidden, q};
    shapes[p + "mlp.gate_proj.weight"] = shapes[p + "mlp.up_proj.weight"] = {kInner, kHidden};
    shapes[p + "mlp.down_proj.weight"] = {kHidden, kInner};
    if (family == "qwen2") {
      shapes[a + "q_proj.bias"] = {q};
      shapes[a + "k_proj.bias"] = shapes[a + "v_proj.bias"] = {kv};
    }
    if (family == "qwen3") shapes[a + "q_norm.weight"] = shapes[a + "k_norm.weight"] = {kHeadDim};
  }
  Tensors tensors;
  for (const auto& [name, shape] : shapes) tensors[name] = tensor(name, shape);
  return tensors;
}

void edit(Tensors& tensors, const OrderedJson& edits) {
  for (const OrderedJson& e : edits) {
    const std::string name = e.at("tensor");
    std::vector<std::string> names;
    for (const auto& [other, value] : tensors) {
      if (name == "*" || name == other) names.push_back(other);
    }
    for (const std::string& match : names) {
      if (e.contains("dtype")) tensors[match].dtype = e["dtype"];
      if (e.contains("shape")) tensors[match] = tensor(match, e["shape"].get<std::vector<std::uint32_t>>());
      if (e.contains("rename")) tensors[e["rename"]] = tensors[match];
      if (e.contains("rename") || e.contains("remove")) tensors.erase(match);
    }
    if (e.contains("like")) tensors[name] = tensors.at(e["like"]);
    if (e.contains("new")) tensors[name] = tensor(name, e["new"].get<std::vector<std::uint32_t>>());
  }
}

std::string bytes_of(const Tensor& tensor) {
  std::string bytes;
  const auto append = [&bytes](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const float value : tensor.values) {
    if (tensor.dtype == "F64") {
      append(double(value));
    } else if (tensor.dtype == "F32") {
      append(value);
    } else {
      std::uint16_t half = 0;
      from_f32(&value, tensor.dtype == "BF16" ? DType::bf16 : DType::f16, 1, &half);
      append(half);
    }
  }
  return bytes;
}

void write_weights(const fs::path& folder, const Tensors& tensors) {
  OrderedJson header;
  std::string body;
  for (const auto& [name, t] : tensors) {
    const std::string bytes = bytes_of(t);
    header[name] = {
        {"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {body.size(), body.size() + bytes.size()}}};
    body += bytes;
  }
  write_bytes(folder / "model.safetensors", safetensors_bytes(json_text(header), body));
}

std::string from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int have = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(digits.find(c));
    have += 6;
    if (have >= 8) bytes += static_cast<char>(bits >> (have -= 8) & 0xFF);
  }
  return bytes;
}

std::string content_of(const OrderedJson& file) {
  if (file.is_string()) return file;
  if (file.size() == 1 && file.contains("base64")) return from_base64(file["base64"]);
  return json_text(file);
}

void write_folder(const fs::path& folder, const OrderedJson& base, const OrderedJson& variant,
                  const OrderedJson& shared) {
  OrderedJson files = base.at("files");
  for (const OrderedJson& e : variant.at("edits")) {
    const std::string file = e.at("file");
    if (e.contains("remove")) {
      files.erase(file);
    } else if (e.contains("patch")) {
      files[file] = files[file].patch(e["patch"]);
    } else {
      files[file] = e.contains("text") ? e["text"] : OrderedJson{{"base64", shared.at(e["shared"].get<std::size_t>())}};
    }
  }
  for (const auto& [name, content] : files.items()) write_bytes(folder / name, content_of(content));
  Tensors tensors = tensors_of(base.at("model"));
  edit(tensors, variant.at("weights"));
  write_weights(folder, tensors);
}

class Folders : public ::testing::Test {
 protected:
  Folders() {
    const char* more = std::getenv("TANDEM_FOLDERS");
    prints_ = more != nullptr;
    const fs::path file = prints_ ? fs::path(more) : golden_folder() / "folders.json";
    golden_ = parse_ordered_json(read_bytes(file), file.string());
    texts_ = golden_.at("texts").get<std::vector<std::string>>();
  }

  /// Nothing where ids, logits and stop tokens are transformers'; otherwise what differs.
  std::string difference(const fs::path& folder, const OrderedJson& said) {
    Model model = load_model(folder.string());
    std::string differs = ids_difference(*model.tokenizer, said);
    Ids stop = model.config.stop_tokens;
    std::sort(stop.begin(), stop.end());
    if (stop != said.at("stop").get<Ids>()) differs += fmt::format(" stop {}", Json(stop).dump());
    const auto wanted = golden_.at("logits").at(said.at("logits").get<std::size_t>()).get<std::vector<float>>();
    const Ids tokens = golden_.at("tokens");
    const std::size_t rows = model.config.vocab;
    if (rows != said.at("rows").get<std::size_t>()) return differs + " rows";
    Bench bench(std::move(model));
    const std::vector<float> logits = bench.engine.prefill_logits(tokens);
    double worst = 0;
    for (std::size_t i = 0; i < 16; ++i) {
      const std::size_t at = i < 12 ? (tokens.size() - 1) * rows + i * rows / 12 : 6 * rows + (i - 12) * rows / 4 + 1;
      worst = std::max(worst, std::abs(double(logits.at(at)) - double(wanted[i])));
    }
    if (!(worst < 1e-3)) differs += fmt::format(" logits by {:.2g}", worst);
    return differs;
  }

  std::string ids_difference(const Tokenizer& tokenizer, const OrderedJson& said) {
    std::string differs;
    for (const bool parsed : {true, false}) {
      for (std::size_t i = 0; i < texts_.size(); ++i) {
        const auto wanted = golden_.at("ids")
                                .at(said.at(std::string(parsed ? "parsed" : "as_text")).at(i).get<std::size_t>())
                                .get<Ids>();
        const bool fits = *std::max_element(wanted.begin(), wanted.end()) < static_cast<std::int32_t>(kRows);
        Ids ids;
        const std::string sentence = sentence_of(
            [&] { ids = tokenizer.encode(texts_[i], parsed, parsed ? Specials::parsed : Specials::as_text); });
        if (fits ? !sentence.empty() || ids != wanted : sentence.empty())
          differs += fmt::format("\n    {} {}: {} {}, not {}", parsed ? "parsed" : "as text", Json(texts_[i]).dump(),
                                 Json(ids).dump(), sentence, Json(wanted).dump());
      }
    }
    return differs;
  }

  OrderedJson golden_;
  std::vector<std::string> texts_;
  bool prints_ = false;
};

TEST_F(Folders, AreReadAsTransformersReadsThem) {
  std::size_t accepted = 0, refused = 0, not_supported = 0, all = 0;
  for (const OrderedJson& variant : golden_.at("variants")) {
    const OrderedJson& said = variant.at("transformers");
    const std::string name = variant.at("name"), base = variant.at("base");
    const TemporaryFolder folder;
    write_folder(folder.path(), golden_.at("bases").at(base), variant, golden_.at("shared"));
    std::string differs;
    const std::string sentence = sentence_of([&] {
      if (said.contains("refused")) {
        load_model(folder.path().string());
      } else {
        differs = difference(folder.path(), said);
      }
    });
    ++all;
    const bool may_refuse = said.contains("refused") || said.contains("warned") || variant.value("unsupported", false);
    if (!sentence.empty()) {
      EXPECT_TRUE(may_refuse) << name << ": " << sentence;
      ++(said.contains("refused") || said.contains("warned") ? refused : not_supported);
    } else {
      EXPECT_FALSE(said.contains("refused")) << name << ": transformers refuses it: " << said["refused"];
      EXPECT_EQ(differs, "") << name;
      ++accepted;
    }
    if (prints_)
      std::printf("%-60s %s\n", name.c_str(),
                  (!sentence.empty() ? "refused: " + sentence : "accepted" + differs).c_str());
  }
  std::printf(
      "%zu folders: %zu accepted with transformers' ids, logits and stop tokens, %zu refused as transformers refuses "
      "or warns, %zu not supported\n",
      all, accepted, refused, not_supported);
}

}  // namespace
}  // namespace tandem::testing
