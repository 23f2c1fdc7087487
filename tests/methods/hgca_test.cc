// HGCA against an independent model of its rules in double precision: averages, what leaves the device when, what is
// salient, what is attended.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>

#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using Vector = SlowModel::Vector;

struct HgcaRule {
  std::uint32_t prompt, steps;  // tokens
  std::uint32_t capacity;       // of the window, a multiple of block
  std::uint32_t block, obs;
  double alpha, beta;
  bool attended = false;
  std::uint32_t dense_layers = 0;

  std::string spec() const {
    return "hgca:device_kv=" + std::to_string(capacity) + ",block=" + std::to_string(block) +
           ",obs=" + std::to_string(obs) + ",alpha=" + std::to_string(alpha) + ",beta=" + std::to_string(beta) +
           ",pad=" + (attended ? "attended" : "masked") + ",dense_layers=" + std::to_string(dense_layers);
  }
};

void PrintTo(const HgcaRule& rule, std::ostream* out) {
  *out << rule.spec() << ", " << rule.prompt << " tokens";
}

/// The rules, token by token. Knows nothing of pages, rings, packed sets or lanes.
class SlowHgca {
 public:
  SlowHgca(const HgcaRule& rule, std::uint32_t layers, std::uint32_t q_heads, std::uint32_t kv_heads)
      : rule_(rule), group_(q_heads / kv_heads), heads_(layers, std::vector<Head>(q_heads)) {}

  /// One token of a prompt, the first or a later one, of which `tokens` are new. It attends to everything. Averages
  /// start anew from the prompt's last queries: of what is to leave in the softmax over all that the device holds, of
  /// what stays in the softmax over that; and from all its queries for what is on the host.
  void read(std::uint32_t layer, std::uint32_t h, const Vector& q, const std::vector<Vector>& keys, Range tokens) {
    Head& head = heads_[layer][h];
    const auto seen = std::uint32_t(keys.size()), rows = tokens.end - tokens.begin;
    if (seen == tokens.begin + 1) head.average.assign(tokens.end, 0);
    const Vector host = softmax(q, keys, 0, begin_);
    for (std::uint32_t t = 0; t < begin_; ++t) head.average[t] += host[t] / rows;
    const std::uint32_t observed = std::min(rule_.obs, rows), stay = begin_ + leaving(tokens.end - begin_);
    if (seen + observed <= tokens.end) return;
    const Vector device = softmax(q, keys, begin_, seen), window = softmax(q, keys, std::min(stay, seen), seen);
    for (std::uint32_t t = begin_; t < std::min(stay, seen); ++t) head.average[t] += device[t] / observed;
    for (std::uint32_t t = stay; t < seen; ++t)  // earlier queries than `stay` see nothing of the window
      head.average[t] += window[t] / std::min(observed, tokens.end - stay);
  }
  void read_all(std::uint32_t tokens) {
    const std::uint32_t held = tokens - begin_;
    for (std::uint32_t layer = 0; layer < heads_.size(); ++layer) {
      for (Head& head : heads_[layer]) {
        decide(head, 0, begin_, beta(layer), begin_);
        decide(head, begin_, begin_ + leaving(held), beta(layer), held);
      }
    }
    step_done(tokens);
  }

  /// A decode step: what the head attends; afterwards its averages, and what is salient from the next step on.
  std::vector<bool> step(std::uint32_t layer, std::uint32_t h, const Vector& q, const std::vector<Vector>& keys) {
    Head& head = heads_[layer][h];
    const auto seen = std::uint32_t(keys.size());
    std::vector<bool> visible(seen);
    for (std::uint32_t t = 0; t < seen; ++t) {
      visible[t] = t >= begin_ || head.before[t];
      for (std::uint32_t other = h / group_ * group_; other < (h / group_ + 1) * group_; ++other) {
        const bool chosen = t < begin_ && heads_[layer][other].before[t];
        if (rule_.attended && chosen) visible[t] = true;
        if (chosen && h % group_ == 0) head.on_host.insert(t);
      }
    }
    attended_on_host += head.on_host.size();
    head.on_host.clear();
    head.average.resize(seen);
    const Vector weights = softmax(q, keys, begin_, seen);
    for (std::uint32_t t = begin_; t < seen; ++t)
      head.average[t] = (1 - rule_.alpha) * head.average[t] + rule_.alpha * weights[t];
    const std::uint32_t window = seen - begin_;
    decide(head, begin_, begin_ + leaving(window), beta(layer), window);
    return visible;
  }

