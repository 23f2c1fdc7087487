// Lists of host slots that only grow, and pieces of what crosses the link.
#include "engine/kv/host_pages.h"

#include <gtest/gtest.h>

#include "engine/kv/link_pieces.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

TEST(HostPages, AreLookedUpOnceAndKeptForWhoHasThem) {
  const auto device = sim();
  KvStore kv(*device, {2, 2, 16, DType::f32}, {std::size_t{1} << 20, std::size_t{1} << 20});
  const SequenceId id = kv.create();
  std::vector<Event> after;
  kv.grow(id, 160, after);
  HostPages pages(2);
  kv.add_host_blocks(id, 1, {2, 5}, after);
  const HostPages::List first = pages.of(kv, id, 1, {2, 5});
  ASSERT_EQ(first->size(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ((*first)[i], kv.slot(id, 1, 2 + i, Tier::host));
  EXPECT_EQ(pages.of(kv, id, 1, {2, 5}), first) << "the same list, not a copy";
  kv.add_host_blocks(id, 1, {5, 9}, after);
  const HostPages::List second = pages.of(kv, id, 1, {2, 9});
  ASSERT_EQ(second->size(), 7u);
  EXPECT_EQ(second->back(), kv.slot(id, 1, 8, Tier::host));
  EXPECT_EQ(first->size(), 3u) << "as it was for who got it before";
  EXPECT_TRUE(pages.of(kv, id, 0, {0, 0})->empty());
}

TEST(LinkPieces, AreRunsOfHostMemory) {
  const auto device = sim();
  const KvStore kv(*device, {1, 2, 16, DType::f32}, {std::size_t{1} << 20, std::size_t{1} << 20});
  const std::size_t vector = kv.shape().vector_bytes(), half = 16 * vector, page = kv.shape().page_bytes();
  LinkPieces slots;  // whole ones: 3 and 4 are adjacent, 6 is not
  for (const std::uint32_t slot : {3u, 4u, 6u}) slots.add(kv.k_offset(slot, 0), kv.shape().slot_bytes());
  EXPECT_EQ(slots.count(), 2u);
  LinkPieces head;  // K and V of a page are; the next page of the head is not, but the next head of the page is
  head.add(kv.k_offset(3, 0), half);
  head.add(kv.v_offset(3, 0), half);
  EXPECT_EQ(head.count(), 1u);
  head.add(kv.k_offset(4, 0), page);
  EXPECT_EQ(head.count(), 2u);
  head.add(kv.k_offset(4, 1), page);
  EXPECT_EQ(head.count(), 2u);
  LinkPieces token;
  token.add(kv.k_offset(3, 0), vector);
  token.add(kv.v_offset(3, 0), vector);
  EXPECT_EQ(token.count(), 2u);
  EXPECT_EQ(LinkPieces().count(), 0u);
}

}  // namespace
}  // namespace tandem::testing
