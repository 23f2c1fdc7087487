// HiSparse against an independent model of its rules in double precision: which blocks each list chooses, what its
// buffer holds, and what a step misses there.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <list>
#include <numeric>
#include <ostream>
#include <utility>

#include "engine/common/error.h"
#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/methods/slow_turns.h"

namespace tandem::testing {
namespace {

struct HiSparseRule {
  std::uint32_t prompt, steps, budget, buffer, block;
  std::string start = "empty", scope = "kv_head";

  std::string spec() const {
    const auto number = [](std::uint32_t n) { return std::to_string(n); };
    return "hisparse:budget=" + number(budget) + ",buffer=" + number(buffer) + ",block=" + number(block) +
           ",start=" + start + ",scope=" + scope;
  }
};

void PrintTo(const HiSparseRule& rule, std::ostream* out) {
  *out << rule.spec() << ", " << rule.prompt << " tokens";
}

/// Look-ups and misses of one layer and step, in blocks of a list.
struct Looked {
  std::uint32_t layer = 0;
  std::uint64_t up = 0, missed = 0;
  bool operator==(const Looked&) const = default;
};

void PrintTo(const Looked& looked, std::ostream* out) {
  *out << "layer " << looked.layer << ": " << looked.missed << " of " << looked.up;
}

class SlowHiSparse {
  using Vector = SlowModel::Vector;
  using Keys = std::vector<std::vector<Vector>>;  // [kv head][token]
  using List = std::vector<std::uint32_t>;        // ascending

 public:
  SlowHiSparse(const Model& model, const HiSparseRule& rule)
      : rule_(rule),
        c_(model.config),
        slow_(model),
        recent_(c_.layers, std::vector<std::list<std::uint32_t>>(lists())) {}

  std::uint32_t lists() const { return rule_.scope == "layer" ? 1 : c_.kv_heads; }
  void prefill(std::int32_t token) {
    slow_.step(token);
    ++tokens_;
  }
  void place() {
    const bool first = !placed_;
    placed_ = true;
    if (fits()) return;
    // Blocks that were there stay; of a first prompt that does not fit its beginning is there, or nothing.
    if (first ? rule_.start == "prefix" : fitted_) hold_first(capacity());
    fitted_ = false;
  }
  Vector step(std::int32_t token) {
    looked.clear();
    on_device = 0;
    const std::uint32_t candidates = tokens_ / rule_.block;
    if (fits()) hold_first(candidates);
    ++tokens_;
    slow_.attention = [&](std::uint32_t layer, const Vector&, const Vector& q, const Keys& keys, const Keys& values) {
      return attend(layer, q, keys, values, candidates);
    };
    const Vector logits = slow_.step(token);
    slow_.attention = {};
    fitted_ = fitted_ && candidates <= capacity();
    return logits;
  }

  double closest = INFINITY;    // of two scores where something was decided, relative
  std::uint64_t on_device = 0;  // tokens attended in the last step, summed over layers and KV heads
  std::vector<Looked> looked;   // in the last step

 private:
  std::uint32_t group() const { return c_.q_heads / c_.kv_heads; }
  std::uint32_t capacity() const { return (rule_.buffer + rule_.block - 1) / rule_.block; }
  std::uint32_t keep() const { return (rule_.budget + rule_.block - 1) / rule_.block - 1; }
  bool fits() const { return tokens_ / rule_.block <= capacity(); }
  void hold_first(std::uint32_t blocks) {
    for (auto& layer : recent_) {
      for (auto& list : layer) {
        list.resize(blocks);
        std::iota(list.begin(), list.end(), 0u);
      }
    }
  }
  double bound(const Vector& q, std::uint32_t head, const std::vector<Vector>& keys, std::uint32_t b) const {
    double sum = 0;
    for (std::uint32_t d = 0; d < c_.head_dim; ++d) {
      double best = -INFINITY;
      for (std::uint32_t t = 0; t < rule_.block; ++t)
        best = std::max(best, q[head * c_.head_dim + d] * keys[b * rule_.block + t][d]);
      sum += best;
    }
    return sum;
  }
  List choose(const Vector& q, const Keys& keys, std::uint32_t list, std::uint32_t candidates) {
    Vector score(candidates);
    const bool alone = rule_.scope == "kv_head";
    for (std::uint32_t g = alone ? list : 0; g < (alone ? list + 1 : c_.kv_heads); ++g) {
      for (std::uint32_t b = 0; b < candidates; ++b) {
        double best = -INFINITY;
        for (std::uint32_t h = g * group(); h < (g + 1) * group(); ++h) best = std::max(best, bound(q, h, keys[g], b));
        score[b] += best;
      }
    }
    List order(candidates);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return score[a] > score[b]; });
    if (keep() < candidates) {
      const double edge = score[order[keep() - 1]], next = score[order[keep()]];
      closest = std::min(closest, std::abs(edge - next) / std::max(std::abs(edge), 1e-30));
      order.resize(keep());
    }
    std::sort(order.begin(), order.end());
    return order;
  }
  /// Acts out one look-up on the list of recent blocks. Returns how many were missed.
  std::uint32_t look_up(std::list<std::uint32_t>& recent, const List& chosen) const {
    const auto is_chosen = [&](std::uint32_t block) { return std::ranges::binary_search(chosen, block); };
    List hits;
    for (const std::uint32_t block : recent)
      if (is_chosen(block)) hits.push_back(block);
    const List before(recent.begin(), recent.end());
    for (const std::uint32_t block : chosen) {
      if (std::ranges::find(before, block) != before.end()) continue;
      if (recent.size() == capacity())
        recent.erase(std::find_if(recent.begin(), recent.end(), [&](std::uint32_t b) { return !is_chosen(b); }));
      recent.push_back(block);
    }
    for (const std::uint32_t block : hits) {
      recent.remove(block);
      recent.push_back(block);
    }
    return static_cast<std::uint32_t>(chosen.size() - hits.size());
  }

