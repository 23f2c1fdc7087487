// Pieces that a kernel has listed, from host memory to the device: by the device's own threads, since the host does not
// know which they are.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/device/launch_context.h"
#include "engine/kernels/fetch_list.h"
#include "engine/kernels/gather.h"

namespace tandem {

/// Room for lists of so many pieces each, of the operation alone.
inline FetchList make_fetch_list(LaunchContext& ctx, std::uint32_t lists, std::uint32_t room) {
  const std::size_t all = std::size_t{lists} * room;
  return {ctx.scratch<std::uint32_t>(all), ctx.scratch<std::uint32_t>(all), ctx.scratch<std::uint32_t>(lists), room};
}

/// Moves them all by one kernel.
inline void gather_lists(LaunchContext& ctx, const std::vector<Pieces>& lists) {
  std::size_t most = 0;
  for (const Pieces& pieces : lists) {
    check_pieces(pieces);
    most = std::max(most, pieces.bytes * pieces.count);
  }
  gather_lists_cuda(ctx.pass(lists), static_cast<std::uint32_t>(lists.size()), most, ctx.stream());
}

/// Moves what `list` has, pieces of `bytes` each: those of the i-th list into to[i]. The operation's cost is `without`
/// and their bytes.
inline void fetch_listed(LaunchContext& ctx, const FetchList& list, std::size_t bytes, const void* from,
                         const std::vector<void*>& to, const Cost& without) {
  Cost piece;
  piece.h2d = bytes;
  ctx.settle_by(list.count, static_cast<std::uint32_t>(to.size()), piece, without);
  std::vector<Pieces> lists;
  lists.reserve(to.size());
  for (std::size_t i = 0; i < to.size(); ++i) {
    lists.push_back({.from = from,
                     .from_stride = bytes,
                     .to = to[i],
                     .to_stride = bytes,
                     .bytes = bytes,
                     .from_slots = list.from + i * list.room,
                     .to_slots = list.to + i * list.room,
                     .count = list.room,
                     .slots_on_host = false,
                     .device_count = list.count + i});
  }
  gather_lists(ctx, lists);
}

}  // namespace tandem
