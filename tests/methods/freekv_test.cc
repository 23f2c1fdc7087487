// FreeKV against an independent model of its rules in double precision: which blocks each KV head chooses, which heads
// wait for their own choice, what is resident and attended.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <ostream>
#include <set>
#include <utility>

#include "engine/common/error.h"
#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/methods/slow_turns.h"

namespace tandem::testing {
namespace {

struct FreeKvRule {
  std::uint32_t prompt, steps, budget, block, sinks, window;
  double tau;
  std::string reduce = "softmax_mean";
  std::uint32_t dense_layers = 1;

  std::string spec() const {
    const auto number = [](std::uint32_t n) { return std::to_string(n); };
    return "freekv:budget=" + number(budget) + ",block=" + number(block) + ",sinks=" + number(sinks) +
           ",window=" + number(window) + ",tau=" + std::to_string(tau) + ",reduce=" + reduce +
           ",dense_layers=" + number(dense_layers);
  }
  std::uint32_t slots() const { return (budget - sinks - window) / block; }
};

void PrintTo(const FreeKvRule& rule, std::ostream* out) {
  *out << rule.spec() << ", " << rule.prompt << " tokens";
}

class SlowFreeKv {
  using Vector = SlowModel::Vector;
  using Keys = std::vector<std::vector<Vector>>;  // [kv head][token]
  using List = std::vector<std::uint32_t>;        // ascending

 public:
  SlowFreeKv(const Model& model, const FreeKvRule& rule)
      : rule_(rule),
        c_(model.config),
        slow_(model),
        resident_(c_.layers, std::vector<List>(c_.kv_heads)),
        before_(c_.layers),
        last_query_(c_.layers),
        keys_(c_.layers) {}

  void prefill(std::int32_t token) {
    slow_.step(token, {}, [&](std::uint32_t layer, const Vector&, const Vector& q, const Keys& keys, const Keys&) {
      keys_[layer] = keys;
      last_query_[layer] = q;
    });
    ++tokens_;
  }
  void place() {
    for (std::uint32_t layer = 0; layer < c_.layers; ++layer) {
      before_[layer].clear();
      for (std::uint32_t g = 0; g < c_.kv_heads; ++g) resident_[layer][g] = choose(layer, last_query_[layer], g);
    }
  }
  Vector step(std::int32_t token) {
    const std::uint32_t candidates = this->candidates();
    on_device = 0;
    ++tokens_;
    slow_.attention = [&](std::uint32_t layer, const Vector&, const Vector& q, const Keys& keys, const Keys& values) {
      keys_[layer] = keys;
      return attend(layer, q, keys, values, candidates);
    };
    const Vector logits = slow_.step(token);
    slow_.attention = {};
    return logits;
  }

  double closest = INFINITY;    // of two scores or cosines where something was decided, relative
  std::uint64_t on_device = 0;  // tokens attended in the last step, summed over layers and KV heads
  std::uint32_t urgent = 0, patient = 0, stale = 0;  // heads that missed something; blocks attended that are not chosen

