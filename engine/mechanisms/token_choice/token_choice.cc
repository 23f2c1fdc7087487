#include "engine/mechanisms/token_choice/token_choice.h"

#include <algorithm>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/mechanisms/token_choice/kernels/token_choice.h"
#include "engine/runtime/launched_attention.h"

namespace tandem {

TokenChoice TokenChoices::room_for(SequenceId sequence, std::uint32_t most) const {
  const std::size_t entries = kv_.shape().kv_heads * (1 + std::size_t{most});
  return {sequence, most, device_.allocate_device(entries * sizeof(std::uint32_t), "chosen tokens")};
}

TokenChoiceRef TokenChoices::make(SequenceState& sequence, std::uint32_t most) {
  return {kept_.add(room_for(sequence.id, most))};
}

void TokenChoices::renew(const SequenceState& sequence, TokenChoiceRef choice, std::uint32_t most) {
  TokenChoice& held = kept_.get(choice.id);
  if (held.most != most) held = room_for(sequence.id, most);
}

std::vector<Tokens> TokenChoices::choose(const LayerContext& context, std::span<const ChooseRequest> requests) {
  const ModelShape& shape = context.shape;
  const std::uint32_t layer = context.layer;
  struct Row {
    std::uint32_t row = 0, end = 0, keep = 0;
    TokenChoice choice;
    SequenceId sequence = 0;
    std::vector<std::uint32_t> slots;  // for bodies
  };
  Op op("choose tokens", Cause::selection, layer);
  op.cost.work = Work::attention;  // nearly all of it reads K of whole pages, as attention does
  const QueryRef query = attention_.layer_query(context);
  op.after = {query.ready};
  const DeviceBuffer values = attention_.query_values(query);
  std::vector<Row> rows;
  rows.reserve(requests.size());
  std::uint32_t written_tables = 0;
  std::vector<Tokens> chosen;
  chosen.reserve(requests.size());
  for (const ChooseRequest& request : requests) {
    const SequenceState& sequence = *request.sequence;
    Row row{sequence.row, request.end, std::min(request.tokens, request.end), kept_.get(request.choice.id),
            sequence.id,  {}};
    TANDEM_CHECK(row.keep <= row.choice.most && row.end <= sequence.tokens, "a choice of {} of {} tokens, room for {}",
                 row.keep, row.end, row.choice.most);
    wait_for(op.after, request.ready);
    if (attention_.page_tables().moved(sequence.id, layer)) ++written_tables;
    const Range pages{0, blocks_for(row.end)};
    if (!device_.is_gpu()) kv_.append_slots(sequence.id, layer, pages, Tier::device, row.slots);
    kv_.append_access(sequence.id, layer, pages, Tier::device, Range{0, shape.kv_heads}, false, op.access);
    op.access.insert(op.access.end(), {values.reads(row.row, row.row + 1), row.choice.lists.writes()});
    // Every key, a score per token and KV head out and in, the lists, the query.
    const std::uint64_t width = std::uint64_t{shape.q_heads} * shape.head_dim;
    op.cost.context += std::uint64_t{row.end} * shape.kv_heads * kv_.shape().vector_bytes();
    op.cost.hbm += std::uint64_t{row.end} * shape.kv_heads * (kv_.shape().vector_bytes() + 2 * sizeof(float)) +
                   std::uint64_t{shape.kv_heads} * (1 + row.keep) * sizeof(std::uint32_t) + width * sizeof(float);
    op.cost.flops += 2 * width * row.end;
    Tokens& tokens = chosen.emplace_back();
    tokens.sequence = row.choice.sequence;
    tokens.positions = {{0, row.end}};
    tokens.lists = row.choice.lists;
    tokens.stride = row.choice.list(1);
    tokens.tokens = row.keep;
    rows.push_back(std::move(row));
  }
  std::uint32_t most = 1;  // pages of a list: kernels have no lists without room
  for (const Row& row : rows) most = std::max(most, blocks_for(row.end));
  const std::size_t batch = context.batch.size(), floats = std::size_t{shape.q_heads} * most * kPageTokens;
  const std::uint32_t together = rows_together(forward_.score_floats(), floats, batch);
  op.cost.heavy = rounds_of(batch, together);
  op.cost.kernels = 1 + 2 * op.cost.heavy + written_tables;  // pages; scores, top-k of some rows; new page tables
  op.launch = [&](LaunchContext& ctx) {
    const auto all = static_cast<std::uint32_t>(context.batch.size());
    // Rows that choose nothing leave a count of 0 somewhere.
    std::vector<TokenChoiceRow> choices(all, {0, 0, ctx.scratch<std::uint32_t>(shape.kv_heads), 0});
    std::vector<WholePages> scored(all);
    for (const Row& row : rows) {
      choices[row.row] = {row.end, row.keep, ctx.write<std::uint32_t>(row.choice.lists), row.choice.most};
      PageTables& tables = attention_.page_tables();
      tables.check(row.sequence, layer, {0, blocks_for(row.end)});
      scored[row.row] = {row.end, nullptr, tables.slots(ctx, row.sequence, layer)};
    }
    auto* const scores = ctx.scratch<float>(together * floats);
    const PageLists lists = list_whole_pages(ctx, scored, false, most);
    for (std::uint32_t first = 0; first < all; first += together) {
      const std::uint32_t count = std::min(together, all - first);
      const PageLists own{lists.entries + std::size_t{first} * most, lists.counts + first, most, false};
      choose_tokens_cuda(ctx.read<float>(values) + std::size_t{first} * shape.q_heads * shape.head_dim,
                         ctx.pass(std::span<const TokenChoiceRow>(choices).subspan(first, count)), count, shape.group(),
                         device_pages(ctx, kv_), own, scores, ctx.stream());
    }
  };
  op.body = [this, shape, values, rows](BodyContext& ctx) {
    pool_.parallel_for(rows.size() * shape.kv_heads, [&](std::size_t task) {
      const Row& row = rows[task / shape.kv_heads];
      const auto g = static_cast<std::uint32_t>(task % shape.kv_heads);
      const char* pages = ctx.read<char>(kv_.device_buffer());
      std::vector<KvSpan> spans;
      spans.reserve(row.slots.size());
      for (std::uint32_t page = 0; page < row.slots.size(); ++page) {
        spans.push_back({pages + kv_.k_offset(row.slots[page], g), nullptr,
                         std::min(kPageTokens, row.end - page * kPageTokens), ~0u});
      }
      std::uint32_t* list = ctx.write<std::uint32_t>(row.choice.lists) + row.choice.list(g);
      list[0] = row.keep;
      const std::size_t head = std::size_t{row.row} * shape.q_heads + std::size_t{g} * shape.group();
      tandem::choose_tokens(ctx.read<float>(values) + head * shape.head_dim, spans,
                            {shape.group(), shape.head_dim, kv_.shape().type}, row.keep, list + 1);
    });
  };
  ask(LaneKind::device_compute, std::move(op));
  return chosen;
}

}  // namespace tandem
