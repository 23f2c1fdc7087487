// Batches of paged decode attention on a GPU or its emulation: pages with random numbers, their lists, the launch, and
// what it should give.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/kernels/attention.h"
#include "engine/kernels/paged_attention.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {

/// A batch over pages in random slots. What no list entry holds is NaN.
struct PagedBatch {
  PagedBatch(Random& random, DType kv_type, std::uint32_t kv_heads, std::uint32_t heads_per_group, std::uint32_t d,
             std::uint32_t room, float key_scale = 1)
      : type(kv_type), heads(kv_heads), group(heads_per_group), dim(d), slots(room), scale(key_scale) {
    pages.assign(std::size_t{slots} * heads * 2 * 16 * dim * size_of(type), char(0xff));
    free.resize(slots);
    std::iota(free.begin(), free.end(), 0u);
    for (std::size_t i = free.size(); i > 1; --i) std::swap(free[i - 1], free[random.below(std::uint32_t(i))]);
  }

  char* vector(std::uint32_t slot, std::uint32_t head, bool value, std::uint32_t token) {
    return pages.data() + (((std::size_t{slot} * heads + head) * 2 + value) * 16 + token) * dim * size_of(type);
  }
  /// A list entry over a fresh page with random numbers in its span.
  PageEntry page(Random& random, std::uint32_t first, std::uint32_t tokens, std::uint32_t mask = ~0u) {
    const std::uint32_t slot = free.back();
    free.pop_back();
    for (std::uint32_t h = 0; h < heads; ++h) {
      for (std::uint32_t t = first; t < first + tokens; ++t) {
        from_f32(random.normals(dim, scale).data(), type, dim, vector(slot, h, false, t));
        from_f32(random.normals(dim).data(), type, dim, vector(slot, h, true, t));
      }
    }
    return {slot, static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(tokens), mask};
  }
  std::vector<PageEntry> tokens(Random& random, std::uint32_t count) {
    std::vector<PageEntry> list;
    for (; count > 0; count -= std::min(count, 16u)) list.push_back(page(random, 0, std::min(count, 16u)));
    return list;
  }
  void fill(std::uint32_t slot, std::uint32_t token, float value) {
    const std::vector<float> key(dim, value);
    for (std::uint32_t h = 0; h < heads; ++h) from_f32(key.data(), type, dim, vector(slot, h, false, token));
  }

  std::size_t rows() const { return per_kv_head ? lists.size() / heads : lists.size(); }
  const std::vector<PageEntry>& list(std::size_t row, std::size_t head) const {
    return lists[per_kv_head ? row * heads + head : row];
  }
  std::vector<KvSpan> spans(std::size_t row, std::uint32_t head) {
    std::vector<KvSpan> out;
    for (const PageEntry& e : list(row, head))
      out.push_back({vector(e.slot, head, false, e.first), vector(e.slot, head, true, e.first), e.tokens, e.head_mask});
    return out;
  }

  DType type;
  std::uint32_t heads, group, dim, slots;
  float scale;
  std::vector<char> pages;
  std::vector<std::uint32_t> free;
  bool per_kv_head = false;
  std::vector<std::vector<PageEntry>> lists;
};

/// The batch's lists and pages on the device.
struct DeviceBatch {
  explicit DeviceBatch(const PagedBatch& batch, std::uint32_t extra = 0) : pages(batch.pages) {
    for (const auto& list : batch.lists) capacity = std::max(capacity, static_cast<std::uint32_t>(list.size()) + extra);
    std::vector<PageEntry> all(batch.lists.size() * capacity, PageEntry{0xfffffffu, 0, 16, ~0u});
    for (std::size_t l = 0; l < batch.lists.size(); ++l) {
      std::copy(batch.lists[l].begin(), batch.lists[l].end(), all.begin() + std::ptrdiff_t(l * capacity));
      counts.push_back(static_cast<std::uint32_t>(batch.lists[l].size()));
    }
    entries = OnDevice<PageEntry>(all);
    device_counts = OnDevice<std::uint32_t>(counts);
    kv = {pages.data(), batch.type, batch.heads, batch.dim};
    lists = {entries.data(), device_counts.data(), capacity, batch.per_kv_head};
  }
  std::uint32_t capacity = 0;
  std::vector<std::uint32_t> counts;
  OnDevice<char> pages;
  OnDevice<PageEntry> entries;
  OnDevice<std::uint32_t> device_counts;
  KvPages kv;
  PageLists lists;
};

