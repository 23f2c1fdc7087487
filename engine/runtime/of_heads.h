// Something of each KV head, kept once where all of them have the same.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/device/types.h"

namespace tandem {

/// What a row attends of the store, in order: pages, or for launches the tokens, whose pages kernels list. As a rule
/// all KV heads attend the same.
template <class Run>
struct OfHeads {
  std::vector<Run> all;                   // of every KV head, until some get runs of their own:
  std::vector<std::vector<Run>> by_head;  // [KV head] then all of these

  bool empty() const { return all.empty() && by_head.empty(); }
  const std::vector<Run>& runs(std::uint32_t kv_head) const { return by_head.empty() ? all : by_head[kv_head]; }
  void add(Range heads, std::uint32_t kv_heads, std::vector<Run> more) {
    const auto append = [&](std::vector<Run>& to) { to.insert(to.end(), more.begin(), more.end()); };
    if (by_head.empty() && heads == Range{0, kv_heads}) {
      if (!all.empty()) return append(all);
      all = std::move(more);
      return;
    }
    if (by_head.empty()) by_head.assign(kv_heads, std::exchange(all, {}));
    for (std::uint32_t head = heads.begin; head < heads.end; ++head) append(by_head[head]);
  }
};

}  // namespace tandem
