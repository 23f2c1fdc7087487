#include "engine/runtime/host_parts.h"

#include <algorithm>

#include "engine/kernels/attention.h"
#include "engine/kernels/merge.h"

namespace tandem {

std::vector<HeadPart> cut_parts(const std::vector<HeadSpans>& work, std::size_t vector_bytes,
                                std::uint32_t part_tokens) {
  std::vector<HeadPart> parts;
  for (std::size_t entry = 0; entry < work.size(); ++entry) {
    parts.push_back({entry, {}});
    std::uint32_t room = part_tokens;
    for (const KvSpan& span : work[entry].spans) {
      for (std::uint32_t at = 0; at < span.tokens;) {
        if (room == 0) {
          parts.push_back({entry, {}});
          room = part_tokens;
        }
        const std::uint32_t take = std::min(room, span.tokens - at);
        const std::size_t skip = at * vector_bytes;
        parts.back().spans.push_back(
            {static_cast<const char*>(span.k) + skip, static_cast<const char*>(span.v) + skip, take, span.head_mask});
        at += take;
        room -= take;
      }
    }
  }
  return parts;
}

void attend_in_parts(ThreadPool& pool, const ModelShape& shape, DType kv, const std::vector<HeadSpans>& work,
                     const std::vector<HeadPart>& parts, const float* query, float* o, float* lse) {
  const std::uint32_t group = shape.group();
  const std::size_t width = std::size_t{group} * shape.head_dim;
  std::vector<float> part_o(parts.size() * width), part_lse(parts.size() * group);
  const auto first_head = [&](const HeadSpans& of) { return std::size_t{of.row} * shape.q_heads + of.kv_head * group; };
  pool.parallel_for(parts.size(), [&](std::size_t i) {
    partial_attention(query + first_head(work[parts[i].entry]) * shape.head_dim, parts[i].spans,
                      {group, shape.head_dim, kv}, part_o.data() + i * width, part_lse.data() + i * group);
  });
  for (std::size_t first = 0, last = 0; first < parts.size(); first = last) {
    std::vector<const float*> os, lses;
    for (; last < parts.size() && parts[last].entry == parts[first].entry; ++last) {
      os.push_back(part_o.data() + last * width);
      lses.push_back(part_lse.data() + last * group);
    }
    const std::size_t at = first_head(work[parts[first].entry]);
    merge_partials(os.data(), lses.data(), static_cast<std::uint32_t>(os.size()), group, shape.head_dim,
                   o + at * shape.head_dim, lse + at);
  }
}

}  // namespace tandem