 private:
  std::uint32_t group() const { return c_.q_heads / c_.kv_heads; }
  std::uint32_t candidates() const {
    const std::uint32_t end = (tokens_ - std::min(rule_.window, tokens_)) / rule_.block * rule_.block;
    return end <= rule_.sinks ? 0 : (end - rule_.sinks) / rule_.block;
  }
  double bound(std::uint32_t layer, const Vector& q, std::uint32_t head, std::uint32_t b) const {
    double sum = 0;
    for (std::uint32_t d = 0; d < c_.head_dim; ++d) {
      double best = -INFINITY;
      for (std::uint32_t t = 0; t < rule_.block; ++t)
        best = std::max(best,
                        q[head * c_.head_dim + d] * keys_[layer][head / group()][rule_.sinks + b * rule_.block + t][d]);
      sum += best;
    }
    return sum;
  }
  List choose(std::uint32_t layer, const Vector& q, std::uint32_t g) {
    const std::uint32_t n = candidates();
    std::vector<double> score(n, rule_.reduce == "max" ? -INFINITY : 0);
    for (std::uint32_t h = g * group(); h < (g + 1) * group(); ++h) {
      std::vector<double> own(n);
      for (std::uint32_t b = 0; b < n; ++b) own[b] = bound(layer, q, h, b);
      if (rule_.reduce == "softmax_mean") {
        const double top = n == 0 ? 0 : *std::max_element(own.begin(), own.end());
        double sum = 0;
        for (double& s : own) sum += s = std::exp(s - top);
        for (double& s : own) s /= sum;
      }
      for (std::uint32_t b = 0; b < n; ++b)
        score[b] = rule_.reduce == "max" ? std::max(score[b], own[b]) : score[b] + own[b];
    }
    List order(n);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return score[a] > score[b]; });
    const std::size_t keep = std::min<std::size_t>(rule_.slots(), n);
    if (keep < n) {
      const double edge = score[order[keep - 1]], next = score[order[keep]];
      closest = std::min(closest, std::abs(edge - next) / std::max(std::abs(edge), 1e-30));
    }
    order.resize(keep);
    std::sort(order.begin(), order.end());
    return order;
  }
  bool is_urgent(const Vector& q, const Vector& before, std::uint32_t g) {
    if (before.empty()) return true;
    double mean = 0;
    for (std::uint32_t h = g * group(); h < (g + 1) * group(); ++h) {
      double ab = 0, aa = 0, bb = 0;
      for (std::uint32_t d = h * c_.head_dim; d < (h + 1) * c_.head_dim; ++d) {
        ab += q[d] * before[d];
        aa += q[d] * q[d];
        bb += before[d] * before[d];
      }
      mean += ab / std::sqrt(aa * bb) / group();
    }
    closest = std::min(closest, std::abs(mean - rule_.tau));
    return mean < rule_.tau;
  }

  Vector attend(std::uint32_t layer, const Vector& q, const Keys& keys, const Keys& values, std::uint32_t candidates) {
    Vector out(std::size_t{c_.q_heads} * c_.head_dim);
    const bool dense = layer < rule_.dense_layers, open = !dense && candidates > rule_.slots();
    const std::uint32_t window = rule_.sinks + candidates * rule_.block;
    for (std::uint32_t g = 0; g < c_.kv_heads; ++g) {
      List& resident = resident_[layer][g];
      if (!open) {
        resident.resize(candidates);
        std::iota(resident.begin(), resident.end(), 0u);
      }
      --tokens_;  // the step's own token is in no block
      const List chosen = choose(layer, q, g);
      ++tokens_;
      if (open) {
        const bool misses = chosen != resident;
        if (is_urgent(q, before_[layer], g)) {
          urgent += misses ? 1 : 0;
          resident = chosen;
        } else {
          patient += misses ? 1 : 0;
        }
      }
      const std::set<std::uint32_t> there(resident.begin(), resident.end());
      for (const std::uint32_t b : there) stale += open && !std::binary_search(chosen.begin(), chosen.end(), b) ? 1 : 0;
      List tokens;
      for (std::uint32_t t = 0; t < tokens_; ++t)
        if (dense || t < rule_.sinks || t >= window || there.contains((t - rule_.sinks) / rule_.block))
          tokens.push_back(t);
      on_device += tokens.size();
      for (std::uint32_t h = g * group(); h < (g + 1) * group(); ++h)
        attend_tokens(c_.head_dim, h, q, keys[g], values[g], tokens, out);
      if (open) resident = chosen;
    }
    if (open) before_[layer] = q;
    return out;
  }

  FreeKvRule rule_;
  const ModelConfig& c_;
  SlowModel slow_;
  std::uint32_t tokens_ = 0;
  std::vector<std::vector<List>> resident_;  // [layer][KV head]
  std::vector<Vector> before_, last_query_;  // [layer]
  std::vector<Keys> keys_;                   // [layer]
};

