#include "engine/runtime/partials.h"

#include <algorithm>
#include <utility>

#include "engine/device/launch_context.h"
#include "engine/kernels/attention.h"
#include "engine/runtime/copy_op.h"

namespace tandem {

PartialBuffers make_partials(Device& device, const ModelShape& shape, std::uint32_t rows, std::string part,
                             std::string lse) {
  const std::size_t heads = std::size_t{rows} * shape.q_heads;
  return {device.allocate_device(heads * shape.head_dim * sizeof(float), std::move(part)),
          device.allocate_device(heads * sizeof(float), std::move(lse))};
}

HostRoom make_host_room(Device& device, const ModelShape& shape, std::uint32_t rows, const std::string& prefix) {
  const std::size_t heads = std::size_t{rows} * shape.q_heads, values = heads * shape.head_dim * sizeof(float);
  HostRoom room;
  room.landed =
      make_partials(device, shape, rows, prefix + "host partial on the device", prefix + "host lse on the device");
  room.query = device.allocate_host(values, prefix + "query on the host");
  room.part = device.allocate_host(values, prefix + "host partial");
  room.lse = device.allocate_host(heads * sizeof(float), prefix + "host lse");
  return room;
}

void set_merge(Op& op, const ModelShape& shape, std::uint32_t rows, std::vector<PartialBuffers> parts,
               const DeviceBuffer& out, std::vector<bool> has_last) {
  const auto units = static_cast<std::uint32_t>(std::max<std::size_t>(has_last.size(), 1));
  const std::uint32_t heads = rows * shape.q_heads / units;  // that has_last says the same of
  const auto pointers = [](const BodyContext& ctx, const std::vector<PartialBuffers>& of, std::size_t first_head,
                           std::uint32_t dim) {
    std::pair<std::vector<const float*>, std::vector<const float*>> all;  // outputs, sums
    for (const PartialBuffers& part : of) {
      all.first.push_back(ctx.read<float>(part.out) + first_head * dim);
      all.second.push_back(ctx.read<float>(part.lse) + first_head);
    }
    return all;
  };
  op.launch = [=](LaunchContext& ctx) {
    const auto [values, sums] = pointers(ctx, parts, 0, shape.head_dim);
    LastPart last;
    if (!has_last.empty()) {
      std::vector<std::uint32_t> bits((units + 31) / 32);
      for (std::uint32_t i = 0; i < units; ++i) bits[i / 32] |= std::uint32_t{has_last[i]} << i % 32;
      last = {ctx.pass(bits), heads};
    }
    merge_partials_cuda(ctx.pass(values), ctx.pass(sums), static_cast<std::uint32_t>(parts.size()), units * heads,
                        shape.head_dim, ctx.write<float>(out), nullptr, ctx.stream(), last);
  };
  op.body = [=, parts = std::move(parts), has_last = std::move(has_last)](BodyContext& ctx) {
    for (std::uint32_t i = 0; i < units; ++i) {
      const std::size_t first = std::size_t{i} * heads;
      const auto [values, sums] = pointers(ctx, parts, first, shape.head_dim);
      const bool last = has_last.empty() || has_last[i];
      merge_partials(values.data(), sums.data(), static_cast<std::uint32_t>(parts.size()) - (last ? 0 : 1), heads,
                     shape.head_dim, ctx.write<float>(out) + first * shape.head_dim, nullptr);
    }
  };
}

void merge_host_part(Device& device, const Forward& forward, std::uint32_t rows, const HostPart& host,
                     const PartialBuffers* own) {
  const ModelShape& shape = forward.shape();
  const std::size_t width = std::size_t{shape.q_heads} * shape.head_dim;
  const auto& [query, part, lse, landed] = host.room;
  Op copy("host partials to device", Cause::transfer, host.layer);
  Op merge("merge", Cause::none, host.layer);
  merge.access = {forward.attention().writes(0, rows)};
  std::vector<bool> on_host(rows);
  for (auto row = host.rows.begin(); row != host.rows.end();) {
    const std::uint32_t begin = *row;
    std::uint32_t end = begin;
    for (; row != host.rows.end() && *row == end; ++row, ++end) on_host[end] = true;
    copy.access.insert(copy.access.end(), {part.reads(begin, end), lse.reads(begin, end), landed.out.writes(begin, end),
                                           landed.lse.writes(begin, end)});
    merge.access.insert(merge.access.end(), {landed.out.reads(begin, end), landed.lse.reads(begin, end)});
  }
  copy.after = {host.done};
  set_copies(copy, [shape, width, host](Copier& copier) {
    copier.between(host.room.landed.out, host.room.part).add_rows(host.rows, width * sizeof(float));
    copier.short_runs(host.room.landed.lse, host.room.lse).add_rows(host.rows, shape.q_heads * sizeof(float));
  });
  merge.after = {device.submit(device.lane(LaneKind::h2d), std::move(copy))};

  // Parts in, output out; rows without a part on the host are copied.
  const std::uint64_t vectors = host.rows.size() + (own != nullptr ? 2 * rows : host.rows.size());
  merge.cost.hbm = vectors * width * sizeof(float);
  merge.cost.flops = vectors * width;
  std::vector<PartialBuffers> parts;
  if (own != nullptr) {
    merge.access.insert(merge.access.end(), {own->out.reads(0, rows), own->lse.reads(0, rows)});
    parts.push_back(*own);
  }
  parts.push_back(landed);
  set_merge(merge, shape, rows, std::move(parts), forward.attention(), std::move(on_host));
  device.submit(device.lane(LaneKind::device_compute), std::move(merge));
}

}  // namespace tandem