struct Attended {
  std::vector<float> o, lse;
};

/// One launch of the kernel. What it leaves alone is NaN.
inline Attended attend(const AttentionPlan& plan, std::uint32_t rows, std::uint32_t group, const OnDevice<float>& q,
                       const KvPages& kv, const PageLists& lists) {
  const OnDevice<AttentionWork> work(plan.work);
  const OnDevice<AttentionMerge> merges(plan.merges);
  const std::size_t heads = std::size_t{rows} * kv.kv_heads * group;
  const std::vector<float> nothing(heads * kv.dim, std::nanf(""));
  const OnDevice<float> o(nothing), lse(std::vector<float>(heads, std::nanf("")));
  const OnDevice<float> parts(paged_attention_scratch(plan, group, kv.dim));
  PagedAttention a;
  a.q = q.data();
  a.group = group;
  a.kv = kv;
  a.lists = lists;
  a.work = work.data();
  a.merges = merges.data();
  a.work_count = static_cast<std::uint32_t>(plan.work.size());
  a.merge_count = static_cast<std::uint32_t>(plan.merges.size());
  a.part_count = plan.parts;
  a.o = o.data();
  a.lse = lse.data();
  a.parts = parts.data();
  paged_attention_cuda(a, {});
  return {o.values(), lse.values()};
}

/// `extra`: how much larger than the lists' counts the plan takes them to be.
inline Attended attend(const PagedBatch& batch, const std::vector<float>& q, std::uint32_t extra = 0) {
  const DeviceBatch device(batch, extra);
  const auto rows = static_cast<std::uint32_t>(batch.rows());
  std::vector<std::uint32_t> most = device.counts;
  for (std::uint32_t& count : most) count += extra;
  return attend(plan_paged_attention(most, rows, batch.heads, batch.per_kv_head), rows, batch.group, OnDevice<float>(q),
                device.kv, device.lists);
}

inline Attended expected(PagedBatch& batch, const std::vector<float>& q) {
  const std::size_t heads = batch.rows() * batch.heads * batch.group;
  Attended result{std::vector<float>(heads * batch.dim), std::vector<float>(heads)};
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    for (std::uint32_t h = 0; h < batch.heads; ++h) {
      const std::size_t head = (row * batch.heads + h) * batch.group;
      partial_attention_reference(&q[head * batch.dim], batch.spans(row, h), {batch.group, batch.dim, batch.type},
                                  &result.o[head * batch.dim], &result.lse[head]);
    }
  }
  return result;
}

inline void expect_agrees(const Attended& result, const Attended& oracle, double tolerance) {
  expect_near(result.o, oracle.o, tolerance);
  for (std::size_t h = 0; h < result.lse.size(); ++h) {
    if (oracle.lse[h] == -std::numeric_limits<float>::infinity())
      EXPECT_EQ(result.lse[h], -std::numeric_limits<float>::infinity());
    else
      EXPECT_NEAR(result.lse[h], oracle.lse[h], tolerance * std::max(1.0f, std::fabs(oracle.lse[h])));
  }
}

inline std::vector<float> queries(Random& random, const PagedBatch& batch) {
  return random.normals(batch.rows() * batch.heads * batch.group * batch.dim);
}

// f32 sums in another order than the oracle's; on a GPU tensor cores also cut off what a sum in f32 would round.
inline constexpr double kTolerance = 3e-5;

}  // namespace tandem
