#include "engine/runtime/host_parts.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <span>

#include "engine/kernels/attention.h"

namespace tandem {

HeadParts cut_parts(const std::vector<HeadSpans>& work, std::size_t vector_bytes, std::uint32_t part_tokens) {
  HeadParts cut;
  std::size_t spans = 0;
  for (const HeadSpans& entry : work) spans += entry.spans.size();
  cut.spans.reserve(spans);
  for (std::size_t entry = 0; entry < work.size(); ++entry) {
    std::uint32_t room = part_tokens;
    std::size_t before = 0;
    cut.parts.push_back({entry, 0, cut.spans.size(), cut.spans.size()});
    for (const KvSpan& span : work[entry].spans) {
      for (std::uint32_t at = 0; at < span.tokens;) {
        if (room == 0) {
          cut.parts.push_back({entry, before, cut.spans.size(), cut.spans.size()});
          room = part_tokens;
        }
        const std::uint32_t take = std::min(room, span.tokens - at);
        const std::size_t skip = at * vector_bytes;
        cut.spans.push_back(
            {static_cast<const char*>(span.k) + skip, static_cast<const char*>(span.v) + skip, take, span.head_mask});
        cut.parts.back().end = cut.spans.size();
        at += take;
        room -= take;
        before += take;
      }
    }
  }
  return cut;
}

// Parts of an entry that one call attends, where all threads have tasks enough: each call begins with a wait for
// memory.
constexpr std::size_t kMostTogether = 4, kTasksOfThread = 8;

void attend_in_parts(ThreadPool& pool, const ModelShape& shape, DType kv, const std::vector<HeadSpans>& work,
                     const HeadParts& cut, const float* query, float* o, float* lse) {
  const std::vector<HeadParts::Part>& parts = cut.parts;
  const std::uint32_t group = shape.group();
  const std::size_t width = std::size_t{group} * shape.head_dim;
  std::vector<std::size_t> first_part(work.size() + 1);  // of each entry
  for (const HeadParts::Part& part : parts) ++first_part[part.entry + 1];
  std::partial_sum(first_part.begin(), first_part.end(), first_part.begin());
  std::vector<std::size_t> tokens(work.size());  // of entries whose scores are wanted
  for (std::size_t entry = 0; entry < work.size(); ++entry)
    for (const KvSpan& span : work[entry].spans)
      if (work[entry].scores != nullptr) tokens[entry] += span.tokens;
  const auto is_alone = [&](std::size_t entry) { return first_part[entry + 1] - first_part[entry] == 1; };
  const auto part_o = std::make_unique_for_overwrite<float[]>(parts.size() * width);  // of those that are merged
  const auto part_lse = std::make_unique_for_overwrite<float[]>(parts.size() * group);
  const auto first_head = [&](const HeadSpans& of) { return std::size_t{of.row} * shape.q_heads + of.kv_head * group; };
  // Consecutive parts of an entry.
  const auto attend = [&](std::size_t first, std::size_t last) {
    const HeadSpans& entry = work[parts[first].entry];
    const std::size_t begin = parts[first].begin, at = first_head(entry);
    std::array<std::size_t, kMostTogether> ends;
    for (std::size_t i = first; i < last; ++i) ends[i - first] = parts[i].end - begin;
    const bool alone = is_alone(parts[first].entry);
    partial_attention_of_parts(
        query + at * shape.head_dim, std::span(cut.spans).subspan(begin, parts[last - 1].end - begin),
        std::span(ends).first(last - first), {group, shape.head_dim, kv},
        alone ? o + at * shape.head_dim : &part_o[first * width], alone ? lse + at : &part_lse[first * group],
        entry.scores == nullptr ? nullptr : entry.scores + parts[first].first, tokens[parts[first].entry]);
  };
  const std::size_t together = std::clamp<std::size_t>(parts.size() / (kTasksOfThread * pool.size()), 1, kMostTogether);
  pool.parallel_for((parts.size() + together - 1) / together, [&](std::size_t task) {
    const std::size_t end = std::min(parts.size(), (task + 1) * together);
    for (std::size_t first = task * together, last = first; first < end; first = last) {
      while (last < end && parts[last].entry == parts[first].entry) ++last;
      attend(first, last);
    }
  });
  pool.parallel_for(work.size(), [&](std::size_t entry) {
    if (is_alone(entry)) return;
    std::vector<const float*> os, lses;
    for (std::size_t i = first_part[entry]; i < first_part[entry + 1]; ++i) {
      os.push_back(&part_o[i * width]);
      lses.push_back(&part_lse[i * group]);
    }
    const std::size_t at = first_head(work[entry]);
    merge_partials(os.data(), lses.data(), static_cast<std::uint32_t>(os.size()), group, shape.head_dim,
                   o + at * shape.head_dim, lse + at);
  });
}

}  // namespace tandem
