// Keeps what one prompt's forward pass computes: keys and values of all tokens, queries and layer inputs of the last
// ones.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/runtime/engine.h"
#include "engine/runtime/observer.h"

namespace tandem::eval {

class HeadCapture : public ForwardObserver {
 public:
  /// Room for `tokens` tokens, of which those from first_query on keep their queries.
  HeadCapture(const ModelShape& shape, std::uint32_t tokens, std::uint32_t first_query);
  void qkv_done(const QkvRows& rows) override;

  std::uint32_t queries() const { return tokens_ - first_query_; }
  std::uint32_t position(std::uint32_t query) const { return first_query_ + query; }
  const float* keys(std::uint32_t layer, std::uint32_t kv_head) const;    // [tokens][D]
  const float* values(std::uint32_t layer, std::uint32_t kv_head) const;  // [tokens][D]
  const float* query(std::uint32_t layer, std::uint32_t query) const;     // [Hq][D]
  const float* inputs(std::uint32_t layer) const;                         // [queries][hidden]

 private:
  struct Layer {
    std::vector<float> keys, values;     // [Hkv][tokens][D]
    std::vector<float> queries, inputs;  // [queries][Hq][D], [queries][hidden]
  };
  ModelShape shape_;
  std::uint32_t tokens_, first_query_;
  std::vector<Layer> layers_;
};

/// Captured while a prompt is prefilled; without its last token, which the engine leaves to decoding.
HeadCapture captured_prompt(Engine& engine, const std::vector<std::int32_t>& prompt, std::uint32_t first_query);

/// Shows an engine's forward passes to `observer` while it lives, also where a prompt fails meanwhile.
class Observation {
 public:
  Observation(Engine& engine, ForwardObserver& observer) : engine_(engine) { engine_.observe(&observer); }
  ~Observation();
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

 private:
  Engine& engine_;
};

}  // namespace tandem::eval
