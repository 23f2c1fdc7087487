// What is known of every byte of memory that was touched, in cells: those of 256 bytes are as large as the smallest
// piece of them that was touched at once, so that a large copy is not millions of cells.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tandem::cuda_emulator {

template <class Cell>
class Shadow {
 public:
  Shadow() = default;
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  /// Calls visit(cell) for the cells of these bytes, new ones where there were none, until one gives false. Whether
  /// none did.
  template <class Visit>
  bool visit(const void* at, std::size_t bytes, const Visit& visit) {
    const auto from = reinterpret_cast<std::uintptr_t>(at), to = from + bytes;
    for (std::uintptr_t byte = from; byte < to;) {
      const std::uintptr_t number = byte / kPageBytes, begin = number * kPageBytes,
                           end = std::min(to, begin + kPageBytes);
      Page& page = page_of(number);
      refine(page, static_cast<unsigned>(std::countr_zero((byte - begin) | (end - begin) | kPageBytes)));
      for (std::uintptr_t i = (byte - begin) >> page.shift; i < (end - begin) >> page.shift; ++i)
        if (!visit(page.cells[i])) return false;
      byte = end;
    }
    return true;
  }

  /// Calls visit(address, bytes, cell) for every cell that there is, in pages that come in any order.
  template <class Visit>
  void each(const Visit& visit) const {
    for (const auto& [number, page] : pages_)
      for (std::size_t i = 0; i < page.cells.size(); ++i)
        visit(number * kPageBytes + (i << page.shift), std::size_t{1} << page.shift, page.cells[i]);
  }

  /// As if nothing had been touched. The room stays.
  void reset() {
    for (auto& [number, page] : pages_) page.cells.clear();
  }
  /// The same of these bytes, which begin at a multiple of 256 and share their last 256 with nothing. Their room goes.
  void reset(const void* at, std::size_t bytes) {
    const auto from = reinterpret_cast<std::uintptr_t>(at) / kPageBytes,
               to = (reinterpret_cast<std::uintptr_t>(at) + bytes + kPageBytes - 1) / kPageBytes;
    known_ = {};
    if (to - from > pages_.size()) {
      std::erase_if(pages_, [&](const auto& page) { return page.first >= from && page.first < to; });
    } else {
      for (std::uintptr_t number = from; number < to; ++number) pages_.erase(number);
    }
  }

 private:
  static constexpr std::uintptr_t kPageBytes = 256;
  struct Page {
    unsigned shift = 0;  // a cell is 1 << shift bytes
    std::vector<Cell> cells;
  };

  Page& page_of(std::uintptr_t number) {
    auto& [known, page] = known_[number % known_.size()];
    if (page == nullptr || known != number) {
      page = &pages_[number];
      known = number;
    }
    return *page;
  }
  static void refine(Page& page, unsigned shift) {
    if (page.cells.empty()) {
      page.shift = shift;
      page.cells.resize(kPageBytes >> shift);
    } else if (shift < page.shift) {
      std::vector<Cell> finer(kPageBytes >> shift);
      for (std::size_t i = 0; i < finer.size(); ++i) finer[i] = page.cells[i >> (page.shift - shift)];
      page = {shift, std::move(finer)};
    }
  }

  std::unordered_map<std::uintptr_t, Page> pages_;
  std::array<std::pair<std::uintptr_t, Page*>, 64> known_{};  // by number % 64: threads come back to the same ones
};

}  // namespace tandem::cuda_emulator
