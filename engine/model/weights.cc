#include "engine/model/weights.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <set>
#include <string_view>

#include "engine/common/error.h"
#include "engine/common/in_pieces.h"
#include "engine/common/interrupt.h"
#include "engine/common/mapped_file.h"
#include "engine/kernels/convert.h"

namespace tandem {
namespace {

MatrixView view_of(const TensorInfo& info, const WeightSlot& slot) {
  static const std::map<std::string, DType> types = {{"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16}};
  const auto type = types.find(info.dtype);
  if (type == types.end())
    throw_input_error("{}: tensor '{}' has dtype {}; weights must be F32, F16 or BF16.", info.file, slot.name,
                      info.dtype);
  const std::vector<std::uint64_t> wanted =
      slot.rows == 0 ? std::vector<std::uint64_t>{slot.cols} : std::vector<std::uint64_t>{slot.rows, slot.cols};
  if (info.shape != wanted)
    throw_input_error("{}: tensor '{}' has shape [{}] where config.json asks for [{}].", info.file, slot.name,
                      fmt::join(info.shape, ", "), fmt::join(wanted, ", "));
  return {info.bytes.data(), type->second, std::max(slot.rows, 1u), slot.cols};
}

/// A NaN would not stop anything: attention ignores it, and the answers are nonsense with sound latencies.
void check_finite(const MatrixView& view, const TensorInfo& info, const std::string& name) {
  // All ones in the exponent and nothing else: one more in its lowest bit carries into the sign's place, in every
  // number of a word at once.
  const std::uint64_t exponent = view.type == DType::f32    ? 0x7F8000007F800000u
                                 : view.type == DType::bf16 ? 0x7F807F807F807F80u
                                                            : 0x7C007C007C007C00u;
  const std::uint64_t signs = view.type == DType::f32 ? 0x8000000080000000u : 0x8000800080008000u;
  const std::uint64_t lowest = exponent & ~(exponent << 1);
  const auto* const data = static_cast<const std::byte*>(view.data);
  std::atomic<std::size_t> bad = 0;
  in_pieces(view.bytes(), std::size_t{4} << 20, [&](std::size_t from, std::size_t size) {
    const auto word_at = [&](std::size_t at, std::size_t bytes) {
      std::uint64_t word = 0;
      std::memcpy(&word, data + from + at, bytes);
      return ((word & exponent) + lowest) & signs;
    };
    std::uint64_t any = 0;
    std::size_t at = 0;
    for (; at + 8 <= size; at += 8) any |= word_at(at, 8);
    if (at < size) any |= word_at(at, size - at);
    for (at = 0; any != 0 && at < size; at += 8)
      bad += static_cast<std::size_t>(std::popcount(word_at(at, std::min<std::size_t>(8, size - at))));
  });
  if (bad > 0)
    throw_input_error("{}: tensor '{}' has {} elements that are NaN or infinity: the file is damaged.", info.file, name,
                      bad.load());
}

struct LoadedStorage {
  std::shared_ptr<const void> files;
  std::vector<std::vector<std::byte>> copies;
};

/// The format does not align tensors, but kernels read whole elements: a misaligned tensor is copied.
void align(MatrixView& view, LoadedStorage& storage) {
  if (reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.type) == 0) return;
  const auto* bytes = static_cast<const std::byte*>(view.data);
  view.data = storage.copies.emplace_back(bytes, bytes + view.bytes()).data();
}

/// Products read biases as f32; files have them in the weights' type.
void widen(MatrixView& view, LoadedStorage& storage) {
  if (view.type == DType::f32) return;
  std::vector<std::byte>& copy = storage.copies.emplace_back(std::size_t{view.cols} * sizeof(float));
  to_f32(view.data, view.type, 0, view.cols, reinterpret_cast<float*>(copy.data()));
  view.data = copy.data();
  view.type = DType::f32;
}

/// A layer's tensor that the configuration has no place for (a layer more, norms of queries) belongs to another model:
/// read as this one it would answer fluent nonsense. Further heads and tables that are computed may lie there.
void check_all_used(const TensorFiles& files, const std::vector<WeightSlot>& slots, const ModelConfig& config) {
  std::set<std::string_view> used;
  for (const WeightSlot& slot : slots) used.insert(slot.name);
  std::string first;
  std::size_t unused = 0;
  for (const auto& [name, tensor] : files.tensors()) {
    const bool of_layer = name.starts_with("model.layers.") || name.starts_with("layers.");
    if (!of_layer || used.contains(name) || used.contains("model." + name) || name.ends_with("rotary_emb.inv_freq"))
      continue;
    if (unused++ == 0) first = name;
  }
  if (unused > 0)
    throw_input_error(
        "{}: tensor '{}'{} has no place in the model that config.json describes ({}, {} layers): weights and "
        "configuration are of two models.",
        files.source(), first, unused > 1 ? fmt::format(" and {} more", unused - 1) : "", config.architecture,
        config.layers);
}

constexpr const char *kEmbedding = "model.embed_tokens.weight", *kHead = "lm_head.weight";

/// By its name, or as files have it that hold the inner model alone: without "model.". Null where there is none.
const TensorInfo* find_tensor(const TensorFiles& files, const std::string& name) {
  auto found = files.tensors().find(name);
  if (found == files.tensors().end() && name.starts_with("model.")) found = files.tensors().find(name.substr(6));
  return found == files.tensors().end() ? nullptr : &found->second;
}

/// A head of its own beside tied embeddings must hold the same numbers: transformers warns about others and takes them.
void check_tied(const TensorFiles& files, const ModelConfig& config, const MatrixView& embedding) {
  const TensorInfo* head = find_tensor(files, kHead);
  if (head == nullptr || find_tensor(files, kEmbedding) == nullptr) return;
  LoadedStorage storage;
  MatrixView view = view_of(*head, {kHead, nullptr, config.vocab, config.hidden});
  align(view, storage);
  std::vector<float> a(config.hidden), b(config.hidden);
  for (std::size_t row = 0; row < config.vocab; ++row) {
    stop_if_interrupted();
    to_f32(embedding.data, embedding.type, row * config.hidden, config.hidden, a.data());
    to_f32(view.data, view.type, row * config.hidden, config.hidden, b.data());
    if (a == b) continue;
    throw_input_error(
        "{}: tensor '{}' differs from '{}' in row {}, but field 'tie_word_embeddings' in config.json is true. Write "
        "false there if the head is the model's, or remove the tensor.",
        files.source(), kHead, kEmbedding, row);
  }
}

}  // namespace

std::vector<WeightSlot> weight_slots(const ModelConfig& c, ModelWeights& w) {
  const std::uint32_t q = c.q_heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  std::vector<WeightSlot> slots = {{"model.embed_tokens.weight", &w.embedding, c.vocab, c.hidden},
                                   {"model.norm.weight", &w.final_norm, 0, c.hidden}};
  if (!c.tied_embeddings) slots.push_back({"lm_head.weight", &w.lm_head, c.vocab, c.hidden});
  for (std::uint32_t i = 0; i < c.layers; ++i) {
    const std::string p = fmt::format("model.layers.{}.", i);
    LayerWeights& l = w.layers[i];
    for (const WeightSlot& s : std::vector<WeightSlot>{{"input_layernorm", &l.input_norm, 0, c.hidden},
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
    if (c.qkv_bias) {
      slots.push_back({p + "self_attn.q_proj.bias", &l.q_bias, 0, q, true});
      slots.push_back({p + "self_attn.k_proj.bias", &l.k_bias, 0, kv, true});
      slots.push_back({p + "self_attn.v_proj.bias", &l.v_bias, 0, kv, true});
    }
    if (c.qk_norm) {
      slots.push_back({p + "self_attn.q_norm.weight", &l.q_norm, 0, c.head_dim});
      slots.push_back({p + "self_attn.k_norm.weight", &l.k_norm, 0, c.head_dim});
    }
  }
  return slots;
}

std::size_t ModelWeights::bytes() const {
  std::size_t sum = embedding.bytes() + final_norm.bytes() + (lm_head.data == embedding.data ? 0 : lm_head.bytes());
  for (const LayerWeights& l : layers) {
    for (const MatrixView& m : {l.input_norm, l.q, l.k, l.v, l.q_bias, l.k_bias, l.v_bias, l.o, l.q_norm, l.k_norm,
                                l.post_norm, l.gate, l.up, l.down}) {
      sum += m.bytes();
    }
  }
  return sum;
}

ModelWeights load_weights(const std::filesystem::path& folder, const ModelConfig& config, const WeightPlace& place) {
  const TensorFiles files = TensorFiles::open_folder(folder, place);
  auto storage = std::make_shared<LoadedStorage>();
  storage->files = files.storage();
  ModelWeights w;
  w.mapped = !files.copied();
  w.layers.resize(config.layers);
  const std::vector<WeightSlot> slots = weight_slots(config, w);
  for (const WeightSlot& slot : slots) {
    stop_if_interrupted();
    const TensorInfo* found = find_tensor(files, slot.name);
    if (found == nullptr && config.tied_embeddings && slot.name == kEmbedding) found = find_tensor(files, kHead);
    if (found == nullptr)
      throw_input_error("{}: tensor '{}' is missing; config.json ({} layers) asks for it.", files.source(), slot.name,
                        config.layers);
    *slot.view = view_of(*found, slot);
    check_finite(*slot.view, *found, slot.name);
    align(*slot.view, *storage);
    if (slot.is_bias) widen(*slot.view, *storage);
  }
  check_all_used(files, slots, config);
  if (config.tied_embeddings) {
    check_tied(files, config, w.embedding);
    w.lm_head = w.embedding;
  }
  MappedFile::check_all();
  w.storage = storage;
  w.hash = files.hash();
  return w;
}

}  // namespace tandem
