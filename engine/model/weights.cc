#include "engine/model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "engine/common/error.h"
#include "engine/kernels/convert.h"
#include "engine/model/safetensors.h"

namespace tandem {
namespace {

struct Slot {
  std::string name;  // of the tensor in the file
  MatrixView* view;
  std::uint32_t rows, cols;  // rows == 0: a vector of cols
};

/// Tensor names of Llama and Qwen3 (the latter adds q_norm and k_norm), and the shapes they must have.
std::vector<Slot> slots_of(const ModelConfig& c, ModelWeights& w) {
  const std::uint32_t q = c.q_heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  std::vector<Slot> slots = {{"model.embed_tokens.weight", &w.embedding, c.vocab, c.hidden},
                             {"model.norm.weight", &w.final_norm, 0, c.hidden}};
  if (!c.tied_embeddings) slots.push_back({"lm_head.weight", &w.lm_head, c.vocab, c.hidden});
  for (std::uint32_t i = 0; i < c.layers; ++i) {
    const std::string p = fmt::format("model.layers.{}.", i);
    LayerWeights& l = w.layers[i];
    for (const Slot& s : std::vector<Slot>{{"input_layernorm", &l.input_norm, 0, c.hidden},
                                           {"self_attn.q_proj", &l.q, q, c.hidden},
                                           {"self_attn.k_proj", &l.k, kv, c.hidden},
                                           {"self_attn.v_proj", &l.v, kv, c.hidden},
                                           {"self_attn.o_proj", &l.o, c.hidden, q},
                                           {"post_attention_layernorm", &l.post_norm, 0, c.hidden},
                                           {"mlp.gate_proj", &l.gate, c.intermediate, c.hidden},
                                           {"mlp.up_proj", &l.up, c.intermediate, c.hidden},
                                           {"mlp.down_proj", &l.down, c.hidden, c.intermediate}}) {
      slots.push_back({p + s.name + ".weight", s.view, s.rows, s.cols});
    }
    if (c.qk_norm) {
      slots.push_back({p + "self_attn.q_norm.weight", &l.q_norm, 0, c.head_dim});
      slots.push_back({p + "self_attn.k_norm.weight", &l.k_norm, 0, c.head_dim});
    }
  }
  return slots;
}

MatrixView view_of(const TensorInfo& info, const Slot& slot) {
  MatrixView view;
  if (info.dtype == "F32") {
    view.type = DType::f32;
  } else if (info.dtype == "F16") {
    view.type = DType::f16;
  } else if (info.dtype == "BF16") {
    view.type = DType::bf16;
  } else {
    throw_input_error("{}: tensor '{}' has dtype {}; weights must be F32, F16 or BF16.", info.file, slot.name,
                      info.dtype);
  }
  const std::vector<std::uint64_t> wanted =
      slot.rows == 0 ? std::vector<std::uint64_t>{slot.cols} : std::vector<std::uint64_t>{slot.rows, slot.cols};
  if (info.shape != wanted) {
    throw_input_error("{}: tensor '{}' has shape [{}] where config.json asks for [{}].", info.file, slot.name,
                      fmt::join(info.shape, ", "), fmt::join(wanted, ", "));
  }
  view.data = info.bytes.data();
  view.rows = std::max(slot.rows, 1u);
  view.cols = slot.cols;
  return view;
}

struct LoadedStorage {
  std::shared_ptr<const void> mapping;
  std::vector<std::vector<std::byte>> copies;
};

/// Nothing in the format keeps tensors at multiples of their element size (a header of odd length moves them all), but
/// kernels read whole elements: a tensor that is off is copied, every other stays in the mapping.
void align(MatrixView& view, LoadedStorage& storage) {
  if (reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.type) == 0) return;
  const auto* bytes = static_cast<const std::byte*>(view.data);
  view.data = storage.copies.emplace_back(bytes, bytes + view.bytes()).data();
}

}  // namespace

std::size_t ModelWeights::bytes() const {
  std::size_t sum = embedding.bytes() + final_norm.bytes() + (lm_head.data == embedding.data ? 0 : lm_head.bytes());
  for (const LayerWeights& l : layers) {
    for (const MatrixView& m :
         {l.input_norm, l.q, l.k, l.v, l.o, l.q_norm, l.k_norm, l.post_norm, l.gate, l.up, l.down}) {
      sum += m.bytes();
    }
  }
  return sum;
}

ModelWeights load_weights(const std::filesystem::path& folder, const ModelConfig& config) {
  const TensorFiles files = TensorFiles::open_folder(folder);
  auto storage = std::make_shared<LoadedStorage>();
  storage->mapping = files.mapping();
  ModelWeights w;
  w.layers.resize(config.layers);
  for (const Slot& slot : slots_of(config, w)) {
    const auto found = files.tensors().find(slot.name);
    if (found == files.tensors().end()) {
      throw_input_error("{}: tensor '{}' is missing; config.json ({} layers) asks for it.", files.source(), slot.name,
                        config.layers);
    }
    *slot.view = view_of(found->second, slot);
    align(*slot.view, *storage);
  }
  if (config.tied_embeddings) w.lm_head = w.embedding;
  w.storage = storage;
  w.hash = files.hash();
  return w;
}

ModelWeights random_weights(const ModelConfig& config, DType type, std::uint64_t seed) {
  ModelWeights w;
  w.layers.resize(config.layers);
  const std::vector<Slot> slots = slots_of(config, w);
  std::size_t bytes = 0;
  for (const Slot& s : slots) bytes += std::size_t{std::max(s.rows, 1u)} * s.cols * size_of(type);
  auto storage = std::make_shared<std::vector<std::byte>>(bytes);
  std::mt19937_64 random(seed);
  std::size_t at = 0;
  for (const Slot& s : slots) {
    const std::size_t n = std::size_t{std::max(s.rows, 1u)} * s.cols;
    *s.view = {storage->data() + at, type, std::max(s.rows, 1u), s.cols};
    // Matrices keep the scale of their input; norms are near 1.
    const double scale = s.rows == 0 ? 0.2 : 1.7 / std::sqrt(double(s.cols));
    for (std::size_t i = 0; i < n; ++i) {
      const double uniform = double(random() >> 11) * 0x1p-53 * 2 - 1;
      const auto value = static_cast<float>((s.rows == 0 ? 1.0 : 0.0) + scale * uniform);
      if (type == DType::f32) {
        std::memcpy(storage->data() + at + i * 4, &value, 4);
      } else {
        const std::uint16_t half = type == DType::bf16 ? float_to_bf16(value) : float_to_f16(value);
        std::memcpy(storage->data() + at + i * 2, &half, 2);
      }
    }
    at += n * size_of(type);
  }
  if (config.tied_embeddings) w.lm_head = w.embedding;
  w.hash = content_hash(*storage);
  w.storage = storage;
  return w;
}

}  // namespace tandem
