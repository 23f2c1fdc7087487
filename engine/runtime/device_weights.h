// A model's weights in a GPU's memory: one allocation, and the places of the tensors in it. What reads the same input
// lies side by side, so that it is one product: queries, keys and values; gate and up.
//
// Devices that run on the CPU read the model's own copy: there the allocation is address space that nobody touches,
// which makes a model that does not fit an error, as on a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/rope.h"
#include "engine/model/model.h"

namespace tandem {

/// A tensor's place; empty where the model does not have it.
struct PlacedMatrix {
  std::size_t offset = 0;  // bytes, a multiple of 256
  DType type = DType::f32;
  std::uint32_t rows = 0, cols = 0;
};

class DeviceWeights {
 public:
  struct Layer {
    PlacedMatrix input_norm;
    PlacedMatrix qkv;       // [(Hq + 2 Hkv) D][hidden]
    PlacedMatrix qkv_bias;  // [1][(Hq + 2 Hkv) D], f32
    PlacedMatrix q_norm, k_norm;
    PlacedMatrix o;
    PlacedMatrix post_norm;
    PlacedMatrix gate_up;  // [2 intermediate][hidden]
    PlacedMatrix down;
  };

  /// RunError where the device has no room. Where it launches, the weights are there when this returns; InputError for
  /// tensors that make one product and are stored in different types.
  DeviceWeights(Device& device, const Model& model, const RopeTable& rope);

  const DeviceBuffer& buffer() const { return buffer_; }
  /// What an operation that reads `layer` declares.
  Access reads_layer(std::uint32_t layer) const { return buffer_.reads(layer, layer + 1); }
  /// ... that reads the embedding, the final norm or the head.
  Access reads_ends() const { return buffer_.reads(layers_, layers_ + 1); }

  const Layer& layer(std::uint32_t layer) const { return placed_[layer]; }
  const PlacedMatrix& embedding() const { return embedding_; }
  const PlacedMatrix& final_norm() const { return final_norm_; }
  const PlacedMatrix& lm_head() const { return lm_head_; }

  /// In device memory, for a launch that declared it; an empty view of what the model does not have.
  MatrixView view(const LaunchContext& ctx, const PlacedMatrix& placed) const {
    if (placed.rows == 0) return {};
    return {ctx.read<char>(buffer_) + placed.offset, placed.type, placed.rows, placed.cols};
  }
  /// [D / 2] f64: RopeTable::inverse_frequency, for operations of a layer.
  const double* inverse_frequency(const LaunchContext& ctx) const {
    return reinterpret_cast<const double*>(ctx.read<char>(buffer_) + inverse_frequency_);
  }

 private:
  std::uint32_t layers_ = 0;
  std::vector<Layer> placed_;
  PlacedMatrix embedding_, final_norm_, lm_head_;
  std::size_t inverse_frequency_ = 0;
  DeviceBuffer buffer_;
};

}  // namespace tandem
