// A look at what the forward pass computes, for statistics about a model (eval/heads). Off by default: an engine
// without an observer tests one null pointer per layer and keeps nothing.
#pragma once

#include <cstdint>
#include <span>

namespace tandem {

/// One layer of some rows (tokens), after RoPE and before attention. The pointers are valid during the call only.
struct QkvRows {
  std::uint32_t layer = 0;
  std::span<const std::uint32_t> positions;  // [rows]
  const float* x = nullptr;                  // [rows][hidden], the layer's input before its norm
  const float* q = nullptr;                  // [rows][Hq][D]
  const float* k = nullptr;                  // [rows][Hkv][D]
  const float* v = nullptr;                  // [rows][Hkv][D]
};

/// Queries of a layer that were predicted from an earlier layer's input.
struct PredictedRows {
  std::uint32_t layer = 0;
  std::span<const std::uint32_t> positions;  // [rows]
  const float* q = nullptr;                  // [rows][Hq][D]
};

class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  /// Called in the order of the compute lane: chunk by chunk, layer by layer. May run on the lane's own thread.
  virtual void qkv_done(const QkvRows& rows) = 0;
  virtual void query_predicted(const PredictedRows&) {}
};

}  // namespace tandem
