#include "engine/runtime/shown_rows.h"

#include <utility>

#include "engine/common/error.h"
#include "engine/runtime/copy_op.h"

namespace tandem {

ShownRows::ShownRows(Device& device, const ModelShape& shape, std::uint32_t max_rows)
    : device_(device),
      hidden_(shape.hidden),
      dim_(shape.head_dim),
      q_width_(std::size_t{shape.q_heads} * shape.head_dim),
      kv_width_(std::size_t{shape.kv_heads} * shape.head_dim),
      max_rows_(max_rows) {
  kv_ = device.allocate_device(2 * max_rows_ * kv_width_ * sizeof(float), "shown: K and V");
  host_kv_ = device.allocate_host(2 * max_rows_ * kv_width_ * sizeof(float), "shown: K and V on the host");
  host_x_ = device.allocate_host(max_rows_ * hidden_ * sizeof(float), "shown: layer inputs");
  host_q_ = device.allocate_host(max_rows_ * q_width_ * sizeof(float), "shown: queries");
}

KvPlaces ShownRows::places(const LaunchContext& ctx, const std::vector<std::uint32_t>& positions,
                           std::vector<QkvToken>& tokens) const {
  TANDEM_CHECK(positions.size() <= max_rows_, "{} rows to show, room for {}", positions.size(), max_rows_);
  const std::size_t row_bytes = kv_width_ * sizeof(float);
  tokens.resize(positions.size());
  for (std::size_t row = 0; row < positions.size(); ++row) tokens[row] = {row * row_bytes, positions[row]};
  auto* const k = ctx.write<float>(kv_);
  return {k, k + positions.size() * kv_width_, DType::f32, dim_ * sizeof(float)};
}

void ShownRows::copy(std::uint32_t layer, std::vector<Part> parts, Event written) {
  Op op("show observer", Cause::transfer, layer);
  op.after = {written};
  for (const Part& part : parts) op.access.insert(op.access.end(), {part.from.reads(), part.to.writes()});
  set_copies(op, [parts = std::move(parts)](Copier& copier) {
    for (const Part& part : parts) copier.between(part.to, part.from).add(0, 0, part.floats * sizeof(float));
  });
  device_.host_wait(device_.submit(device_.lane(LaneKind::d2h), std::move(op)));
}

void ShownRows::show_qkv(ForwardObserver& observer, std::uint32_t layer, const std::vector<std::uint32_t>& positions,
                         const DeviceBuffer& x, const DeviceBuffer& q, Event written) {
  const std::size_t rows = positions.size();
  copy(layer, {{x, host_x_, rows * hidden_}, {q, host_q_, rows * q_width_}, {kv_, host_kv_, 2 * rows * kv_width_}},
       written);
  const float* const kv = device_.host_read<float>(host_kv_).data();
  observer.qkv_done({layer, positions, device_.host_read<float>(host_x_).data(),
                     device_.host_read<float>(host_q_).data(), kv, kv + rows * kv_width_});
}

void ShownRows::show_predicted(ForwardObserver& observer, std::uint32_t layer,
                               const std::vector<std::uint32_t>& positions, const DeviceBuffer& q, Event written) {
  copy(layer, {{q, host_q_, positions.size() * q_width_}}, written);
  observer.query_predicted({layer, positions, device_.host_read<float>(host_q_).data()});
}

}  // namespace tandem
