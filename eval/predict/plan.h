// What a model's KV takes, before anything runs: bytes per token, block and request, how many requests the memories of
// machines hold, what a batch leaves over for host memory, and what the link can bring back within a step. Arithmetic
// alone; what methods make of it is `tandem simulate`'s. From the KV formulas of the article on long-context serving
// (eval/reproduce/published/long_context_serving.json has its figures and where its own totals do not follow from
// them).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/kernels/tensor.h"
#include "engine/model/model.h"
#include "eval/predict/precision.h"

namespace tandem::eval {

/// A machine as a plan sees it.
struct PlanMemory {
  std::string name;         // of its profile: "fluxion-a100"
  std::string title;        // "A100-80G PCIe 4, EPYC 7V13 24 cores"
  double device_bytes = 0;  // for KV: what is left beside weights and activations; at most 0: not even those fit
  double host_bytes = 0;    // for KV; infinite where it is not known
  double link_bytes_per_second = 0;

  bool holds_weights() const { return device_bytes > 0; }
};

struct PlanOptions {
  Precision precision;
  std::uint32_t block_tokens = 32;
  std::vector<std::uint32_t> contexts, batches;
  double step_ms = 100;  // of a decode step, in which blocks can be brought back
};

/// One batch at one context.
struct PlanCell {
  std::uint32_t context = 0, batch = 0;
  std::uint64_t blocks = 0;     // of all requests; a request's last block may be part full and is whole here
  std::uint64_t offloaded = 0;  // of these, what does not fit on the device
  double offloaded_bytes = 0;
  double restore_ms = 0;  // to bring all of them back once, the link at its rate
  bool host_fits = true;
};

struct PlanRow {
  std::uint32_t context = 0;
  std::uint64_t on_device = 0, on_host = 0;  // whole requests in each alone; on_host is kUnlimited where not known
};

inline constexpr std::uint64_t kUnlimited = UINT64_MAX;

struct MachinePlan {
  PlanMemory memory;
  std::uint64_t device_blocks = 0;
  double block_ms = 0;                // over the link
  std::uint64_t blocks_per_step = 0;  // that the link brings back within a step
  std::vector<PlanRow> rows;          // one per context; none where the device does not hold the weights
  std::vector<PlanCell> cells;        // by context, then batch; as those
};

struct Plan {
  std::string model;
  std::uint32_t positions = 0;  // that the model knows
  std::uint64_t weight_bytes = 0;
  PlanOptions options;
  std::uint64_t token_bytes = 0, block_bytes = 0;  // over all layers
  std::vector<double> request_bytes;               // one per context
  std::vector<MachinePlan> machines;
};

/// 2 x layers x KV heads x head size x bytes of a number: of one token, over all layers.
std::uint64_t kv_bytes_per_token(const ModelConfig& config, DType type);

/// Of `shape` its name, configuration and weight bytes count. Needs a machine, a context and a batch.
Plan make_plan(const Model& shape, const std::vector<PlanMemory>& machines, const PlanOptions& options);

/// Of one machine in detail, of several side by side.
std::string plan_text(const Plan& plan, bool markdown);
std::string plan_json(const Plan& plan);

}  // namespace tandem::eval
