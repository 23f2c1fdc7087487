#include "engine/kernels/fetch_list.h"

#include <algorithm>

#include "engine/common/error.h"

namespace tandem {

void check_piece_numbers(std::uint32_t slots, std::uint32_t kv_heads, std::uint32_t per_page) {
  if (std::uint64_t{slots} * kv_heads <= (std::uint64_t{1} << 32) / per_page) return;
  throw_input_error(
      "{} pages of {} KV heads with {} pieces each are more than the 2^32 pieces that a list of what is fetched can "
      "name; give the host less memory for KV, or choose by larger units.",
      slots, kv_heads, per_page);
}

void list_units(const UnitFetch* fetches, std::uint32_t n, std::uint32_t kv_heads, std::uint32_t unit,
                std::uint32_t slots, const FetchList& list) {
  const std::uint32_t piece = std::min(unit, kListPageTokens);  // tokens
  TANDEM_CHECK(unit >= 1 && unit % piece == 0 && kListPageTokens % piece == 0, "Units of {} tokens.", unit);
  const std::uint32_t per_unit = unit / piece, per_page = kListPageTokens / piece;
  check_piece_numbers(slots, kv_heads, 2 * per_page);
  for (std::uint32_t s = 0; s < n; ++s) {
    const UnitFetch* const fetch = fetches + s;
    const std::size_t first = std::size_t{s} * list.room;
    std::size_t next = first;
    for (std::uint32_t head = 0; head < kv_heads; ++head) {
      const std::uint32_t* chosen = fetch->chosen + std::size_t{head} * (1 + fetch->room);
      const std::uint32_t half = fetch->room * per_unit;
      for (std::uint32_t i = 0; i < chosen[0] * per_unit; ++i) {
        const std::uint32_t at = chosen[1 + i / per_unit] * per_unit + i % per_unit;  // in pieces from token 0
        for (std::uint32_t is_v = 0; is_v < 2; ++is_v, ++next) {
          list.from[next] = ((fetch->pages[at / per_page] * kv_heads + head) * 2 + is_v) * per_page + at % per_page;
          list.to[next] = fetch->to_first + (head * 2 + is_v) * half + i;
        }
      }
    }
    list.count[s] = static_cast<std::uint32_t>(next - first);
  }
}

}  // namespace tandem
