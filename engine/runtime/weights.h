// Attention weights that mechanisms ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/attention_span.h"

namespace tandem {

struct LayerContext;

/// Scores of one row's device item: under query head h those of `tokens` begin at offset + h * stride floats. Packed
/// tokens follow the step's own token on a CPU; on a GPU they follow all rows' own pages, [rows][Hq][16].
struct EmittedWeights {
  std::uint32_t row = 0;
  std::uint32_t id = 0;  // WeightsTo::id
  Range tokens;
  std::size_t offset = 0, stride = 0;
};

/// Takes in what a step's attention on the device gives its tokens.
class WeightsTaker {
 public:
  virtual ~WeightsTaker() = default;
  /// Tokens that get weights at most.
  virtual std::uint32_t most_tokens(std::uint32_t id) const = 0;
  /// After the device's part of the layer's attention: weights are of a softmax over what the device attended.
  /// `scores`: before the softmax, whose sums are in `lse` [rows][Hq].
  virtual void take_weights(const LayerContext& context, std::span<const EmittedWeights> rows,
                            const DeviceBuffer& scores, const DeviceBuffer& lse) = 0;
};

struct WeightsTo {
  WeightsTaker* taker = nullptr;
  std::uint32_t id = 0;  // of what the taker keeps
};

/// Weights of tokens in host memory: [layer][Hq][capacity] f32.
struct HostWeights {
  HostBuffer values;
  std::uint32_t q_heads = 0, capacity = 0;

  std::size_t offset(std::uint32_t layer, std::uint32_t head) const {  // in floats
    return (std::size_t{layer} * q_heads + head) * capacity;
  }
  Access access(std::uint32_t layer, Range tokens, bool write) const {
    Access access = write ? values.writes(tokens.begin, tokens.end) : values.reads(tokens.begin, tokens.end);
    access.extent.layer = layer;
    return access;
  }
};

/// Stands for all tokens before a new prompt, and takes in the weights of the new prompt's queries.
class OlderTokens {
 public:
  OlderTokens() = default;
  OlderTokens(const OlderTokens&) = default;
  OlderTokens& operator=(const OlderTokens&) = default;
  virtual ~OlderTokens() = default;
  /// Room for the weights of the new tokens.
  virtual void begin_prompt(Device& device, Range tokens) = 0;
  virtual std::uint32_t count(std::uint32_t layer) const = 0;  // of a KV head
  virtual std::size_t token_bytes() const = 0;                 // of a KV head, with what is kept of it
  virtual void append_prompt_access(std::uint32_t layer, std::vector<Access>& out) const = 0;
  virtual KvSpan span(const BodyContext& ctx, std::uint32_t layer, std::uint32_t kv_head) const = 0;
  /// Sums over the group's query heads: [count] of theirs, and [tokens of the new prompt].
  struct Mass {
    float *kept = nullptr, *arriving = nullptr;
  };
  virtual Mass mass_of(const BodyContext& ctx, std::uint32_t layer, std::uint32_t kv_head) const = 0;
};

}  // namespace tandem
