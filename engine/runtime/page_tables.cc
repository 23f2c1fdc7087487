#include "engine/runtime/page_tables.h"

#include <algorithm>
#include <utility>

#include "engine/common/error.h"
#include "engine/kernels/paged_attention.h"

namespace tandem {

void PageTables::update(LaunchContext& ctx, SequenceId sequence, Table& table) {
  const std::uint32_t layers = kv_.shape().layers, blocks = blocks_for(kv_.tokens(sequence));
  std::uint32_t first = table.rewrites == kv_.rewrites(sequence) ? table.blocks : 0;
  if (blocks > table.capacity) {
    constexpr std::uint32_t kLeast = 64;
    const std::uint32_t capacity = std::max(kLeast, blocks + blocks / 2);
    CudaMemory memory(std::size_t{layers} * capacity * sizeof(std::uint32_t));
    outgrown_.push_back(std::exchange(table.memory, std::move(memory)));
    table.capacity = capacity;
    first = 0;
  }
  table.rewrites = kv_.rewrites(sequence);
  table.blocks = blocks;
  if (first == 0) {
    table.restores.assign(layers, 0);
    for (std::uint32_t layer = 0; layer < layers; ++layer) table.restores[layer] = kv_.restores(sequence, layer);
  }
  if (first < blocks) place(ctx, sequence, table, {0, layers}, {first, blocks});
}

void PageTables::place(LaunchContext& ctx, SequenceId sequence, Table& table, Range layers, Range blocks) {
  std::vector<std::uint32_t> slots;
  slots.reserve(std::size_t{layers.end - layers.begin} * (blocks.end - blocks.begin));
  for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
    for (std::uint32_t block = blocks.begin; block < blocks.end; ++block)
      slots.push_back(kv_.slot(sequence, layer, block, Tier::device));
  }
  place_slots_cuda(ctx.pass(slots), layers.end - layers.begin, blocks.begin, blocks.end - blocks.begin, table.capacity,
                   table.memory.as<std::uint32_t>() + std::size_t{layers.begin} * table.capacity, ctx.stream());
}

const std::uint32_t* PageTables::slots(LaunchContext& ctx, SequenceId sequence, std::uint32_t layer) {
  Table& table = tables_[sequence];
  update(ctx, sequence, table);
  if (table.restores[layer] != kv_.restores(sequence, layer)) {
    table.restores[layer] = kv_.restores(sequence, layer);
    place(ctx, sequence, table, {layer, layer + 1}, {0, table.blocks});
  }
  return table.memory.as<std::uint32_t>() + std::size_t{layer} * table.capacity;
}

bool PageTables::moved(SequenceId sequence, std::uint32_t layer) {
  const std::uint32_t restores = kv_.restores(sequence, layer);
  if (restores == 0) return false;
  std::vector<std::uint32_t>& seen = seen_[sequence];
  seen.resize(kv_.shape().layers);
  return std::exchange(seen[layer], restores) != restores;
}

void PageTables::check(SequenceId sequence, std::uint32_t layer, Range blocks) const {
  TANDEM_CHECK(kv_.on_device(sequence, layer, blocks),
               "a plan attends blocks [{}, {}) of layer {}, which are not all on the device", blocks.begin, blocks.end,
               layer);
}

}  // namespace tandem
