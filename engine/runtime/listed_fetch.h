// Pieces that a kernel has listed, from host memory to the device: by the device's own threads, since the host does not
// know which they are.
#pragma once

#include "engine/device/launch_context.h"
#include "engine/kernels/fetch_list.h"
#include "engine/kernels/gather.h"

namespace tandem {

/// Room for a list of so many pieces, of the operation alone.
inline FetchList make_fetch_list(LaunchContext& ctx, std::uint32_t room) {
  return {ctx.scratch<std::uint32_t>(room), ctx.scratch<std::uint32_t>(room), ctx.scratch<std::uint32_t>(1)};
}

/// Moves what `list` has, pieces of `bytes` each, at most `room`; the operation's cost is `without` and their bytes.
inline void fetch_listed(LaunchContext& ctx, const FetchList& list, std::uint32_t room, std::size_t bytes,
                         const void* from, void* to, const Cost& without) {
  Cost piece;
  piece.h2d = bytes;
  ctx.settle_by(list.count, 1, piece, without);
  gather_cuda({.from = from,
               .from_stride = bytes,
               .to = to,
               .to_stride = bytes,
               .bytes = bytes,
               .from_slots = list.from,
               .to_slots = list.to,
               .count = room,
               .slots_on_host = false,
               .device_count = list.count},
              GatherWay::zero_copy, ctx.stream());
}

}  // namespace tandem
