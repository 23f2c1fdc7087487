// Cases of tokens that are chosen by their scores, a step ahead or not: the choice, and the whole of a cache rank's
// work, from windows of queries to packed keys and values.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

enum class Stage : std::uint8_t { choose, select };

// Tokens by their scores, in whole numbers so that nothing is rounded: only the first dimension of a query is not zero.
// `select`: from windows of equal queries, which predict the same one, to packed keys and values.
KernelCase select_case(Stage stage, std::vector<std::uint32_t> tokens, std::uint32_t kv_heads, std::uint32_t group,
                       std::uint32_t dim, std::uint32_t keep, DType type) {
  const auto rows = static_cast<std::uint32_t>(tokens.size());
  const std::uint32_t most = *std::max_element(tokens.begin(), tokens.end());
  const double all = std::accumulate(tokens.begin(), tokens.end(), 0.0);
  KernelCase one{stage == Stage::choose ? "choose_tokens" : "select_ahead",
                 fmt::format("{} of {}, {} heads of {}, D {}, {}", keep, fmt::join(tokens, ", "), kv_heads, group, dim,
                             to_string(type))};
  const auto size = static_cast<double>(size_of(type));
  one.bytes = all * kv_heads * (dim * size + 8.0 * group) +
              (stage == Stage::select ? 4.0 * rows * kv_heads * keep * dim * size : 0.0);
  one.flops = 2.0 * all * kv_heads * group * dim;
  one.tolerance = 1e-6;  // of lists and copies
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    PredictionRule rule;
    rule.window = 3;
    const std::uint32_t capacity = pages_of(most), q_heads = kv_heads * group, pages = rows * capacity;
    const std::size_t width = std::size_t{q_heads} * dim;
    auto values = case_normals(std::size_t{pages} * kv_heads * 2 * kListPageTokens * dim, 1, 40);
    for (float& value : values) value = std::clamp(std::round(value), -200.0f, 200.0f);
    const auto slot = [=](std::uint32_t row, std::uint32_t page) { return pages - 1 - row * capacity - page; };
    const auto at = [=](std::uint32_t row, std::uint32_t head, std::uint32_t token, bool is_v) {  // its first value
      return (((std::size_t{slot(row, token / kListPageTokens)} * kv_heads + head) * 2 + (is_v ? 1 : 0)) *
                  kListPageTokens +
              token % kListPageTokens) *
             dim;
    };
    const char* const kv_at = static_cast<const char*>(memory.stored(values, type));
    const KvPages kv{kv_at, type, kv_heads, dim};
    std::vector<float> queries(rows * width), windows(rows * width * rule.room());
    for (std::uint32_t i = 0; i < rows * q_heads; ++i) {
      queries[std::size_t{i} * dim] = i % 2 == 0 ? 1.0f : -1.0f;
      for (std::uint32_t w = 0; w < rule.room(); ++w)
        windows[(std::size_t{i} * rule.room() + w) * dim] = queries[std::size_t{i} * dim];
    }
    const float* const window = memory.input(windows);
    const float* const given = memory.input(queries);
    const std::uint32_t room = keep + 2;
    const std::size_t lists = std::size_t{rows} * kv_heads, half = room * std::size_t{dim} * size_of(type);
    std::uint32_t* const chosen = memory.output<std::uint32_t>(lists * (1 + room));
    char* const packed = static_cast<char*>(memory.bytes(lists * 2 * half));
    if (memory.cuda()) {
      std::vector<std::uint32_t> slots, counts;
      std::vector<PageEntry> entries(pages);
      for (std::uint32_t row = 0; row < rows; ++row) {
        counts.push_back(pages_of(tokens[row]));
        for (std::uint32_t page = 0; page < capacity; ++page) {
          slots.push_back(slot(row, page));
          const std::uint32_t left = tokens[row] > page * kListPageTokens ? tokens[row] - page * kListPageTokens : 0;
          entries[std::size_t{row} * capacity + page] = {
              slots.back(), 0, static_cast<std::uint16_t>(std::min(left, kListPageTokens)), ~0u};
        }
      }
      const std::uint32_t* const device_slots = memory.input(slots);
      AheadBatch batch;
      batch.rows = rows;
      batch.group = group;
      batch.most = keep;
      batch.kv = kv;
      batch.lists = {memory.input(entries), memory.input(counts), capacity, false};
      batch.queries = memory.output<float>(rows * width);
      batch.scores = memory.output<float>(std::size_t{rows} * q_heads * kListPageTokens * capacity);
      std::vector<QueryWindow> from;
      std::vector<TokenChoiceRow> choices;
      std::vector<TokenPack> packs;
      for (std::uint32_t row = 0; row < rows; ++row) {
        std::uint32_t* const own = chosen + std::size_t{row} * kv_heads * (1 + room);
        from.push_back({window + row * width * rule.room(), rule.room(), 20, batch.queries + row * width});
        choices.push_back({tokens[row], keep, own, room});
        packs.push_back({own, room, device_slots + row * capacity, packed + std::size_t{row} * kv_heads * 2 * half});
      }
      batch.windows = memory.input(from);
      batch.choices = memory.input(choices);
      batch.packs = memory.input(packs);
      prepared.run = [=, &memory] {
        if (stage == Stage::choose) {
          choose_tokens_cuda(given, batch.choices, rows, group, kv, batch.lists, batch.scores, memory.stream());
        } else {
          select_ahead_cuda(rule, {}, batch, memory.stream());
        }
      };
    } else {
      const RopeTable rope(dim + dim % 2, 1e4);  // not used
      prepared.run = [=, &memory] {
        memory.pool().parallel_for(lists, [&](std::size_t list) {
          const auto row = static_cast<std::uint32_t>(list / kv_heads),
                     head = static_cast<std::uint32_t>(list % kv_heads);
          std::vector<KvSpan> spans;
          for (std::uint32_t t = 0; t < tokens[row]; t += kListPageTokens)
            spans.push_back({kv_at + at(row, head, t, false) * size_of(type),
                             kv_at + at(row, head, t, true) * size_of(type), std::min(kListPageTokens, tokens[row] - t),
                             ~0u});
          const AttentionShape shape{group, dim, type};
          chosen[list * (1 + room)] = std::min(keep, tokens[row]);
          if (stage == Stage::choose) {
            choose_tokens(given + list * group * dim, spans, shape, keep, chosen + list * (1 + room) + 1);
          } else {
            select_ahead(rule, rope, {window + list * group * dim * rule.room(), rule.room(), 20}, spans, shape, keep,
                         packed + list * 2 * half, packed + (list * 2 + 1) * half);
          }
        });
      };
    }
    prepared.result = [=, &memory] {
      std::vector<float> result;
      for (std::size_t list = 0; list < lists; ++list) {
        const std::uint32_t count = memory.read(chosen + list * (1 + room), 1)[0];
        result.push_back(static_cast<float>(count));
        if (stage == Stage::choose) {
          append(result, memory.read(chosen + list * (1 + room) + 1, count));
          continue;
        }
        for (int is_v = 0; is_v < 2; ++is_v) {
          append(result, memory.read_stored(packed + (list * 2 + static_cast<std::size_t>(is_v)) * half, type,
                                            std::size_t{count} * dim));
        }
      }
      return result;
    };
    prepared.expected = [=] {
      const auto stored = rounded(values, type);
      std::vector<double> expected;
      for (std::size_t list = 0; list < lists; ++list) {
        const auto row = static_cast<std::uint32_t>(list / kv_heads),
                   head = static_cast<std::uint32_t>(list % kv_heads);
        const std::uint32_t kept = std::min(keep, tokens[row]);
        std::vector<float> scores(tokens[row], -INFINITY);
        for (std::uint32_t t = 0; t < tokens[row]; ++t)
          for (std::size_t g = list * group; g < (list + 1) * group; ++g)
            scores[t] = std::max(scores[t], queries[g * dim] * stored[at(row, head, t, false)]);
        const auto best = largest(scores, kept);
        expected.push_back(kept);
        if (stage == Stage::choose) append(expected, best);
        for (const bool is_v : {false, true}) {
          if (stage == Stage::choose) break;
          for (const std::uint32_t token : best)
            append(expected, std::span(stored).subspan(at(row, head, token, is_v), dim));
        }
      }
      return expected;
    };
  };
  return one;
}

}  // namespace

void append_ahead_cases(CaseSize size, const TakeCase& take) {
  if (size == CaseSize::bench) {
    take(select_case(Stage::choose, {8192}, 8, 4, 128, 512, DType::bf16));
    take(select_case(Stage::select, {8192}, 8, 4, 128, 512, DType::bf16));
    return;
  }
  for (const Stage stage : {Stage::choose, Stage::select}) {
    take(select_case(stage, {100, 37}, 2, 4, 64, 20, DType::bf16));
    take(select_case(stage, {40, 600}, 1, 3, 20, 33, DType::f16));
    take(select_case(stage, {17}, 2, 1, 5, 30, DType::f32));
  }
}

}  // namespace tandem::eval
