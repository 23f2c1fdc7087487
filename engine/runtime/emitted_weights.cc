// The device's attention weights where a plan asks for them: which rows emit theirs, and where these lie until a
// mechanism takes them in (WeightsTaker).
#include <algorithm>
#include <utility>

#include "engine/common/error.h"
#include "engine/runtime/decode_attention.h"

namespace tandem {

DecodeAttention::Emission DecodeAttention::plan_emission(const LayerContext& context,
                                                         std::span<const AttendItem* const> items) {
  Emission emission;
  const std::size_t heads = context.shape.q_heads;
  std::size_t floats = 0;
  std::uint32_t most = 0, pages = 0;  // tokens that any row has room for; pages of the longest window
  for (const AttendItem* item : items) {
    if (!item->weights) continue;
    const auto* packed = std::get_if<Packed>(&item->kv);
    const WeightsTo& to = *item->weights;
    TANDEM_CHECK(emission.rows.empty() || (to.taker == emission.taker && emission.packed == (packed != nullptr)),
                 "the rows of a batch leave their weights alike");
    emission.taker = to.taker;
    emission.packed = packed != nullptr;
    const std::uint32_t room = to.taker->most_tokens(to.id);
    Range tokens{0, 1};
    if (packed != nullptr) {
      tokens.end += packed->tokens;  // and the step's own
    } else {
      const std::vector<Range>& ranges = std::get<Ranges>(item->kv).positions;
      const auto of_row = [item](const AttendItem* other) { return other->row == item->row; };
      TANDEM_CHECK(ranges.size() == 1 && ranges[0].end == context.batch[item->row]->tokens &&
                       std::count_if(items.begin(), items.end(), of_row) == 1,
                   "weights are averaged over the one device item of a row, all heads, up to the newest token");
      tokens = ranges[0];
      pages = std::max(pages, blocks_for(tokens.end) - tokens.begin / kPageTokens);
    }
    const std::uint32_t count = tokens.end - tokens.begin;
    TANDEM_CHECK(count <= room, "weights of {} tokens in room for {}", count, room);
    emission.rows.push_back({item->row, to.id, tokens, floats, count});
    floats += heads * room;
    most = std::max(most, room);
  }
  if (device_.launches() && emission.packed) {  // own tokens' pages, then packed ones
    floats = context.batch.size() * heads * (std::size_t{1} + blocks_for(most - 1)) * kPageTokens;
  } else if (device_.launches() && !emission.rows.empty()) {  // all rows at once, by the slots of their pages
    const std::size_t stride = std::size_t{pages} * kPageTokens;
    for (EmittedWeights& e : emission.rows) {
      e.stride = stride;
      e.offset = e.row * heads * stride + e.tokens.begin % kPageTokens;
    }
    floats = context.batch.size() * heads * most;  // of the longest window there will be
    TANDEM_CHECK(stride <= most, "scores of {} tokens in room for {}", stride, most);
  }
  if (floats * sizeof(float) > scores_.bytes()) scores_ = device_.allocate_device(floats * sizeof(float), "scores");
  return emission;
}

void DecodeAttention::take_emission(const LayerContext& context, const Emission& emission) {
  if (!emission.rows.empty()) emission.taker->take_weights(context, emission.rows, scores_, own_.lse);
}

}  // namespace tandem
