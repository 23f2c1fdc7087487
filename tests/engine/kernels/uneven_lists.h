// Lists of pieces for gather_lists_cuda(), no two of them alike.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "engine/kernels/gather.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {

/// Pieces of one pinned pool to a part of `target` for each list, between pieces that stay as they are. Some lists are
/// empty; of an even number of them the first one, by its count on the device, and the last one, which has no room.
struct UnevenLists {
  static constexpr std::uint32_t kPool = 50, kRoom = 9, kPlaces = 12;  // pieces: that there are, of a list, of its part
  static constexpr std::size_t kBytes = 48, kStride = 64;
  std::vector<Pieces> lists;
  std::vector<char> expected;  // of `target`
  OnDevice<char> target;
  PinnedMemory host{kPool * kBytes};
  OnDevice<std::uint32_t> counts, from, to;

  explicit UnevenLists(std::uint32_t n) : lists(n), expected(std::size_t{n} * kPlaces * kStride, 'x') {
    std::mt19937 random(n);
    const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
    std::generate_n(host.as<char>(), host.bytes(), [&] { return static_cast<char>(random()); });
    target = OnDevice<char>(expected);
    std::vector<std::uint32_t> moved(n), sources, places(kPlaces), targets;
    std::iota(places.begin(), places.end(), 0u);
    for (std::uint32_t i = 0; i < n; ++i) {
      const bool outer = i == 0 || i + 1 == n, full = outer && n % 2 == 1;
      lists[i].count = outer && !full && i > 0 ? 0 : 1 + below(kRoom);
      moved[i] = i % 5 == 0 ? 0 : below(lists[i].count + 1);
      if (full || i % 3 == 1) moved[i] = lists[i].count;
      std::shuffle(places.begin(), places.end(), random);
      for (std::uint32_t piece = 0; piece < kRoom; ++piece) {
        sources.push_back(below(kPool));
        targets.push_back(places[piece]);
        if (piece < moved[i])
          std::memcpy(&expected[(std::size_t{i} * kPlaces + places[piece]) * kStride],
                      host.as<char>() + sources.back() * kBytes, kBytes);
      }
    }
    counts = OnDevice<std::uint32_t>(moved);
    from = OnDevice<std::uint32_t>(sources);
    to = OnDevice<std::uint32_t>(targets);
    for (std::uint32_t i = 0; i < n; ++i) {
      Pieces& list = lists[i];
      list.from = host.as<char>();
      list.from_stride = list.bytes = kBytes;
      list.to = target.data() + std::size_t{i} * kPlaces * kStride;
      list.to_stride = kStride;
      list.from_slots = from.data() + std::size_t{i} * kRoom;
      list.to_slots = to.data() + std::size_t{i} * kRoom;
      list.slots_on_host = false;
      if (i % 3 != 1) list.device_count = counts.data() + i;
    }
  }
};

}  // namespace tandem
