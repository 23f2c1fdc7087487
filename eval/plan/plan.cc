#include "eval/plan/plan.h"

#include <algorithm>
#include <cmath>

namespace tandem::eval {
namespace {

std::uint64_t whole(double count) {
  return static_cast<std::uint64_t>(std::max(0.0, std::floor(count)));
}

}  // namespace

std::uint64_t kv_bytes_per_token(const ModelConfig& config, DType type) {
  return std::uint64_t{2} * config.layers * config.kv_heads * config.head_dim * size_of(type);
}

Plan make_plan(const std::string& model, const ModelConfig& config, const PlanMemory& memory,
               const PlanOptions& options) {
  Plan plan;
  plan.model = model;
  plan.memory = memory;
  plan.options = options;
  plan.token_bytes = kv_bytes_per_token(config, options.kv_type);
  plan.block_bytes = plan.token_bytes * options.block_tokens;
  const auto block = double(plan.block_bytes);
  plan.device_blocks = whole(memory.device_bytes / block);
  plan.block_ms = 1e3 * block / memory.link_bytes_per_second;
  plan.blocks_per_step = whole(options.step_ms / plan.block_ms);
  for (const std::uint32_t context : options.contexts) {
    const std::uint64_t blocks = (context + options.block_tokens - 1) / options.block_tokens;
    const double bytes = double(blocks) * block;
    plan.rows.push_back({context, bytes, plan.device_blocks / blocks,
                         std::isinf(memory.host_bytes) ? kUnlimited : whole(memory.host_bytes / bytes)});
    for (const std::uint32_t batch : options.batches) {
      PlanCell cell;
      cell.context = context;
      cell.batch = batch;
      cell.blocks = blocks * batch;
      cell.offloaded = cell.blocks - std::min(cell.blocks, plan.device_blocks);
      cell.offloaded_bytes = double(cell.offloaded) * block;
      cell.restore_ms = double(cell.offloaded) * plan.block_ms;
      cell.host_fits = cell.offloaded_bytes <= memory.host_bytes;
      plan.cells.push_back(cell);
    }
  }
  return plan;
}

}  // namespace tandem::eval
