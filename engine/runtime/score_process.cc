// Compiled with -O3: its loops over scores are most of a prediction's time, and -O2 does not vectorise them. Without
// fused multiply-adds, so that every machine draws the same scores.
#include "engine/runtime/score_process.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "engine/common/drawing.h"
#include "engine/common/error.h"

namespace tandem {
namespace {

constexpr std::size_t kLevels = 4096;
constexpr double kEdge = 12;  // no quantile lies beyond it

/// Equally likely values of the standard normal distribution: a table look-up instead of logarithms per item.
const std::array<float, kLevels>& levels() {
  static const std::array<float, kLevels> table = [] {
    std::array<float, kLevels> t{};
    for (std::size_t i = 0; i < kLevels; ++i)
      t[i] = static_cast<float>(normal_quantile_within(kEdge, (double(i) + 0.5) / kLevels));
    return t;
  }();
  return table;
}

constexpr std::uint32_t kPerHash = 5;

/// mix64() of the first whole numbers: as many as groups of 128K blocks need. What every draw begins with.
const std::vector<std::uint64_t>& mixed_numbers() {
  static const std::vector<std::uint64_t> table = [] {
    std::vector<std::uint64_t> t(std::size_t{1} << 15);
    for (std::size_t i = 0; i < t.size(); ++i) t[i] = mix64(i);
    return t;
  }();
  return table;
}

/// out[i] = normal(key, first + i), the same for the same key and number. Five values per hash.
void draw_normals(std::uint64_t key, std::uint32_t first, std::uint32_t n, float* out) {
  const std::array<float, kLevels>& table = levels();
  const std::vector<std::uint64_t>& mixed = mixed_numbers();
  const auto bits = [&](std::uint32_t group) {
    return mix64(key ^ (group < mixed.size() ? mixed[group] : mix64(group)));
  };
  const auto value = [&](std::uint64_t hash, std::uint32_t place) {
    return table[hash >> (place * 12) & (kLevels - 1)];
  };
  std::uint32_t group = first / kPerHash, i = 0;
  if (const std::uint32_t skip = first % kPerHash; skip > 0) {
    const std::uint64_t hash = bits(group++);
    for (std::uint32_t place = skip; place < kPerHash && i < n; ++place) out[i++] = value(hash, place);
  }
  for (; i + kPerHash <= n; i += kPerHash) {
    const std::uint64_t hash = bits(group++);
    for (std::uint32_t place = 0; place < kPerHash; ++place) out[i + place] = value(hash, place);
  }
  if (i < n) {
    const std::uint64_t hash = bits(group);
    for (std::uint32_t place = 0; i < n; ++place) out[i++] = value(hash, place);
  }
}

/// out[i] += weight * normals[i].
void add(std::span<const float> normals, double weight, float* out) {
  const auto scale = static_cast<float>(weight);
  for (std::size_t i = 0; i < normals.size(); ++i) out[i] += scale * normals[i];
}

std::uint64_t key_of(const ScorePlace& place, std::uint32_t head, std::uint64_t part) {
  return mix64(mix64(mix64(std::uint64_t{place.sequence} << 32 | place.layer) ^ place.kv_head) ^
               (std::uint64_t{head} << 40 | part));
}

// Parts of a score; fresh ones are numbered by step.
constexpr std::uint64_t kShared = 1, kLasting = 2;

}  // namespace

ScoreProcess::ScoreProcess(const Workload& workload, const ModelShape& shape) : workload_(workload), shape_(shape) {
  TANDEM_CHECK(!workload.layers.empty() && !workload.layers.front().empty(), "a workload without heads");
}

void ScoreProcess::block_scores(const ScorePlace& place, std::uint32_t n, float* scores) const {
  const std::uint32_t group = shape_.group();
  const std::uint64_t fresh = 16 + std::uint64_t{place.step} * 4;
  const auto head = [&](std::uint32_t g) { return workload_.at(shape_, place.layer, place.kv_head * group + g); };
  // Heads of a group share a part, so they share its pace: the first one's.
  const double pace = head(0).turnover;
  const std::uint32_t age = place.step + 1;  // the prompt's own choice is 0
  const double turns = pace > 0 ? age / pace : 0, whole = std::floor(turns), angle = (turns - whole) * M_PI / 2;
  const auto stays = static_cast<float>(std::cos(angle)), comes = static_cast<float>(std::sin(angle));
  const auto lasting_key = [&](std::uint64_t part, std::uint32_t of, std::uint64_t turn) {
    const std::uint64_t first = key_of(place, of, part);
    return turn == 0 ? first : mix64(first + turn);
  };
  // In parts that stay in the first-level cache.
  constexpr std::uint32_t kAtATime = 128 * kPerHash;
  using Part = std::array<float, kAtATime>;
  Part lasting_shared, fresh_shared, own, next;
  for (std::uint32_t at = 0; at < n; at += kAtATime) {
    const std::uint32_t count = std::min(kAtATime, n - at);
    // The lasting part turns from one draw to the next: cos a + sin b has the variance of each, whatever the angle.
    const auto draw_lasting = [&](std::uint64_t part, std::uint32_t of, Part& out) {
      const auto turn = static_cast<std::uint64_t>(whole);
      draw_normals(lasting_key(part, of, turn), at, count, out.data());
      if (pace == 0) return;
      draw_normals(lasting_key(part, of, turn + 1), at, count, next.data());
      for (std::uint32_t i = 0; i < count; ++i) out[i] = stays * out[i] + comes * next[i];
    };
    // Lasting and fresh parts, each shared in the same degree.
    draw_lasting(kLasting | kShared, 0, lasting_shared);
    draw_normals(key_of(place, 0, fresh | kShared), at, count, fresh_shared.data());
    for (std::uint32_t g = 0; g < group; ++g) {
      const HeadWorkload of = head(g);
      const auto weight = [](double variance) { return static_cast<float>(std::sqrt(variance)); };
      const float a = weight(of.step * of.group), b = weight(of.step * (1 - of.group)),
                  c = weight((1 - of.step) * of.group), d = weight((1 - of.step) * (1 - of.group));
      float* out = scores + std::size_t{g} * n + at;
      draw_lasting(kLasting, 1 + g, own);
      for (std::uint32_t i = 0; i < count; ++i)  // a sum that begins at 0: it is never -0
        out[i] = 0.0f + a * lasting_shared[i] + b * own[i] + c * fresh_shared[i];
      draw_normals(key_of(place, 1 + g, fresh), at, count, own.data());
      for (std::uint32_t i = 0; i < count; ++i) out[i] += d * own[i];
    }
  }
}

std::uint32_t ScoreProcess::salient_tokens(const ScorePlace& place, std::uint32_t first, std::uint32_t n,
                                           double times) const {
  constexpr std::uint32_t kAtATime = 512 * kPerHash;  // the context's length is no matter of memory
  const std::uint32_t group = shape_.group();
  std::array<float, kAtATime> shared, own, score;
  std::array<std::uint8_t, kAtATime> salient;
  std::uint32_t found = 0;
  for (std::uint32_t at = first, end = first + n; at < end; at += kAtATime) {
    const std::uint32_t count = std::min(kAtATime, end - at);
    draw_normals(key_of(place, 0, kLasting | kShared), at, count, shared.data());
    salient.fill(0);
    for (std::uint32_t g = 0; g < group; ++g) {
      const HeadWorkload& head = workload_.at(shape_, place.layer, place.kv_head * group + g);
      score.fill(0);
      add({shared.data(), count}, std::sqrt(head.group), score.data());
      draw_normals(key_of(place, 1 + g, kLasting), at, count, own.data());
      add({own.data(), count}, std::sqrt(1 - head.group), score.data());
      // exp(s x - s^2 / 2) > times, solved for x: an exponential for each token took most of a prediction's time.
      const double s = head.concentration, all = times < 1 ? -HUGE_VAL : HUGE_VAL;
      const double least = times <= 0 ? -HUGE_VAL : s > 0 ? (std::log(times) + s * s / 2) / s : all;
      for (std::uint32_t t = 0; t < count; ++t) salient[t] |= static_cast<std::uint8_t>(double{score[t]} > least);
    }
    found += count - static_cast<std::uint32_t>(std::count(salient.begin(), salient.begin() + count, 0));
  }
  return found;
}

double ScoreProcess::tokens_near_best(const ScorePlace& place, std::uint32_t n, double alpha) const {
  // Of each head the largest of n normals at a uniformly drawn probability: that of a score, so that heads of a group
  // and steps have it in common as they have scores.
  std::vector<float> drawn(shape_.group());
  block_scores(place, 1, drawn.data());
  double near = 0;
  for (std::uint32_t g = 0; g < shape_.group(); ++g) {
    const double above = -std::expm1(std::log(normal_below(double{drawn[g]})) / n),
                 largest = -normal_quantile_within(kEdge, above);
    const double s = concentration(place.layer, place.kv_head * shape_.group() + g);
    // The others are normals below the largest.
    const double least = s > 0 ? largest - alpha / s : -HUGE_VAL;
    near += 1 + (n - 1) * (normal_below(-least) - above) / (1 - above);
  }
  return near;
}

}  // namespace tandem
