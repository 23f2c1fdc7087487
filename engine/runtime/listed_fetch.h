// Pieces that a kernel has listed, from host memory to the device: by the device's own threads, since the host does not
// know which they are.
#pragma once

#include <span>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/fetch_list.h"
#include "engine/kernels/gather.h"

namespace tandem {

/// Room for lists of so many pieces each, of the operation alone.
inline FetchList make_fetch_list(LaunchContext& ctx, std::uint32_t lists, std::uint32_t room) {
  const std::size_t all = std::size_t{lists} * room;
  return {ctx.scratch<std::uint32_t>(all), ctx.scratch<std::uint32_t>(all), ctx.scratch<std::uint32_t>(lists), room};
}

/// Moves pieces of one size by one kernel, or where these are very many lists or bytes by as few as it takes.
inline void gather_lists(LaunchContext& ctx, const std::vector<Pieces>& lists) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 34;
  for (std::size_t first = 0; first < lists.size();) {
    std::size_t end = first, bytes = 0;
    for (; end < lists.size() && end < first + kMostLists; ++end) {
      check_pieces(lists[end]);
      TANDEM_CHECK(lists[end].bytes == lists[first].bytes, "pieces of {} and of {} bytes", lists[first].bytes,
                   lists[end].bytes);
      const std::size_t own = lists[end].bytes * lists[end].count;
      if (end > first && bytes + own > kMostBytes) break;
      bytes += own;
    }
    gather_lists_cuda(ctx.pass(std::span<const Pieces>(lists).subspan(first, end - first)),
                      static_cast<std::uint32_t>(end - first), bytes, ctx.stream());
    first = end;
  }
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
