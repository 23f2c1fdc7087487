#include "engine/runtime/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/common/drawing.h"
#include "engine/common/error.h"
#include "engine/common/json.h"

namespace tandem {
namespace {

constexpr std::size_t kLevels = 4096;

double normal_quantile(double p) {
  return normal_quantile_within(12, p);
}

/// Equally likely values of the standard normal distribution: a table look-up instead of logarithms per item.
const std::array<float, kLevels>& levels() {
  static const std::array<float, kLevels> table = [] {
    std::array<float, kLevels> t{};
    for (std::size_t i = 0; i < kLevels; ++i) t[i] = static_cast<float>(normal_quantile((double(i) + 0.5) / kLevels));
    return t;
  }();
  return table;
}

constexpr std::uint32_t kPerHash = 5;

/// out[i] = normal(key, first + i), the same for the same key and number. Five values per hash.
void draw_normals(std::uint64_t key, std::uint32_t first, std::uint32_t n, float* out) {
  const std::array<float, kLevels>& table = levels();
  const auto bits = [&](std::uint32_t group) { return mix64(key ^ mix64(group)); };
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

const HeadWorkload& Workload::at(const ModelShape& shape, std::uint32_t layer, std::uint32_t q_head) const {
  const std::vector<HeadWorkload>& heads = layers[std::size_t{layer} * layers.size() / shape.layers];
  return heads[std::size_t{q_head} * heads.size() / shape.q_heads];
}

double share_above_mean(double concentration) {
  return normal_below(-concentration / 2);
}

double concentration_of(double share) {
  return share >= 0.5 ? 0 : -2 * normal_quantile(std::max(share, 1e-9));
}

double overlap_of(double correlation, double fraction) {
  const double edge = normal_quantile(1 - fraction), rest = std::sqrt(std::max(1 - correlation * correlation, 1e-12));
  constexpr int kSteps = 4000;
  const double width = (8 - edge) / kSteps;
  double sum = 0;
  for (int i = 0; i < kSteps; ++i) {  // over one head's score, above the edge
    const double x = edge + (i + 0.5) * width;
    sum += std::exp(-x * x / 2) * normal_below((correlation * x - edge) / rest);
  }
  return sum * width / std::sqrt(2 * M_PI) / fraction;
}

double correlation_of(double overlap, double fraction) {
  if (overlap <= overlap_of(0, fraction)) return 0;
  return std::min(bisect(
                      0, 1, [&](double c) { return overlap_of(c, fraction); }, overlap),
                  1.0);
}

ScoreProcess::ScoreProcess(const Workload& workload, const ModelShape& shape) : workload_(workload), shape_(shape) {
  TANDEM_CHECK(!workload.layers.empty() && !workload.layers.front().empty(), "a workload without heads");
}

void ScoreProcess::block_scores(const ScorePlace& place, std::uint32_t n, float* scores) const {
  const std::uint32_t group = shape_.group();
  const std::uint64_t fresh = 16 + std::uint64_t{place.step} * 4;
  // Lasting and fresh parts, each shared in the same degree.
  std::vector<float> lasting_shared(n), fresh_shared(n), own(n), next(n);
  // The lasting part turns from one draw to the next: cos a + sin b has the variance of each, whatever the angle.
  const auto draw_lasting = [&](std::uint64_t part, std::uint32_t of, double turnover, float* out) {
    const std::uint32_t age = place.step + 1;  // the prompt's own choice is 0
    const double turns = turnover > 0 ? age / turnover : 0, whole = std::floor(turns);
    const auto turn = static_cast<std::uint64_t>(whole);
    const auto key = [&](std::uint64_t of_turn) {
      const std::uint64_t first = key_of(place, of, part);
      return of_turn == 0 ? first : mix64(first + of_turn);
    };
    draw_normals(key(turn), 0, n, out);
    if (turnover == 0) return;
    draw_normals(key(turn + 1), 0, n, next.data());
    const double angle = (turns - whole) * M_PI / 2;
    const auto stays = static_cast<float>(std::cos(angle)), comes = static_cast<float>(std::sin(angle));
    for (std::uint32_t i = 0; i < n; ++i) out[i] = stays * out[i] + comes * next[i];
  };
  // Heads of a group share a part, so they share its pace: the first one's.
  const double pace = workload_.at(shape_, place.layer, place.kv_head * group).turnover;
  draw_lasting(kLasting | kShared, 0, pace, lasting_shared.data());
  draw_normals(key_of(place, 0, fresh | kShared), 0, n, fresh_shared.data());
  for (std::uint32_t g = 0; g < group; ++g) {
    const HeadWorkload& head = workload_.at(shape_, place.layer, place.kv_head * group + g);
    float* out = scores + std::size_t{g} * n;
    std::fill_n(out, n, 0.0f);
    add(lasting_shared, std::sqrt(head.step * head.group), out);
    draw_lasting(kLasting, 1 + g, pace, own.data());
    add(own, std::sqrt(head.step * (1 - head.group)), out);
    add(fresh_shared, std::sqrt((1 - head.step) * head.group), out);
    draw_normals(key_of(place, 1 + g, fresh), 0, n, own.data());
    add(own, std::sqrt((1 - head.step) * (1 - head.group)), out);
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
    const double above = -std::expm1(std::log(normal_below(double{drawn[g]})) / n), largest = -normal_quantile(above);
    const double s = concentration(place.layer, place.kv_head * shape_.group() + g);
    // The others are normals below the largest.
    const double least = s > 0 ? largest - alpha / s : -HUGE_VAL;
    near += 1 + (n - 1) * (normal_below(-least) - above) / (1 - above);
  }
  return near;
}

Workload parse_workload(const std::string& text, const std::string& file) {
  Workload workload;
  try {
    const nlohmann::json json = parse_json(text, file);
    workload.name = json.at("name").get<std::string>();
    workload.source = json.at("source").get<std::string>();
    for (const nlohmann::json& layer : json.at("layers")) {
      std::vector<HeadWorkload> heads;
      for (const nlohmann::json& h : layer)
        heads.push_back({h.at("concentration").get<double>(), h.at("group").get<double>(), h.at("step").get<double>(),
                         h.value("turnover", 0.0)});
      workload.layers.push_back(std::move(heads));
    }
  } catch (const nlohmann::json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception.type_error.302] type must be string, but is null"
    throw_input_error("{} is not a workload profile: {}.", file,
                      what.substr(std::min(what.find("] ") + 2, what.size())));
  }
  if (workload.layers.empty()) throw_input_error("{}: 'layers' is empty: a workload has at least one.", file);
  for (std::size_t l = 0; l < workload.layers.size(); ++l) {
    if (workload.layers[l].empty()) throw_input_error("{}: layers[{}] has no heads.", file, l);
    for (std::size_t h = 0; h < workload.layers[l].size(); ++h) {
      const HeadWorkload& head = workload.layers[l][h];
      const auto check = [&](const char* field, double value, double most) {
        if (!(value >= 0 && value <= most))
          throw_input_error("{}: layers[{}][{}].{} is {}; it must lie between 0 and {}.", file, l, h, field, value,
                            most);
      };
      check("concentration", head.concentration, 100);
      check("group", head.group, 1);
      check("step", head.step, 1);
      check("turnover", head.turnover, 1e6);
    }
  }
  return workload;
}

std::string workload_to_json(const Workload& workload) {
  nlohmann::ordered_json json;
  json["name"] = workload.name;
  json["source"] = workload.source;
  json["layers"] = nlohmann::ordered_json::array();
  for (const std::vector<HeadWorkload>& layer : workload.layers) {
    nlohmann::ordered_json heads = nlohmann::ordered_json::array();
    for (const HeadWorkload& h : layer) {
      heads.push_back({{"concentration", h.concentration}, {"group", h.group}, {"step", h.step}});
      if (h.turnover > 0) heads.back()["turnover"] = h.turnover;
    }
    json["layers"].push_back(std::move(heads));
  }
  return json_text(json, 1) + "\n";
}

}  // namespace tandem
