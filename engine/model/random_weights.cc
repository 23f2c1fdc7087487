#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <sys/mman.h>

#include "engine/common/cgroup.h"
#include "engine/common/drawing.h"
#include "engine/common/error.h"
#include "engine/common/huge_memory.h"
#include "engine/common/in_pieces.h"
#include "engine/kernels/convert.h"
#include "engine/model/weights.h"

namespace tandem {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kChunk = 1 << 20;  // elements drawn from one seed, so that threads share the work in any way

std::shared_ptr<std::byte> memory_of(std::size_t bytes) {
  if (const std::size_t memory = available_memory(); bytes > memory)
    throw_input_error("The model's random weights take {:.1f} GB, this machine has {:.1f} GB of free memory.",
                      double(bytes) * 1e-9, double(memory) * 1e-9);
  return huge_memory(bytes, "the model's random weights");
}

/// Values are drawn from 4096 levels: a table look-up where a conversion per element took five times as long.
using Levels = std::array<float, 4096>;

Levels levels_of(const WeightSlot& slot) {
  // Matrices keep the scale of their input; norms are near 1, biases near 0.
  const double scale = slot.is_bias ? 0.1 : slot.rows == 0 ? 0.2 : 1.7 / std::sqrt(double(slot.cols));
  const double centre = slot.rows == 0 && !slot.is_bias ? 1 : 0;
  Levels levels{};
  for (std::size_t i = 0; i < levels.size(); ++i)
    levels[i] = static_cast<float>(centre + scale * ((double(i) + 0.5) / 2048 - 1));
  return levels;
}

template <class Element>
void fill(Element* out, std::size_t n, std::uint64_t seed, const std::array<Element, 4096>& table) {
  std::uint64_t counter = finalise64(seed);
  for (std::size_t i = 0; i < n;) {
    std::uint64_t bits = finalise64(counter += 0x9e3779b97f4a7c15u);
    for (int used = 0; used < 5 && i < n; ++used, bits >>= 12) out[i++] = table[bits & 4095];
  }
}

struct Chunk {
  const WeightSlot* slot;
  std::size_t first, count;  // elements
  std::uint64_t seed;
};

void fill_chunk(const Chunk& chunk) {
  const MatrixView& view = *chunk.slot->view;
  auto* data = static_cast<std::byte*>(const_cast<void*>(view.data)) + chunk.first * size_of(view.type);
  const Levels levels = levels_of(*chunk.slot);
  if (view.type == DType::f32) {
    fill(reinterpret_cast<float*>(data), chunk.count, chunk.seed, levels);
    return;
  }
  std::array<std::uint16_t, 4096> stored{};
  for (std::size_t i = 0; i < levels.size(); ++i)
    stored[i] = view.type == DType::bf16 ? float_to_bf16(levels[i]) : float_to_f16(levels[i]);
  fill(reinterpret_cast<std::uint16_t*>(data), chunk.count, chunk.seed, stored);
}

/// Views of the right shapes and types, their offsets into one allocation, and its size.
struct Layout {
  std::vector<WeightSlot> slots;
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
};

Layout lay_out(const ModelConfig& config, DType type, ModelWeights& w) {
  Layout layout;
  w.layers.resize(config.layers);
  layout.slots = weight_slots(config, w);
  for (const WeightSlot& s : layout.slots) {
    *s.view = {nullptr, s.is_bias ? DType::f32 : type, std::max(s.rows, 1u), s.cols};
    layout.offsets.push_back(layout.bytes);
    layout.bytes += (s.view->bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  return layout;
}

}  // namespace

ModelWeights shape_weights(const ModelConfig& config, DType type) {
  ModelWeights w;
  const Layout layout = lay_out(config, type, w);
  void* data = mmap(nullptr, layout.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    throw_run_error("{:.1f} GB of address space cannot be had ({}).", double(layout.bytes) * 1e-9,
                    std::strerror(errno));
  w.storage = {data, [bytes = layout.bytes](void* p) { munmap(p, bytes); }};
  for (std::size_t i = 0; i < layout.slots.size(); ++i)
    layout.slots[i].view->data = static_cast<const std::byte*>(data) + layout.offsets[i];
  if (config.tied_embeddings) w.lm_head = w.embedding;
  return w;
}

ModelWeights random_weights(const ModelConfig& config, DType type, std::uint64_t seed) {
  ModelWeights w;
  const auto [slots, offsets, bytes] = lay_out(config, type, w);
  const std::shared_ptr<std::byte> storage = memory_of(bytes);
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    slots[i].view->data = storage.get() + offsets[i];
    const std::size_t elements = std::size_t{slots[i].view->rows} * slots[i].cols;
    for (std::size_t first = 0; first < elements; first += kChunk)
      chunks.push_back({&slots[i], first, std::min(kChunk, elements - first), finalise64(seed + chunks.size()) ^ seed});
  }
  in_pieces(chunks.size(), 1, [&](std::size_t i, std::size_t) { fill_chunk(chunks[i]); });
  if (config.tied_embeddings) w.lm_head = w.embedding;
  // What the values follow from, not the values: hashing 16 GB would take longer than making them.
  w.hash = finalise64(seed ^ finalise64(static_cast<std::uint64_t>(type)));
  for (const WeightSlot& s : slots) w.hash = finalise64(w.hash ^ (std::uint64_t{s.rows} << 32 | s.cols));
  w.storage = storage;
  return w;
}

}  // namespace tandem
