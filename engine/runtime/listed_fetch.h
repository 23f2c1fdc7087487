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

/// Lists that one kernel moves, one behind the other.
struct Gather {
  std::size_t first = 0, lists = 0;
  std::size_t bytes = 0;
};

/// What gather_lists() launches for lists of at most so many bytes: one kernel, or where these are very many lists or
/// bytes as few as it takes; none for nothing.
inline std::vector<Gather> plan_gathers(std::span<const std::size_t> bytes) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 34;
  std::vector<Gather> plan;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (plan.empty() || plan.back().lists == kMostLists ||
        (plan.back().bytes > 0 && plan.back().bytes + bytes[i] > kMostBytes))
      plan.push_back({i, 0, 0});
    ++plan.back().lists;
    plan.back().bytes += bytes[i];
  }
  std::erase_if(plan, [](const Gather& gather) { return gather.bytes == 0; });
  return plan;
}

/// How many kernels that is: what an operation declares.
inline std::uint32_t gathers_of(std::span<const std::size_t> bytes) {
  return static_cast<std::uint32_t>(plan_gathers(bytes).size());
}
inline std::uint32_t gathers_of(std::size_t lists, std::size_t bytes_of_each) {
  return gathers_of(std::vector<std::size_t>(lists, bytes_of_each));
}

/// Moves pieces of one size.
inline void gather_lists(LaunchContext& ctx, const std::vector<Pieces>& lists) {
  std::vector<std::size_t> bytes;
  bytes.reserve(lists.size());
  for (const Pieces& list : lists) {
    check_pieces(list);
    TANDEM_CHECK(list.bytes == lists.front().bytes, "pieces of {} and of {} bytes", lists.front().bytes, list.bytes);
    bytes.push_back(list.bytes * list.count);
  }
  for (const Gather& gather : plan_gathers(bytes)) {
    gather_lists_cuda(ctx.pass(std::span<const Pieces>(lists).subspan(gather.first, gather.lists)),
                      static_cast<std::uint32_t>(gather.lists), gather.bytes, ctx.stream());
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
