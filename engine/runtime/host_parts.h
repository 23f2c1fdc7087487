// Partial attention on the CPU's threads, the host's part of a step or that of a device which is the CPU, cut into
// equal parts that all threads share, whatever row and head they belong to. Parts have one size and are merged in
// order, on either side: results depend neither on the threads nor on where KV lies.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/attention_span.h"
#include "engine/kernels/thread_pool.h"
#include "engine/runtime/plan.h"

namespace tandem {

/// Work of one thread at a time. Sums are rounded at the end of each part, so the device's parts are the host's: a
/// context that one side attends whole has the same bits on the other.
inline constexpr std::uint32_t kPartTokens = 512;

struct HeadSpans {  // what the query heads of one row and KV head attend
  std::uint32_t row = 0, kv_head = 0;
  std::vector<KvSpan> spans;
  float* scores = nullptr;  // [group][tokens of the spans]: where the scores go; null: nobody wants them
};

/// Some HeadSpans, cut.
struct HeadParts {
  struct Part {
    std::size_t entry = 0;
    std::size_t first = 0;           // tokens of the entry before it
    std::size_t begin = 0, end = 0;  // its spans
  };
  std::vector<KvSpan> spans;
  std::vector<Part> parts;
};

/// What the host attended of one row and layer; summed over KV heads.
struct HostAttended {
  std::uint64_t tokens = 0;
  std::uint64_t packed_bytes = 0;  // of token sets
};

/// Counters of a step: written by the host's operations, read and cleared by the control thread when the step is done.
struct HostCounters {
  HostBuffer values;  // [row][layer] HostAttended
  std::uint32_t layers = 0;
  std::uint32_t at(std::uint32_t row, std::uint32_t layer) const { return row * layers + layer; }
  Access writes(std::uint32_t row, std::uint32_t layer) const {
    return values.writes(at(row, layer), at(row, layer) + 1);
  }
};

/// Parts of an entry with so many tokens: at least one.
constexpr std::uint32_t parts_of(std::uint64_t tokens, std::uint32_t part_tokens = kPartTokens) {
  return tokens == 0 ? 1 : static_cast<std::uint32_t>((tokens + part_tokens - 1) / part_tokens);
}
/// Bytes of so many packed tokens of one KV head, K and V, that are read as contiguous ones (Cost::contiguous): of runs
/// that end where a part does, since the next part may be another thread's. `vector_bytes`: of K or V of a token and
/// head. Pages have none: in order they are 8 KB of every slot of 64 KB (8 KV heads of 128, bf16), which the probe's
/// loop read at 1.12 of the rate of the same pages at random, where contiguous memory had 1.53 (one thread of a 2-core
/// VM, AMD EPYC Zen 4; the engine's kernel: 1.08 and 1.23).
constexpr std::uint64_t packed_contiguous(std::uint64_t tokens, std::size_t vector_bytes) {
  return 2 * (tokens / kPartTokens * behind_start(kPartTokens * vector_bytes) +
              behind_start(tokens % kPartTokens * vector_bytes));
}
/// Parts of `part_tokens` tokens, of one entry each, in order; parts_of(tokens) of each entry by default.
/// `vector_bytes`: of K or V of a token and head.
HeadParts cut_parts(const std::vector<HeadSpans>& work, std::size_t vector_bytes,
                    std::uint32_t part_tokens = kPartTokens);

/// Partial attention of every entry into the rows of `o` and `lse`, and its scores. A task is a part, or several in a
/// row where there are many.
void attend_in_parts(ThreadPool& pool, const ModelShape& shape, DType kv, const std::vector<HeadSpans>& work,
                     const HeadParts& cut, const float* query /*[row][Hq][D]*/, float* o /*[row][Hq][D]*/,
                     float* lse /*[row][Hq]*/);

}  // namespace tandem
