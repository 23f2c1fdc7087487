// Cases of tokens that are chosen by their scores, a step ahead or not: the choice, and the whole of a cache rank's
// work, from windows of queries to packed keys and values.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"
#include "eval/kernels/case.h"
#include "eval/kernels/paged_batch.h"

namespace tandem::eval {
namespace {

enum class Stage : std::uint8_t { choose, select };

// Tokens by their scores, in whole numbers so that nothing is rounded: only the first dimension of a query is not zero.
// `select`: from windows of equal queries, which predict the same one, to packed keys and values.
KernelCase select_case(Stage stage, std::vector<std::uint32_t> tokens, std::uint32_t kv_heads, std::uint32_t group,
                       std::uint32_t dim, std::uint32_t keep, DType type) {
  const PagedBatch batch({kv_heads, group, dim}, type, std::move(tokens));
  const bool packs = stage == Stage::select;
  const auto rows = static_cast<std::uint32_t>(batch.tokens.size());
  KernelCase one{packs ? "select_ahead" : "choose_tokens",
                 fmt::format("{} of {}, {} heads of {}, D {}, {}", keep, fmt::join(batch.tokens, ", "), kv_heads, group,
                             dim, to_string(type))};
  one.bytes = batch.vector_bytes() + 8.0 * batch.all_tokens() * kv_heads * group;
  if (packs) one.bytes += 4.0 * rows * kv_heads * keep * dim * static_cast<double>(size_of(type));
  one.flops = 2.0 * batch.all_tokens() * kv_heads * group * dim;
  one.tolerance = 1e-6;  // of lists and copies
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    PredictionRule rule;
    rule.window = 3;
    const std::uint32_t q_heads = kv_heads * group, room = keep + 2;
    const std::size_t lists = std::size_t{rows} * kv_heads, group_width = std::size_t{group} * dim;
    HostKv host{case_normals(batch.elements(), 1, 40), kv_heads, dim};
    for (float& value : host.values) value = std::clamp(std::round(value), -200.0f, 200.0f);
    const KvPages kv = batch.pages_at(memory.stored(host.values, type));
    std::vector<float> numbers(lists * group_width), repeated(numbers.size() * rule.room());
    for (std::size_t i = 0; i < lists * group; ++i) {
      numbers[i * dim] = i % 2 == 0 ? 1.0f : -1.0f;
      for (std::size_t w = 0; w < rule.room(); ++w) repeated[(i * rule.room() + w) * dim] = numbers[i * dim];
    }
    const auto queries = memory.input(std::move(numbers));
    const float* const windows = memory.input(std::move(repeated)).target;
    const std::size_t half = room * kv.row_bytes();
    std::uint32_t* const chosen = memory.output<std::uint32_t>(lists * (1 + room));
    char* const packed = static_cast<char*>(memory.bytes(lists * 2 * half));
    for (std::size_t list = 0; list < lists; ++list) {
      std::uint32_t* const own = chosen + list * (1 + room);
      if (!packs) {
        memory.result_lists(own, {own + 1});
        continue;
      }
      const std::size_t kept = std::min(keep, batch.tokens[list / kv_heads]);
      memory.result_at(own, 1);
      for (char* const part : {packed + list * 2 * half, packed + (list * 2 + 1) * half})
        memory.stored_result_at(part, type, kept * dim);
    }
    if (memory.cuda()) {
      const std::uint32_t* const slots = memory.input(batch.slots).target;
      AheadBatch ahead;
      ahead.rows = rows;
      ahead.group = group;
      ahead.most = keep;
      ahead.kv = kv;
      ahead.lists = batch.lists(memory);
      ahead.queries = memory.output<float>(lists * group_width);
      ahead.scores = memory.output<float>(std::size_t{rows} * q_heads * kListPageTokens * batch.capacity());
      std::vector<QueryWindow> from;
      std::vector<TokenChoiceRow> choices;
      std::vector<TokenPack> to;
      for (std::size_t row = 0; row < rows; ++row) {
        std::uint32_t* const own = chosen + row * kv_heads * (1 + room);
        const std::size_t first = row * q_heads * dim;
        from.push_back({windows + first * rule.room(), rule.room(), 20, ahead.queries + first});
        choices.push_back({batch.tokens[row], keep, own, room});
        to.push_back({own, room, slots + batch.first_page(row), packed + row * kv_heads * 2 * half});
      }
      ahead.windows = memory.input(from).target;
      ahead.choices = memory.input(choices).target;
      ahead.packs = memory.input(to).target;
      prepared.run = [=, &memory] {
        if (packs) return select_ahead_cuda(rule, {}, ahead, memory.stream());
        choose_tokens_cuda(queries.target, ahead.choices, rows, group, kv, ahead.lists, ahead.scores, memory.stream());
      };
    } else {
      const RopeTable rope(dim + dim % 2, 1e4);  // not used
      prepared.run = [=, &memory] {
        memory.each(lists, [&](std::size_t list) {
          const std::size_t row = list / kv_heads;
          const auto head = static_cast<std::uint32_t>(list % kv_heads);
          const std::vector<KvSpan> spans = batch.spans(kv.pages, row, head, 0, batch.pages[row]);
          const AttentionShape shape{group, dim, type};
          std::uint32_t* const own = chosen + list * (1 + room);
          own[0] = std::min(keep, batch.tokens[row]);
          if (packs) {
            select_ahead(rule, rope, {windows + list * group_width * rule.room(), rule.room(), 20}, spans, shape, keep,
                         packed + list * 2 * half, packed + (list * 2 + 1) * half);
          } else {
            choose_tokens(queries.target + list * group_width, spans, shape, keep, own + 1);
          }
        });
      };
    }
    prepared.expected = [=] {
      std::vector<double> expected;
      for (std::size_t list = 0; list < lists; ++list) {
        const std::size_t row = list / kv_heads, head = list % kv_heads;
        const std::uint32_t* const slots = &batch.slots[batch.first_page(row)];
        const auto best_of_group = [&](std::size_t t) {
          const auto token = static_cast<std::uint32_t>(t);
          float best = -INFINITY;
          for (std::size_t g = list * group; g < (list + 1) * group; ++g)
            best = std::max(best, queries[g * dim] * host.key(slots[token / kListPageTokens], head, token)[0]);
          return best;
        };
        const std::uint32_t kept = std::min(keep, batch.tokens[row]);
        const auto best = largest(generated(batch.tokens[row], best_of_group), kept);
        expected.push_back(kept);
        if (!packs) append(expected, best);
        for (const auto part : {&HostKv::key, &HostKv::value})
          for (std::size_t i = 0; packs && i < kept; ++i)
            append(expected, std::span((host.*part)(slots[best[i] / kListPageTokens], head, best[i]), dim));
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