  Vector attend(std::uint32_t layer, const Vector& q, const Keys& keys, const Keys& values, std::uint32_t candidates) {
    Vector out(std::size_t{c_.q_heads} * c_.head_dim);
    std::vector<List> chosen(lists());
    Looked own{layer};
    for (std::uint32_t list = 0; list < lists(); ++list) {
      chosen[list] = choose(q, keys, list, candidates);
      if (candidates <= capacity()) continue;
      own.up += chosen[list].size();
      own.missed += look_up(recent_[layer][list], chosen[list]);
    }
    if (own.up > 0) looked.push_back(own);
    for (std::uint32_t g = 0; g < c_.kv_heads; ++g) {
      List tokens;
      for (const std::uint32_t block : chosen[lists() == 1 ? 0 : g])
        for (std::uint32_t t = 0; t < rule_.block; ++t) tokens.push_back(block * rule_.block + t);
      for (std::uint32_t t = candidates * rule_.block; t < tokens_; ++t) tokens.push_back(t);
      on_device += tokens.size();
      for (std::uint32_t h = g * group(); h < (g + 1) * group(); ++h)
        attend_tokens(c_.head_dim, h, q, keys[g], values[g], tokens, out);
    }
    return out;
  }

  HiSparseRule rule_;
  const ModelConfig& c_;
  SlowModel slow_;
  std::uint32_t tokens_ = 0;
  bool placed_ = false, fitted_ = true;                        // the first prompt is there; nothing was looked up yet
  std::vector<std::vector<std::list<std::uint32_t>>> recent_;  // [layer][list] blocks, least recently chosen first
};

/// Look-ups of all layers, step by step.
std::vector<Looked> looked_by(const DecodeResult& result, std::size_t list_block_bytes) {
  std::vector<Looked> looked;
  for (const TraceRecord& r : result.trace.records)
    if (std::string(r.name) == "recall blocks")
      looked.push_back({r.layer, r.cost.looked_up / list_block_bytes, r.cost.h2d / list_block_bytes});
  return looked;
}

std::uint64_t missed_bytes(const DecodeResult& result) {
  return result.idle.decode.cost.missed;
}

class HiSparseRules : public ::testing::TestWithParam<HiSparseRule> {};
INSTANTIATE_TEST_SUITE_P(Rules, HiSparseRules,
                         ::testing::Values(HiSparseRule{301, 40, 96, 160, 16},             // turns
                                           HiSparseRule{301, 40, 96, 96, 16, "prefix"},    // no more than the choice
                                           HiSparseRule{290, 36, 128, 192, 32, "prefix"},  //
                                           HiSparseRule{301, 40, 96, 128, 16, "prefix", "layer"},
                                           HiSparseRule{280, 36, 64, 224, 16, "empty", "layer"},
                                           HiSparseRule{110, 60, 64, 128, 16},    // fills the buffer by steps
                                           HiSparseRule{110, 16, 64, 128, 16}));  // fills it by the second prompt

TEST_P(HiSparseRules, EqualTheSlowModel) {
  const HiSparseRule rule = GetParam();
  Bench bench(tiny_model(true, 3));
  SlowHiSparse slow(bench.model, rule);
  const KvShape& shape = bench.engine.kv().shape();
  const std::size_t list_block = rule.block * shape.token_bytes() / shape.layers / slow.lists();
  std::uint64_t on_device = 0, up = 0, missed = 0;
  std::vector<Looked> expected;
  expect_slow_turns(
      bench, slow, rule.spec(), rule.prompt, rule.steps,
      [&] {
        on_device += slow.on_device;
        expected.insert(expected.end(), slow.looked.begin(), slow.looked.end());
      },
      [&](const DecodeResult& result) {
        const std::uint64_t all = std::exchange(on_device, 0);
        EXPECT_EQ(result.sequences[0].attended[0], (all + 3) / 6);  // the mean over 3 layers and 2 KV heads
        EXPECT_EQ(result.sequences[0].attended[1], 0u);
        const std::vector<Looked> own = std::exchange(expected, {});
        EXPECT_EQ(looked_by(result, list_block), own);
        std::uint64_t of_turn = 0, missed_in_turn = 0;
        for (const Looked& looked : own) {
          of_turn += looked.up;
          missed_in_turn += looked.missed;
        }
        EXPECT_EQ(result.idle.decode.cost.looked_up, of_turn * list_block);
        EXPECT_EQ(missed_bytes(result), missed_in_turn * list_block);
        up += of_turn;
        missed += missed_in_turn;
      });
  if (HasFatalFailure()) return;
  EXPECT_GT(missed, 0u);
  EXPECT_LT(missed, up);
  ASSERT_GT(slow.closest, 1e-6) << "float and double may decide differently here: take another prompt";
}

