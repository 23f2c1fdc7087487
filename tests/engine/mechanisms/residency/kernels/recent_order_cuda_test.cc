// The order in which slots of recent blocks give up what they hold, beside a list on which each step is acted out: on
// the CPU, and on the GPU or its emulation.
#include <algorithm>
#include <list>
#include <numeric>
#include <random>

#include "engine/mechanisms/residency/kernels/residency.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {
namespace {

using Words = std::vector<std::uint32_t>;

struct Sizes {
  std::uint32_t candidates, slots, choice, pages;
};
constexpr Sizes kSizes[] = {{12, 7, 7, 1}, {9, 5, 1, 2}, {40, 16, 6, 1}, {30, 29, 3, 2}, {900, 300, 270, 1}};

/// A choice that often has blocks of the one before.
class Choices {
 public:
  explicit Choices(const Sizes& sizes) : sizes_(sizes), random_(sizes.candidates) {}
  const Words& next() {
    std::vector<bool> is_in(sizes_.candidates);
    std::uint32_t count = 0;
    for (std::size_t i = 1; i < chosen_.size(); ++i) {
      if (random_() % 3 == 0) continue;
      is_in[chosen_[i]] = true;
      ++count;
    }
    while (count < sizes_.choice) {
      const auto block = static_cast<std::uint32_t>(random_() % sizes_.candidates);
      count += is_in[block] ? 0 : 1;
      is_in[block] = true;
    }
    chosen_ = {sizes_.choice};
    for (std::uint32_t block = 0; block < sizes_.candidates; ++block)
      if (is_in[block]) chosen_.push_back(block);
    return chosen_;
  }

 private:
  Sizes sizes_;
  std::mt19937 random_;
  Words chosen_;
};

/// Slots as nodes of a list, least recent first, each of which moves to the end when it is used.
class ActedOut {
 public:
  Words table, missing, from, to;

  explicit ActedOut(const Sizes& sizes) : table(sizes.slots, kNoBlock), sizes_(sizes), order_(sizes.slots) {
    std::iota(order_.begin(), order_.end(), 0u);
  }
  void step(const Words& chosen) {
    const auto is_hit = [&](std::uint32_t slot) {
      return std::binary_search(chosen.begin() + 1, chosen.end(), table[slot]);
    };
    std::list<std::uint32_t> hits;
    for (const std::uint32_t slot : order_)
      if (is_hit(slot)) hits.push_back(slot);
    missing = {0};
    from.clear();
    to.clear();
    for (const std::uint32_t block : Words(chosen.begin() + 1, chosen.end())) {
      if (std::find(table.begin(), table.end(), block) != table.end()) continue;
      missing.push_back(block);
      const auto victim = std::find_if(order_.begin(), order_.end(), [&](std::uint32_t slot) { return !is_hit(slot); });
      table[*victim] = block;
      for (std::uint32_t page = 0; page < sizes_.pages; ++page) {
        from.push_back(1000 + block * sizes_.pages + page);
        to.push_back(*victim * sizes_.pages + page);
      }
      order_.splice(order_.end(), order_, victim);
    }
    missing[0] = static_cast<std::uint32_t>(missing.size() - 1);
    for (const std::uint32_t slot : hits)
      order_.splice(order_.end(), order_, std::find(order_.begin(), order_.end(), slot));
  }
  Words order() const { return {order_.begin(), order_.end()}; }

 private:
  Sizes sizes_;
  std::list<std::uint32_t> order_;
};

Words host_pages(const Sizes& sizes) {
  Words pages(std::size_t{sizes.candidates} * sizes.pages);
  std::iota(pages.begin(), pages.end(), 1000u);
  return pages;
}

TEST(RecentOrder, IsThatOfAListOnTheCpu) {
  for (const Sizes& sizes : kSizes) {
    Choices choices(sizes);
    ActedOut expected(sizes);
    Words table(sizes.slots, kNoBlock), order(sizes.slots), chosen(1 + sizes.choice), missing(chosen),
        from(std::size_t{sizes.choice} * sizes.pages), to(from);
    std::iota(order.begin(), order.end(), 0u);
    const Words pages = host_pages(sizes);
    for (int step = 0; step < 2000; ++step) {
      const Words& selected = choices.next();
      expected.step(selected);
      split_residents({selected.data(), table.data(), sizes.slots, chosen.data(), missing.data()});
      std::uint32_t moves = 0;
      swap_residents({chosen.data(), missing.data(), table.data(), sizes.slots, pages.data(), sizes.pages, from.data(),
                      to.data(), &moves, order.data()});
      ASSERT_EQ(chosen, selected);
      ASSERT_EQ(Words(missing.begin(), missing.begin() + 1 + missing[0]), expected.missing) << "step " << step;
      ASSERT_EQ(Words(from.begin(), from.begin() + moves), expected.from);
      ASSERT_EQ(Words(to.begin(), to.begin() + moves), expected.to);
      ASSERT_EQ(table, expected.table);
      ASSERT_EQ(order, expected.order()) << "step " << step;
    }
  }
}

class RecentOrderCudaTest : public CudaTest {};

TEST_F(RecentOrderCudaTest, IsThatOfAList) {
  struct List {
    explicit List(const Sizes& s)
        : sizes(s),
          choices(s),
          expected(s),
          pages(host_pages(s)),
          table(Words(s.slots, kNoBlock)),
          order(expected.order()),
          selected(1 + s.choice),
          chosen(1 + s.choice),
          missing(1 + s.choice),
          from(std::size_t{s.choice} * s.pages),
          to(std::size_t{s.choice} * s.pages),
          moves(1),
          next(s.slots) {}
    Sizes sizes;
    Choices choices;
    ActedOut expected;
    OnDevice<std::uint32_t> pages, table, order, selected, chosen, missing, from, to, moves, next;
  };
  std::vector<List> lists;
  lists.reserve(std::size(kSizes));
  std::vector<ResidentSplit> splits;
  std::vector<ResidentSwap> swaps;
  for (const Sizes& sizes : kSizes) {
    const List& list = lists.emplace_back(sizes);
    splits.push_back({list.selected.data(), list.table.data(), sizes.slots, list.chosen.data(), list.missing.data()});
    swaps.push_back({list.chosen.data(), list.missing.data(), list.table.data(), sizes.slots, list.pages.data(),
                     sizes.pages, list.from.data(), list.to.data(), list.moves.data(), list.order.data(),
                     list.next.data()});
  }
  const OnDevice<ResidentSplit> all_splits(splits);
  const OnDevice<ResidentSwap> all_swaps(swaps);
  const auto count = static_cast<std::uint32_t>(lists.size());
  for (int step = 0; step < 150; ++step) {
    for (List& list : lists) {
      const Words& selected = list.choices.next();
      list.selected.set(selected);
      list.expected.step(selected);
    }
    split_residents_cuda(all_splits.data(), count, {});
    swap_residents_cuda(all_swaps.data(), count, {});
    for (const List& list : lists) {
      const std::uint32_t moves = list.moves.values()[0];
      ASSERT_EQ(list.missing.first(list.expected.missing.size()), list.expected.missing) << "step " << step;
      ASSERT_EQ(moves, list.expected.from.size());
      ASSERT_EQ(list.from.first(moves), list.expected.from);
      ASSERT_EQ(list.to.first(moves), list.expected.to);
      ASSERT_EQ(list.table.values(), list.expected.table);
      ASSERT_EQ(list.order.values(), list.expected.order()) << "step " << step << ", " << list.sizes.slots << " slots";
    }
  }
}

}  // namespace
}  // namespace tandem