  void step_done(std::uint32_t tokens) {
    begin_ += leaving(tokens - begin_);
    for (auto& layer : heads_) {
      for (Head& head : layer) head.before = head.salient;
    }
  }

  double closest = INFINITY;           // relative distance of an average from its threshold
  std::uint64_t attended_on_host = 0;  // sum over layers and KV heads since it was last cleared
  std::uint32_t begin() const { return begin_; }

 private:
  struct Head {
    Vector average;                     // by token
    std::vector<bool> salient, before;  // by token; `before`: as the step began
    std::set<std::uint32_t> on_host;
  };
  std::uint32_t leaving(std::uint32_t window) const {
    if (window < rule_.capacity) return 0;
    return std::uint32_t(std::ceil((window - rule_.capacity + 1) / double(rule_.block))) * rule_.block;
  }
  double beta(std::uint32_t layer) const { return layer < rule_.dense_layers ? 0 : rule_.beta; }
  /// `tokens`: that the averaged softmax ran over.
  void decide(Head& head, std::uint32_t first, std::uint32_t last, double beta, std::uint32_t tokens) {
    const double threshold = beta / tokens;
    head.salient.resize(last);
    for (std::uint32_t t = first; t < last; ++t) {
      head.salient[t] = beta == 0 || head.average[t] > threshold;
      if (beta > 0) closest = std::min(closest, std::abs(head.average[t] / threshold - 1));
    }
  }
  static Vector softmax(const Vector& q, const std::vector<Vector>& keys, std::uint32_t first, std::uint32_t last) {
    Vector weights(keys.size());
    double top = -INFINITY, sum = 0;
    for (std::size_t t = first; t < last; ++t) {
      for (std::size_t d = 0; d < q.size(); ++d) weights[t] += q[d] * keys[t][d];
      weights[t] /= std::sqrt(double(q.size()));
      top = std::max(top, weights[t]);
    }
    for (std::size_t t = first; t < last; ++t) sum += weights[t] = std::exp(weights[t] - top);
    for (std::size_t t = first; t < last; ++t) weights[t] /= sum;
    return weights;
  }

  HgcaRule rule_;
  std::uint32_t group_, begin_ = 0;
  std::vector<std::vector<Head>> heads_;  // [layer][query head]
};

class HgcaRules : public ::testing::TestWithParam<HgcaRule> {};
INSTANTIATE_TEST_SUITE_P(Traces, HgcaRules,
                         ::testing::Values(HgcaRule{401, 70, 64, 16, 64, 0.1, 1},
                                           HgcaRule{501, 40, 128, 32, 64, 0.1, 0.5},
                                           HgcaRule{300, 60, 96, 16, 8, 0.5, 1.5, true},
                                           HgcaRule{40, 90, 64, 32, 64, 0.2, 1}, HgcaRule{129, 50, 32, 16, 64, 0.05, 2},
                                           HgcaRule{257, 34, 256, 64, 1, 0.1, 1}, HgcaRule{200, 40, 64, 16, 16, 0.3, 0},
                                           HgcaRule{230, 50, 64, 16, 32, 0.1, 1, false, 1}));