void expect_near(const std::vector<std::vector<float>>& actual, const std::vector<std::vector<float>>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t step = 0; step < actual.size(); ++step) {
    double worst = 0, scale = 0;
    for (std::size_t i = 0; i < actual[step].size(); ++i) {
      worst = std::max(worst, std::abs(double(actual[step][i]) - double(expected[step][i])));
      scale = std::max(scale, std::abs(double(expected[step][i])));
    }
    EXPECT_LE(worst, 1e-4 * scale) << "step " << step;
  }
}

// The buffer decides what crosses the link, not what is attended: that is Quest's choice. A larger one holds all that a
// smaller one does.
TEST(HiSparse, TheBufferChangesBytesAndNeverOutputs) {
  const std::vector<std::vector<std::int32_t>> prompts = {random_prompt(401, 1), random_prompt(720, 3)};
  Bench bench(tiny_model());
  std::vector<std::vector<float>> expected;
  const DecodeResult quest = bench.decode(*make_method("quest:budget=96,page=16"), prompts, 30, {.logits = &expected});
  for (const std::string start : {"empty", "prefix"}) {
    std::uint64_t before = 0;
    for (const std::string buffer : {"96", "192", "320"}) {
      const auto method = make_method("hisparse:budget=96,buffer=" + buffer + ",start=" + start);
      std::vector<std::vector<float>> logits;
      const DecodeResult own = bench.decode(*method, prompts, 30, {.logits = &logits});
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(own.sequences[i].tokens, quest.sequences[i].tokens) << buffer;
        EXPECT_EQ(own.sequences[i].attended[0], quest.sequences[i].attended[0]);
      }
      expect_near(logits, expected);
      EXPECT_GT(missed_bytes(own), 0u);
      if (before > 0) {
        EXPECT_LT(missed_bytes(own), before) << buffer << ", " << start;
      }
      before = missed_bytes(own);
    }
  }
}

// A context that fits in the buffer: nothing is looked up and nothing crosses the link to the device.
TEST(HiSparse, NothingIsLookedUpBelowSaturation) {
  Bench bench(tiny_model());
  for (const std::string scope : {"kv_head", "layer"}) {
    const auto method = make_method("hisparse:budget=64,buffer=512,scope=" + scope);
    const DecodeResult result = bench.decode(*method, {random_prompt(401, 1), random_prompt(30, 2)}, 40);
    std::uint64_t to_device = 0;
    for (const TraceRecord& r : result.trace.records) {
      EXPECT_STRNE(r.name, "split by residency");
      EXPECT_STRNE(r.name, "recall blocks");
      if (r.cause == Cause::recall) to_device += r.cost.h2d;
    }
    EXPECT_EQ(to_device, 0u);
    EXPECT_EQ(result.idle.decode.cost.looked_up, 0u);
    EXPECT_LT(result.sequences[0].attended[0], 40u * 65);  // and yet it chooses
  }
}

// Attention waits for what it misses.
TEST(HiSparse, MissesComeBeforeTheAttention) {
  Bench bench(tiny_model());
  const DecodeResult result = bench.decode(*make_method("hisparse:budget=96,buffer=128"), {random_prompt(1500, 4)}, 12);
  const std::vector<TraceRecord>& records = result.trace.records;
  std::uint32_t recalls = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (std::string(records[i].name) != "recall blocks") continue;
    const auto next = std::find_if(records.begin() + static_cast<std::ptrdiff_t>(i), records.end(), [&](const auto& r) {
      return r.layer == records[i].layer && std::string(r.name) == "device attention";
    });
    ASSERT_NE(next, records.end());
    EXPECT_LE(records[i].end, next->start);
    ++recalls;
  }
  EXPECT_EQ(recalls, 2u * 12);  // layers x steps
}

TEST(HiSparse, OptionsThatCannotBeAreSentences) {
  const auto refusal = [](const char* spec) -> std::string {
    try {
      make_method(spec);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("hisparse:budget=32,block=32"), ::testing::HasSubstr("of 32 tokens each, need 33"));
  EXPECT_THAT(refusal("hisparse:budget=512,buffer=256"),
              ::testing::HasSubstr("fewer than the 512 that a step attends"));
  EXPECT_EQ(refusal("hisparse:budget=512,buffer=512"), "");
}

}  // namespace
}  // namespace tandem::testing