class FreeKvRules : public ::testing::TestWithParam<FreeKvRule> {};
INSTANTIATE_TEST_SUITE_P(Rules, FreeKvRules,
                         ::testing::Values(FreeKvRule{301, 40, 128, 16, 16, 32, 0.5},
                                           FreeKvRule{270, 40, 160, 32, 32, 32, 0.5},
                                           FreeKvRule{301, 40, 128, 16, 16, 32, 0.9, "mean"},
                                           FreeKvRule{290, 36, 112, 16, 0, 16, 0.2, "max", 0},
                                           FreeKvRule{280, 36, 128, 16, 32, 0, 0.5, "softmax_mean", 2},
                                           FreeKvRule{301, 30, 128, 16, 16, 32, 1},
                                           FreeKvRule{301, 30, 128, 16, 16, 32, 0.01},
                                           FreeKvRule{110, 60, 128, 16, 16, 32, 0.5}));

TEST_P(FreeKvRules, EqualTheSlowModel) {
  const FreeKvRule rule = GetParam();
  Bench bench(tiny_model(true, 3));
  SlowFreeKv slow(bench.model, rule);
  std::uint64_t on_device = 0;
  expect_slow_turns(
      bench, slow, rule.spec(), rule.prompt, rule.steps, [&] { on_device += slow.on_device; },
      [&](const DecodeResult& result) {
        const std::uint64_t all = std::exchange(on_device, 0);
        EXPECT_EQ(result.sequences[0].attended[0], (all + 3) / 6);  // the mean over 3 layers and 2 KV heads
        EXPECT_EQ(result.sequences[0].attended[1], 0u);
      });
  if (HasFatalFailure()) return;
  EXPECT_GT(slow.urgent, 0u);
  EXPECT_EQ(slow.patient > 0 && slow.stale > 0, rule.tau < 1);
  ASSERT_GT(slow.closest, 1e-6) << "float and double may decide differently here: take another prompt";
}

// What urgent heads miss is there before the layer's attention; the rest comes behind it.
TEST(FreeKv, WaitsOnlyWhereQueriesMove) {
  for (const bool always : {false, true}) {
    Bench bench(tiny_model());
    const auto method = make_method(always ? "freekv:budget=128,block=16,sinks=16,window=32,dense_layers=0,tau=1"
                                           : "freekv:budget=128,block=16,sinks=16,window=32,dense_layers=0,tau=0.01");
    const DecodeResult result = bench.decode(*method, {random_prompt(1500, 4)}, 12);
    std::uint64_t before = 0, behind = 0;  // bytes
    const std::vector<TraceRecord>& records = result.trace.records;
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (std::string(records[i].name) != "recall blocks") continue;
      const auto attends = [&](const TraceRecord& r) {
        return r.layer == records[i].layer && std::string(r.name) == "device attention";
      };
      // A layer's two recalls are on either side of its attention.
      const auto next = std::find_if(records.begin() + static_cast<std::ptrdiff_t>(i), records.end(), attends);
      const auto split = std::find_if(records.begin() + static_cast<std::ptrdiff_t>(i), records.end(),
                                      [](const TraceRecord& r) { return std::string(r.name) == "split by residency"; });
      const bool urgent = next < split;
      (urgent ? before : behind) += records[i].cost.h2d;
      if (urgent) {
        EXPECT_LE(records[i].end, next->start);
      }
    }
    EXPECT_GT(before, 0u);
    EXPECT_EQ(behind > 0, !always);
  }
}

TEST(FreeKv, ABudgetHoldsABlockBesideSinksAndWindow) {
  try {
    make_method("freekv:budget=64");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("the sinks (32), the window (32) and one block of 32 need 96"));
  }
}

}  // namespace
}  // namespace tandem::testing
