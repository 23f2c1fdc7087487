#include "engine/mechanisms/survivors/kernels/heavy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/attention_weights.h"
#include "engine/kernels/topk.h"

namespace tandem {
namespace {

void put(void* rows, std::uint32_t place, const char* row, std::size_t bytes) {
  std::memcpy(static_cast<char*>(rows) + place * bytes, row, bytes);
}

/// Adds the step's weights to the mass; returns that of the own token.
float weigh(const HeavyStep& set, std::uint32_t group) {
  float newest = 0;
  for (std::uint32_t h = 0; h < group; ++h) {
    blend_weights(set.own + h * set.own_stride, set.lse[h], 1, 1, 1, &newest);
    blend_weights(set.scores + h * set.stride, set.lse[h], set.held, 1, 1, set.mass);
  }
  return newest;
}

/// The place of the lightest token before the window; of equals of the newest.
std::uint32_t lightest(const HeavyStep& set, const float* mass) {
  const auto of = [mass](std::uint32_t i) { return std::isnan(mass[i]) ? INFINITY : mass[i]; };
  std::uint32_t place = set.held;
  for (std::uint32_t i = 0; i < set.held; ++i) {
    if (set.positions[i] >= set.window_begin) continue;
    if (place == set.held || of(i) < of(place) || (of(i) == of(place) && set.positions[i] > set.positions[place]))
      place = i;
  }
  TANDEM_CHECK(place < set.held, "no token before {} in a full set", set.window_begin);
  return place;
}

void place_newest(const HeavyStep& set, float mass, std::uint32_t place, const KvPages& kv) {
  const char* const k = kv.key(set.slot, set.kv_head, set.position);
  put(set.keys, place, k, kv.row_bytes());
  put(set.values, place, k + kv.page_bytes(), kv.row_bytes());
  set.mass[place] = mass;
  set.positions[place] = set.position;
}

}  // namespace

void keep_heavy(const HeavyCompetition& set, const KvPages& kv) {
  const std::size_t bytes = kv.row_bytes();
  const std::uint32_t count = set.held + (set.arriving_end - set.arriving_begin);
  std::vector<std::uint32_t> places(set.held);  // by position
  std::iota(places.begin(), places.end(), 0u);
  std::sort(places.begin(), places.end(),
            [&](std::uint32_t a, std::uint32_t b) { return set.positions[a] < set.positions[b]; });
  std::vector<std::uint32_t> positions(count);
  std::vector<float> mass(count);
  for (std::uint32_t i = 0; i < set.held; ++i) {
    positions[i] = set.positions[places[i]];
    mass[i] = set.mass[places[i]];
  }
  std::iota(positions.begin() + set.held, positions.end(), set.arriving_begin);
  std::copy_n(set.arriving, count - set.held, mass.begin() + set.held);

  const auto old = static_cast<std::uint32_t>(std::lower_bound(positions.begin(), positions.end(), set.window_begin) -
                                              positions.begin());
  const std::uint32_t recent = std::min(count - old, set.room), heavy = std::min(set.room - recent, old);
  std::vector<std::uint32_t> kept(heavy + recent);
  top_k(mass.data(), old, heavy, kept.data());
  std::iota(kept.begin() + heavy, kept.end(), count - recent);
  for (std::uint32_t place = 0; place < kept.size(); ++place) {
    const std::uint32_t i = kept[place], position = positions[i];
    const char *k = nullptr, *v = nullptr;
    if (i < set.held) {
      k = static_cast<const char*>(set.keys) + places[i] * bytes;
      v = static_cast<const char*>(set.values) + places[i] * bytes;
    } else {
      k = kv.key(set.slots[position / kListPageTokens - set.arriving_begin / kListPageTokens], set.kv_head, position);
      v = k + kv.page_bytes();
    }
    put(set.kept_keys, place, k, bytes);
    put(set.kept_values, place, v, bytes);
    set.kept_mass[place] = mass[i];
    set.kept_positions[place] = position;
  }
}

void update_heavy(const HeavyStep& set, std::uint32_t group, const KvPages& kv) {
  const float newest = weigh(set, group);
  place_newest(set, newest, set.held < set.room ? set.held : lightest(set, set.mass), kv);
}

void update_heavy_alike(std::span<const HeavyStep> sets, std::uint32_t group, const KvPages& kv) {
  const HeavyStep& first = sets.front();
  std::vector<float> newest, sum(first.held);
  newest.reserve(sets.size());
  for (const HeavyStep& set : sets) {
    std::fill_n(set.mass, set.held, 0.0f);
    newest.push_back(weigh(set, group));
    for (std::uint32_t i = 0; i < set.held; ++i) sum[i] += set.mass[i];
  }
  const std::uint32_t place = first.held < first.room ? first.held : lightest(first, sum.data());
  for (std::size_t g = 0; g < sets.size(); ++g) place_newest(sets[g], newest[g], place, kv);
}

}  // namespace tandem
