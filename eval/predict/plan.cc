#include "eval/predict/plan.h"

#include <algorithm>
#include <cmath>

namespace tandem::eval {
namespace {

std::uint64_t whole(double count) {
  return static_cast<std::uint64_t>(std::max(0.0, std::floor(count)));
}

std::uint64_t blocks_of(std::uint32_t context, const PlanOptions& options) {
  return (context + options.block_tokens - 1) / options.block_tokens;
}

MachinePlan plan_machine(const Plan& plan, const PlanMemory& memory) {
  const PlanOptions& options = plan.options;
  const auto block = double(plan.block_bytes);
  MachinePlan out;
  out.memory = memory;
  out.device_blocks = whole(memory.device_bytes / block);
  out.block_ms = 1e3 * block / memory.link_bytes_per_second;
  out.blocks_per_step = whole(options.step_ms / out.block_ms);
  if (!memory.holds_weights()) return out;
  for (std::size_t i = 0; i < options.contexts.size(); ++i) {
    const std::uint64_t blocks = blocks_of(options.contexts[i], options);
    out.rows.push_back({options.contexts[i], out.device_blocks / blocks,
                        std::isinf(memory.host_bytes) ? kUnlimited : whole(memory.host_bytes / plan.request_bytes[i])});
    for (const std::uint32_t batch : options.batches) {
      PlanCell cell;
      cell.context = options.contexts[i];
      cell.batch = batch;
      cell.blocks = blocks * batch;
      cell.offloaded = cell.blocks - std::min(cell.blocks, out.device_blocks);
      cell.offloaded_bytes = double(cell.offloaded) * block;
      cell.restore_ms = double(cell.offloaded) * out.block_ms;
      cell.host_fits = cell.offloaded_bytes <= memory.host_bytes;
      out.cells.push_back(cell);
    }
  }
  return out;
}

}  // namespace

std::uint64_t kv_bytes_per_token(const ModelConfig& config, DType type) {
  return std::uint64_t{2} * config.layers * config.kv_heads * config.head_dim * size_of(type);
}

Plan make_plan(const Model& shape, const std::vector<PlanMemory>& machines, const PlanOptions& options) {
  Plan plan;
  plan.model = shape.name;
  plan.positions = shape.config.max_positions;
  plan.weight_bytes = shape.weights.bytes();
  plan.options = options;
  plan.token_bytes = kv_bytes_per_token(shape.config, options.kv_type);
  plan.block_bytes = plan.token_bytes * options.block_tokens;
  for (const std::uint32_t context : options.contexts)
    plan.request_bytes.push_back(double(blocks_of(context, options)) * double(plan.block_bytes));
  for (const PlanMemory& memory : machines) plan.machines.push_back(plan_machine(plan, memory));
  return plan;
}

}  // namespace tandem::eval
