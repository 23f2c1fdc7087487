#include "engine/runtime/host_parts.h"

#include <algorithm>

#include "engine/kernels/attention.h"
#include "engine/kernels/merge.h"

namespace tandem {

std::vector<HeadPart> cut_parts(const std::vector<HeadSpans>& work, std::size_t vector_bytes,
                                std::uint32_t part_tokens) {
  std::vector<HeadPart> parts;
  for (std::size_t entry = 0; entry < work.size(); ++entry) {
    // Spans are mostly pages of one size: as many as a part takes of the first's, and what is cut at its ends.
    const std::vector<KvSpan>& spans = work[entry].spans;
    const std::size_t of_part =
        spans.empty() ? 0 : std::min<std::size_t>(spans.size(), part_tokens / std::max(spans[0].tokens, 1u) + 2);
    const auto begin_part = [&](std::size_t before) {
      parts.push_back({entry, before, {}});
      parts.back().spans.reserve(of_part);
    };
    begin_part(0);
    std::uint32_t room = part_tokens;
    std::size_t before = 0;
    for (const KvSpan& span : spans) {
      for (std::uint32_t at = 0; at < span.tokens;) {
        if (room == 0) {
          begin_part(before);
          room = part_tokens;
        }
        const std::uint32_t take = std::min(room, span.tokens - at);
        const std::size_t skip = at * vector_bytes;
        parts.back().spans.push_back(
            {static_cast<const char*>(span.k) + skip, static_cast<const char*>(span.v) + skip, take, span.head_mask});
        at += take;
        room -= take;
        before += take;
      }
    }
  }
  return parts;
}

void attend_in_parts(ThreadPool& pool, const ModelShape& shape, DType kv, const std::vector<HeadSpans>& work,
                     const std::vector<HeadPart>& parts, const float* query, float* o, float* lse) {
  const std::uint32_t group = shape.group();
  const std::size_t width = std::size_t{group} * shape.head_dim;
  const auto alone = [&](std::size_t i) {  // the only part of its entry
    return (i == 0 || parts[i - 1].entry != parts[i].entry) &&
           (i + 1 == parts.size() || parts[i + 1].entry != parts[i].entry);
  };
  std::vector<std::size_t> tokens(work.size());  // of entries whose scores are wanted
  for (std::size_t entry = 0; entry < work.size(); ++entry)
    for (const KvSpan& span : work[entry].spans)
      if (work[entry].scores != nullptr) tokens[entry] += span.tokens;
  std::vector<std::size_t> place(parts.size());  // of those that are merged
  std::size_t merged = 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (!alone(i)) place[i] = merged++;
  std::vector<float> part_o(merged * width), part_lse(merged * group);
  const auto first_head = [&](const HeadSpans& of) { return std::size_t{of.row} * shape.q_heads + of.kv_head * group; };
  pool.parallel_for(parts.size(), [&](std::size_t i) {
    const std::size_t at = first_head(work[parts[i].entry]);
    const bool whole = alone(i);
    const float* const q = query + at * shape.head_dim;
    float* const out = whole ? o + at * shape.head_dim : part_o.data() + place[i] * width;
    float* const sums = whole ? lse + at : part_lse.data() + place[i] * group;
    const AttentionShape of{group, shape.head_dim, kv};
    const HeadSpans& entry = work[parts[i].entry];
    if (entry.scores == nullptr) return partial_attention(q, parts[i].spans, of, out, sums);
    partial_attention_with_scores(q, parts[i].spans, of, out, sums, entry.scores + parts[i].first,
                                  tokens[parts[i].entry]);
  });
  for (std::size_t first = 0, last = 0; first < parts.size(); first = last) {
    if (alone(first)) {
      ++last;
      continue;
    }
    std::vector<const float*> os, lses;
    for (; last < parts.size() && parts[last].entry == parts[first].entry; ++last) {
      os.push_back(part_o.data() + place[last] * width);
      lses.push_back(part_lse.data() + place[last] * group);
    }
    const std::size_t at = first_head(work[parts[first].entry]);
    merge_partials(os.data(), lses.data(), static_cast<std::uint32_t>(os.size()), group, shape.head_dim,
                   o + at * shape.head_dim, lse + at);
  }
}

}  // namespace tandem
