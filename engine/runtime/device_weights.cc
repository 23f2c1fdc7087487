#include "engine/runtime/device_weights.h"

#include <initializer_list>
#include <utility>

#include "engine/common/error.h"

namespace tandem {
namespace {

constexpr std::size_t kTensorAlignment =
    256;  // as cudaMalloc's: what kernels and cuBLASLt read sixteen bytes at a time

/// Copies into the allocation, collected while places are given out.
struct Plan {
  struct Copy {
    std::size_t to = 0;
    const void* from = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<Copy> copies;
  std::size_t bytes = 0;

  std::size_t place(const void* from, std::size_t size) {
    copies.push_back({bytes, from, size});
    return std::exchange(bytes, bytes + size);
  }
  void align() { bytes = (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment; }

  /// Matrices of as many columns under each other, vectors behind each other.
  PlacedMatrix place(const Model& model, std::initializer_list<MatrixView> parts) {
    PlacedMatrix placed;
    align();
    placed.offset = bytes;
    for (const MatrixView& part : parts) {
      if (!part) continue;
      if (placed.rows > 0 && part.type != placed.type) {
        throw_input_error(
            "The weights of model '{}' that make one product on a GPU (queries, keys and values; gate and up) are "
            "stored as {} and {}: store them alike.",
            model.name, to_string(placed.type), to_string(part.type));
      }
      placed.type = part.type;
      const bool vector = part.rows == 1;
      placed.cols = vector ? placed.cols + part.cols : part.cols;
      placed.rows = vector ? 1 : placed.rows + part.rows;
      place(part.data, part.bytes());
    }
    return placed;
  }
};

}  // namespace

DeviceWeights::DeviceWeights(Device& device, const Model& model, const RopeTable& rope) : layers_(model.config.layers) {
  if (!device.is_gpu()) {
    buffer_ = device.allocate_device(model.weights.bytes(), "weights");
    return;
  }
  Plan plan;
  const ModelWeights& w = model.weights;
  embedding_ = plan.place(model, {w.embedding});
  final_norm_ = plan.place(model, {w.final_norm});
  lm_head_ = w.lm_head.data == w.embedding.data ? embedding_ : plan.place(model, {w.lm_head});
  plan.align();
  inverse_frequency_ = plan.place(rope.inverse_frequency.data(), rope.inverse_frequency.size() * sizeof(double));
  placed_.reserve(w.layers.size());
  for (const LayerWeights& l : w.layers) {
    placed_.push_back({.input_norm = plan.place(model, {l.input_norm}),
                       .qkv = plan.place(model, {l.q, l.k, l.v}),
                       .qkv_bias = plan.place(model, {l.q_bias, l.k_bias, l.v_bias}),
                       .q_norm = plan.place(model, {l.q_norm}),
                       .k_norm = plan.place(model, {l.k_norm}),
                       .o = plan.place(model, {l.o}),
                       .post_norm = plan.place(model, {l.post_norm}),
                       .gate_up = plan.place(model, {l.gate, l.up}),
                       .down = plan.place(model, {l.down})});
  }
  buffer_ = device.allocate_device(plan.bytes, "weights");
  Op op("load weights", Cause::transfer);
  op.kind = Kind::copy;
  op.cost.h2d = plan.bytes;
  op.access = {buffer_.writes()};
  op.launch = [&](LaunchContext& ctx) {
    char* const to = ctx.write<char>(buffer_);
    for (const Plan::Copy& copy : plan.copies) cuda_copy(to + copy.to, copy.from, copy.bytes, ctx.stream());
  };
  device.host_wait(device.submit(device.lane(LaneKind::h2d), std::move(op)));
}

}  // namespace tandem