/// The engine's decodes beside the rules, token by token.
class Trial {
 public:
  explicit Trial(const HgcaRule& rule)
      : rule_(rule),
        bench_(tiny_model(), sim(), in_chunks()),
        shape_(bench_.engine.shape()),
        slow_(bench_.model),
        rules_(rule, shape_.layers, shape_.q_heads, shape_.kv_heads) {
    const std::vector<std::int32_t> prompt = random_prompt(rule.prompt, 31);
    read({prompt.begin(), prompt.end() - 1});
    next_ = prompt.back();
    method_ = make_method(rule.spec());
    const auto prefix = bench_.engine.prefill(prompt);
    const DecodeRequest request{prefix.get(), rule.steps};
    session_ = bench_.engine.open_session(*method_, {&request, 1});
    bench_.engine.release(*prefix);
  }

  void decode_and_compare() {
    std::vector<std::vector<float>> logits;
    const DecodeResult result = session_->decode({.logits = &logits});
    std::uint64_t on_host = 0;
    for (std::size_t n = 0; n < logits.size(); ++n) {
      const Vector expected =
          slow_.step(next_, [&](std::uint32_t layer, std::uint32_t h, const Vector& q,
                                const std::vector<Vector>& keys) { return rules_.step(layer, h, q, keys); });
      rules_.step_done(++tokens_);
      on_host += rules_.attended_on_host;
      rules_.attended_on_host = 0;
      double worst = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        worst = std::max(worst, std::abs(expected[i] - double(logits[n][i])));
      EXPECT_LT(worst, 3e-4) << "step " << n;
      next_ = result.sequences[0].tokens[n];
    }
    EXPECT_EQ(result.sequences[0].tokens.size(), rule_.steps);
    const std::uint64_t lists = shape_.layers * shape_.kv_heads;  // the mean over them is rounded once
    EXPECT_EQ(result.sequences[0].attended[1], (on_host + lists / 2) / lists);
  }

  /// The token generated last and all of `turn` but its last, which is the next step's input, become KV.
  void append(const std::vector<std::int32_t>& turn) {
    session_->append(0, turn, rule_.steps);
    std::vector<std::int32_t> tokens = {next_};
    tokens.insert(tokens.end(), turn.begin(), turn.end() - 1);
    read(tokens);
    next_ = turn.back();
  }

  const SlowHgca& rules() const { return rules_; }

 private:
  void read(const std::vector<std::int32_t>& tokens) {
    const Range range{tokens_, tokens_ + std::uint32_t(tokens.size())};
    for (const std::int32_t token : tokens) {
      slow_.step(token, [&](std::uint32_t layer, std::uint32_t h, const Vector& q, const std::vector<Vector>& keys) {
        rules_.read(layer, h, q, keys, range);
        return std::vector<bool>(keys.size(), true);
      });
    }
    tokens_ = range.end;
    rules_.read_all(tokens_);
  }
  static EngineOptions in_chunks() {
    EngineOptions options;
    options.prefill_chunk = 64;  // of the longer turn too
    return options;
  }

  HgcaRule rule_;
  Bench bench_;
  ModelShape shape_;
  SlowModel slow_;
  SlowHgca rules_;
  std::unique_ptr<Method> method_;
  std::unique_ptr<DecodeSession> session_;
  std::uint32_t tokens_ = 0;
  std::int32_t next_ = 0;
};

TEST_P(HgcaRules, EqualTheSlowModel) {
  Trial trial(GetParam());
  trial.decode_and_compare();
  EXPECT_GT(trial.rules().begin(), 0u) << "nothing left the device";
  // A short turn, after which earlier choices are made anew, and one that is longer than the window.
  for (const std::uint32_t turn : {9u, 150u}) {
    trial.append(random_prompt(turn, turn));
    trial.decode_and_compare();
  }
  ASSERT_GT(trial.rules().closest, 2e-5) << "float and double may choose differently here: take another prompt";
}

using Tokens = std::vector<std::int32_t>;

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A conversation of two turns, each with its decode.
struct TwoTurns {
  Tokens first;                            // generated
  DecodedSequence second;                  // its decode; attended[1]: salient tokens, a mean over layers and heads
  std::vector<std::vector<float>> logits;  // of it
};
TwoTurns two_turns(const std::string& spec, const Tokens& first, std::uint32_t generated, const Tokens& turn,
                   std::uint32_t steps) {
  Bench bench(tiny_model());
  TwoTurns out;
  const auto method = make_method(spec);
  const auto prefix = bench.engine.prefill(first);
  const DecodeRequest request{prefix.get(), generated};
  const auto session = bench.engine.open_session(*method, {&request, 1});
  out.first = session->decode({}).sequences[0].tokens;
  session->append(0, turn, steps);
  out.second = session->decode({.logits = &out.logits}).sequences[0];
  bench.engine.release(*prefix);
  return out;
}

// All of the first turn is in the window still, so that a prompt in two turns and in one leave the same behind.
TEST(Hgca, ASecondTurnLeavesWhatOnePromptOfAllItsTokensLeaves) {
  const Tokens first = random_prompt(40, 3), turn = random_prompt(300, 4);
  for (const char* options : {"", ",alpha=0.9", ",beta=0.5", ",beta=2", ",obs=8", ",pad=attended"}) {
    const std::string spec = std::string("hgca:device_kv=96,block=16") + options;
    const TwoTurns two = two_turns(spec, first, 7, turn, 40);
    Bench bench(tiny_model());
    std::vector<std::vector<float>> logits;
    const DecodeResult one = bench.decode(*make_method(spec), {first + two.first + turn}, 40, {.logits = &logits});
    EXPECT_EQ(two.second.tokens, one.sequences[0].tokens) << spec;
    EXPECT_EQ(two.second.attended[1], one.sequences[0].attended[1]) << spec;
    ASSERT_EQ(two.logits.size(), logits.size());
    for (std::size_t step = 0; step < logits.size(); ++step) {
      for (std::size_t i = 0; i < logits[step].size(); ++i)
        ASSERT_NEAR(two.logits[step][i], logits[step][i], 2e-4) << spec << ", step " << step;
    }
  }
}

// A KV head's packed tokens lie in one run, of which a thread reads a part at a time; 8 KB of pages are no run.
TEST(Hgca, WhatIsPackedIsContiguousAndPagesAreNot) {
  const auto contiguous = [](const char* spec) {
    Bench bench(tiny_model());
    std::set<std::uint64_t> seen;
    for (const TraceRecord& r : bench.decode(*make_method(spec), {random_prompt(1101, 4)}, 3).trace.records) {
      if (std::string(r.name) != "host attention") continue;
      EXPECT_LE(r.cost.contiguous, r.cost.dram);
      seen.insert(r.cost.contiguous);
    }
    return seen;
  };
  // 1,024 and a few tokens: two whole parts and one that is shorter than a run's start; K and V of both KV heads.
  const std::uint64_t part = 512 * 16 * sizeof(float);
  EXPECT_EQ(contiguous("hgca:device_kv=64,block=16,beta=0"), std::set<std::uint64_t>{2 * 2 * 2 * (part - kRunStart)});
  EXPECT_EQ(contiguous("full-host"), std::set<std::uint64_t>{0});
  EXPECT_EQ(contiguous("hybrid-fixed"), std::set<std::uint64_t>{0});
}

// A new prompt's tokens are judged by whole mean weights: alpha is for the steps of a decode.
TEST(Hgca, WhatIsSalientAfterANewPromptDoesNotDependOnAlpha) {
  const Tokens first = random_prompt(200, 5), turn = random_prompt(250, 6);
  const auto salient = [&](const char* alpha, const char* beta) {
    const std::string spec = std::string("hgca:device_kv=64,block=16,alpha=") + alpha + ",beta=" + beta;
    return two_turns(spec, first, 1, turn, 1).second.attended[1];
  };
  const std::uint64_t some = salient("0.1", "1");
  EXPECT_EQ(salient("0.01", "1"), some);
  EXPECT_EQ(salient("1", "1"), some);
  EXPECT_GT(salient("0.1", "0.5"), some);
  EXPECT_LT(salient("0.1", "2"), some);
}

}  // namespace
}  // namespace tandem::testing
