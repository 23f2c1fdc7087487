// ScoutAttention against an independent model of its rules in double precision: which blocks are resident, chosen and
// recalled, what each side attends with which query. And what its schedule costs, to the nanosecond.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "engine/common/error.h"
#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "methods/scoutattention/recall_intervals.h"
#include "tests/engine/model/model_folder.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using Vector = SlowModel::Vector;
using Keys = std::vector<std::vector<Vector>>;  // [kv head][token]

struct ScoutRule {
  std::uint32_t prompt, steps;
  std::uint32_t budget, block, sinks, recall;
  bool per_head = false, selected = false, own_norm = false, layer0_resident = false, not_ahead = false;
  std::uint32_t true_layers = 1;
  bool mean = false;

  std::string spec() const {
    const auto number = [](std::uint32_t n) { return std::to_string(n); };
    return "scoutattention:budget=" + number(budget) + ",block=" + number(block) + ",sinks=" + number(sinks) +
           ",recall=" + number(recall) + ",scope=" + (per_head ? "kv_head" : "layer") +
           ",device_scope=" + (selected ? "selected" : "resident") + ",pred_norm=" + (own_norm ? "own" : "next") +
           ",layer0=" + (layer0_resident ? "resident" : "true_query") + ",ahead=" + (not_ahead ? "none" : "next") +
           ",true_layers=" + number(true_layers) + ",digest=" + (mean ? "mean" : "bounds");
  }
  std::uint32_t slots() const { return (budget - sinks) / block - 1; }
};

void PrintTo(const ScoutRule& rule, std::ostream* out) {
  *out << rule.spec() << ", " << rule.prompt << " tokens";
}

/// The whole model under the rule, token by token, on top of SlowModel's formulas: attention of two queries over two
/// sets of tokens is not a set of visible tokens, so it computes the layers itself.
class SlowScout {
 public:
  SlowScout(const Model& model, const ScoutRule& rule)
      : model_(model),
        rule_(rule),
        c_(model.config),
        slow_(model),
        resident_(c_.layers),
        keys_(c_.layers),
        values_(c_.layers) {}

  /// A token of a prompt: attends to everything.
  void prefill(std::int32_t token) {
    slow_.step(token, {},
               [&](std::uint32_t layer, const Vector&, const Vector& q, const Keys& keys, const Keys& values) {
                 keys_[layer] = keys;
                 values_[layer] = values;
                 if (layer == 0) last_query_.clear();
                 last_query_.push_back(q);
               });
    ++tokens_;
  }
  /// The context is complete: residents by the last query.
  void place() {
    for (std::uint32_t layer = 0; layer < c_.layers; ++layer) {
      candidates_ = filled();
      resident_[layer] = choose(layer, last_query_[layer]);
    }
  }

  /// What layer l attends in this step, called while SlowModel runs the step.
  Vector step(std::int32_t token) {
    candidates_ = filled();
    on_host = on_device = 0;
    Vector previous_x;
    ++tokens_;
    slow_.attention = [&](std::uint32_t layer, const Vector& x, const Vector& q, const Keys& keys, const Keys& values) {
      keys_[layer] = keys;
      values_[layer] = values;
      Vector predicted = q;
      if (layer >= rule_.true_layers && !rule_.not_ahead) {
        const MatrixView& norm = model_.weights.layers[rule_.own_norm ? layer - 1 : layer].input_norm;
        predicted = slow_.query(layer, previous_x, norm);
      }
      previous_x = x;
      return attend(layer, q, predicted);
    };
    const Vector logits = slow_.step(token);
    slow_.attention = {};
    ++steps_;
    return logits;
  }

  double closest = INFINITY;                 // of two scores where a choice was made, relative
  std::uint64_t on_host = 0, on_device = 0;  // tokens attended in the last step, summed over layers and KV heads
  std::uint64_t recalled = 0, missed = 0;    // blocks

 private:
  using Lists = std::vector<std::vector<std::uint32_t>>;  // [list] ascending

  std::uint32_t group() const { return c_.q_heads / c_.kv_heads; }
  std::uint32_t filled() const {
    return tokens_ / rule_.block * rule_.block <= rule_.sinks ? 0 : tokens_ / rule_.block - rule_.sinks / rule_.block;
  }
  double bound(std::uint32_t layer, const Vector& q, std::uint32_t head, std::uint32_t b) const {
    const std::vector<Vector>& keys = keys_[layer][head / group()];
    double sum = 0;
    for (std::uint32_t d = 0; d < c_.head_dim; ++d) {
      double best = -INFINITY, mean = 0;
      for (std::uint32_t t = 0; t < rule_.block; ++t) {
        const double product = q[head * c_.head_dim + d] * keys[rule_.sinks + b * rule_.block + t][d];
        best = std::max(best, product);
        mean += product / rule_.block;
      }
      sum += rule_.mean ? mean : best;
    }
    return sum;
  }
  Lists choose(std::uint32_t layer, const Vector& q) {
    Lists lists(rule_.per_head ? c_.kv_heads : 1);
    for (std::uint32_t list = 0; list < lists.size(); ++list) {
      std::vector<std::pair<double, std::uint32_t>> order;
      for (std::uint32_t b = 0; b < candidates_; ++b) {
        double score = rule_.per_head ? -INFINITY : 0;
        for (std::uint32_t h = 0; h < c_.q_heads; ++h) {
          if (!rule_.per_head) score += bound(layer, q, h, b);
          if (rule_.per_head && h / group() == list) score = std::max(score, bound(layer, q, h, b));
        }
        order.emplace_back(-score, b);
      }
      std::sort(order.begin(), order.end());
      const std::size_t keep = std::min<std::size_t>(rule_.slots(), order.size());
      if (keep < order.size()) {
        const double edge = order[keep - 1].first, next = order[keep].first;
        closest = std::min(closest, std::abs(edge - next) / std::max(std::abs(edge), 1e-9));
      }
      for (std::size_t i = 0; i < keep; ++i) lists[list].push_back(order[i].second);
      std::sort(lists[list].begin(), lists[list].end());
    }
    return lists;
  }

  Vector attend(std::uint32_t layer, const Vector& q, const Vector& predicted) {
    const bool open = candidates_ > rule_.slots();
    if (!open) {  // every block is resident, those that filled up since too
      resident_[layer].assign(rule_.per_head ? c_.kv_heads : 1, {});
      for (auto& list : resident_[layer]) {
        for (std::uint32_t b = 0; b < candidates_; ++b) list.push_back(b);
      }
    }
    const Lists chosen = choose(layer, predicted), before = resident_[layer];
    const bool host = layer > 0 || !rule_.layer0_resident;
    Vector out(std::size_t{c_.q_heads} * c_.head_dim);
    for (std::uint32_t g = 0; g < c_.kv_heads; ++g) {
      const std::uint32_t list = rule_.per_head ? g : 0;
      const std::set<std::uint32_t> resident(before[list].begin(), before[list].end());
      const std::set<std::uint32_t> wanted(chosen[list].begin(), chosen[list].end());
      std::vector<std::uint32_t> device, missing;
      const std::uint32_t newest = (tokens_ - 1) / rule_.block * rule_.block;
      for (std::uint32_t t = 0; t < tokens_; ++t) {
        if (t < rule_.sinks || t >= newest) {
          device.push_back(t);
          continue;
        }
        const std::uint32_t b = (t - rule_.sinks) / rule_.block;
        if (resident.contains(b)) {
          if (!rule_.selected || !host || wanted.contains(b)) device.push_back(t);
        } else if (host && wanted.contains(b)) {
          missing.push_back(t);
        }
      }
      on_device += device.size();
      on_host += missing.size();
      for (std::uint32_t h = g * group(); h < (g + 1) * group(); ++h)
        merge(layer, h, q, device, predicted, missing, out);
    }
    for (std::uint32_t list = 0; list < chosen.size(); ++list) {
      std::vector<std::uint32_t> gone;
      std::set_difference(chosen[list].begin(), chosen[list].end(), before[list].begin(), before[list].end(),
                          std::back_inserter(gone));
      missed += gone.size();
      if (rule_.recall == 0 || (steps_ + 1 + layer) % rule_.recall != 0 || !open) continue;
      recalled += gone.size();
      resident_[layer][list] = chosen[list];
    }
    return out;
  }

  /// One softmax over both sets: what merging two partial results comes to.
  void merge(std::uint32_t layer, std::uint32_t h, const Vector& q, const std::vector<std::uint32_t>& device,
             const Vector& predicted, const std::vector<std::uint32_t>& host, Vector& out) const {
    Vector score;
    std::vector<std::uint32_t> tokens = device;
    tokens.insert(tokens.end(), host.begin(), host.end());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const Vector& query = i < device.size() ? q : predicted;
      double s = 0;
      for (std::uint32_t d = 0; d < c_.head_dim; ++d)
        s += query[h * c_.head_dim + d] * keys_[layer][h / group()][tokens[i]][d];
      score.push_back(s / std::sqrt(double(c_.head_dim)));
    }
    const double top = *std::max_element(score.begin(), score.end());
    double sum = 0;
    for (double& s : score) sum += s = std::exp(s - top);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      for (std::uint32_t d = 0; d < c_.head_dim; ++d)
        out[h * c_.head_dim + d] += score[i] / sum * values_[layer][h / group()][tokens[i]][d];
    }
  }

  const Model& model_;
  ScoutRule rule_;
  const ModelConfig& c_;
  SlowModel slow_;
  std::uint32_t tokens_ = 0, steps_ = 0, candidates_ = 0;
  std::vector<Lists> resident_;  // [layer]
  std::vector<Vector> last_query_;
  std::vector<Keys> keys_, values_;  // [layer]
};

class ScoutRules : public ::testing::TestWithParam<ScoutRule> {};
INSTANTIATE_TEST_SUITE_P(Rules, ScoutRules,
                         ::testing::Values(ScoutRule{301, 40, 128, 16, 16, 3}, ScoutRule{270, 40, 128, 32, 0, 1},
                                           ScoutRule{333, 30, 96, 16, 32, 0}, ScoutRule{301, 40, 128, 16, 16, 2, true},
                                           ScoutRule{260, 40, 160, 32, 32, 4, false, true},
                                           ScoutRule{290, 36, 112, 16, 0, 2, true, true, true},
                                           ScoutRule{301, 36, 128, 16, 16, 5, false, false, true, true},
                                           ScoutRule{301, 40, 128, 16, 16, 3, false, false, false, false, true},
                                           ScoutRule{280, 36, 112, 16, 0, 2, true, true, false, true, true},
                                           ScoutRule{301, 40, 128, 16, 16, 3, false, false, false, false, false, 2},
                                           ScoutRule{290, 36, 112, 16, 0, 2, true, false, false, true, false, 2},
                                           ScoutRule{270, 36, 128, 32, 0, 1, false, true, true, false, false, 2},
                                           ScoutRule{270, 36, 128, 16, 16, 2, false, false, false, true, true, 2},
                                           ScoutRule{301, 36, 128, 16, 16, 2, false, false, false, false, false, 3},
                                           ScoutRule{301, 40, 128, 16, 16, 3, false, false, false, false, false, 1,
                                                     true},
                                           ScoutRule{290, 36, 112, 32, 0, 2, true, true, false, false, false, 1, true},
                                           ScoutRule{90, 60, 128, 16, 16, 2}, ScoutRule{12, 60, 96, 16, 16, 1}));

TEST_P(ScoutRules, EqualTheSlowModel) {
  const ScoutRule rule = GetParam();
  Bench bench(tiny_model(true, 3));
  SlowScout slow(bench.model, rule);
  const auto method = make_method(rule.spec());
  std::vector<std::int32_t> prompt = random_prompt(rule.prompt, rule.prompt);
  const auto prefix = bench.engine.prefill(prompt);
  const DecodeRequest request{prefix.get(), rule.steps};
  const auto session = bench.engine.open_session(*method, {&request, 1});
  bench.engine.release(*prefix);
  for (std::size_t t = 0; t + 1 < prompt.size(); ++t) slow.prefill(prompt[t]);
  slow.place();
  std::int32_t next = prompt.back();
  for (const std::uint32_t turn : {0u, 21u}) {  // a new prompt chooses the residents anew
    if (turn > 0) {
      const std::vector<std::int32_t> more = random_prompt(turn, turn);
      session->append(0, more, rule.steps);
      slow.prefill(next);
      for (std::size_t t = 0; t + 1 < more.size(); ++t) slow.prefill(more[t]);
      slow.place();
      next = more.back();
    }
    std::vector<std::vector<float>> logits;
    const DecodeResult result = session->decode({.logits = &logits});
    std::uint64_t on_host = 0, on_device = 0;
    for (std::size_t n = 0; n < logits.size(); ++n) {
      const Vector expected = slow.step(next);
      on_host += slow.on_host;
      on_device += slow.on_device;
      double worst = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        worst = std::max(worst, std::abs(expected[i] - double(logits[n][i])));
      ASSERT_LT(worst, 3e-4) << "step " << n << " after a turn of " << turn;
      next = result.sequences[0].tokens[n];
    }
    EXPECT_EQ(result.sequences[0].tokens.size(), rule.steps);
    EXPECT_EQ(result.sequences[0].attended[1], (on_host + 3) / 6);  // the mean over 3 layers and 2 KV heads
    EXPECT_EQ(result.sequences[0].attended[0], (on_device + 3) / 6);
  }
  EXPECT_GT(slow.missed, 0u);
  EXPECT_EQ(slow.recalled > 0, rule.recall > 0);
  ASSERT_GT(slow.closest, 1e-6) << "float and double may choose differently here: take another prompt";
}

TEST(Scout, SequencesEndAtDifferentStepsWhileRecallsAreUnderWay) {
  Bench bench(tiny_model());
  const auto method = make_method("scoutattention:budget=96,block=16,sinks=16,recall=1");
  const std::vector<std::int32_t> prompts[2] = {random_prompt(301, 1), random_prompt(333, 2)};
  std::vector<std::unique_ptr<Prefix>> prefixes;
  std::vector<DecodeRequest> requests;
  for (const auto& prompt : prompts) {
    prefixes.push_back(bench.engine.prefill(prompt));
    requests.push_back({prefixes.back().get(), prefixes.size() == 1 ? 7u : 40u});
  }
  const DecodeResult together = bench.engine.decode(*method, requests);
  for (std::size_t i = 0; i < 2; ++i) {
    const DecodeResult alone = bench.engine.decode(*method, {&requests[i], 1});
    EXPECT_EQ(alone.sequences[0].tokens, together.sequences[i].tokens);
    EXPECT_EQ(alone.sequences[0].attended[1], together.sequences[i].attended[1]);
  }
  for (const auto& prefix : prefixes) bench.engine.release(*prefix);
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), 0u);
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::host), 0u);
}

TEST(Scout, CountsWhatItRecallsAndAttends) {
  Bench bench(tiny_model());
  const auto method = make_method("scoutattention:budget=128,block=32,sinks=32,recall=2");
  std::vector<std::vector<std::uint64_t>> on_host;
  const DecodeResult result = bench.decode(*method, {random_prompt(513, 4)}, 6, {.host_tokens = &on_host});
  const KvShape& shape = bench.engine.kv().shape();
  std::uint64_t recalled = 0, missed_when_due = 0, all = 0;
  for (const TraceRecord& r : result.trace.records) {
    if (std::string(r.name) != "recall blocks") continue;
    recalled += r.cost.h2d;
    // Two blocks at most, each of whose pages, with all heads, lie side by side on the host.
    EXPECT_LE(r.cost.pieces, std::max<std::uint64_t>(1, r.cost.h2d / (32 * 2 * 2 * 64)));
  }
  ASSERT_EQ(on_host.size(), 6u);
  for (std::size_t step = 0; step < 6; ++step) {
    ASSERT_EQ(on_host[step].size(), 2u);  // layers; summed over KV heads
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const std::uint64_t tokens = on_host[step][layer];
      EXPECT_EQ(tokens % 64, 0u);
      EXPECT_LE(tokens, 2u * 2 * 32);
      all += tokens;
      if ((step + 1 + layer) % 2 == 0) missed_when_due += tokens;  // layers take turns
    }
  }
  EXPECT_EQ(result.sequences[0].attended[0], 6u * (32 + 2 * 32) + 1 + 2 + 3 + 4 + 5 + 6);  // sinks, residents, newest
  EXPECT_EQ(result.sequences[0].attended[1], (all + 2) / 4);
  EXPECT_GT(recalled, 0u);
  EXPECT_EQ(recalled, missed_when_due * 2 * shape.vector_bytes());
  // Sinks and newest block; residents; table, choice, missing; digests of 15 blocks and the selection among them.
  const std::size_t lists = 2 * 2 * 4 + 2 * 2 * 3 * 4, digests = 2 * 2 * 2 * 15 * 16 * 4 + 4 * 16 * 4;
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[0],
            (32 + 16) * shape.token_bytes() + 64 * shape.token_bytes() + lists + digests);
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[1], 480 * shape.token_bytes() + 2 * 3 * 4);
}

// While slots are free a filled block stays: a copy on the device, which brings nothing back.
TEST(Scout, AFilledBlockThatStaysIsNoRecall) {
  Bench bench(tiny_model());
  const auto method = make_method("scoutattention:budget=256,block=16,sinks=16");
  const DecodeResult result = bench.decode(*method, {random_prompt(100, 4)}, 40);
  int kept = 0;
  for (const TraceRecord& r : result.trace.records) {
    EXPECT_NE(std::string(r.name), "recall blocks");
    if (std::string(r.name) != "keep filled block") continue;
    ++kept;
    EXPECT_EQ(r.cause, Cause::offload);
    EXPECT_EQ(r.cost.h2d, 0u);
  }
  EXPECT_EQ(kept, 2 * 2);  // at 112 and 128 tokens, in two layers
}

std::string error_of(const std::string& spec) {
  try {
    make_method(spec)->needs({2, 48, 4, 2, 16});
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(Scout, RecallIntervalsAreANumberOnePerLayerOrAFile) {
  using ::testing::HasSubstr;
  EXPECT_EQ(error_of("scoutattention:recall=0"), "");
  EXPECT_EQ(error_of("scoutattention:recall=8-12"), "");
  EXPECT_EQ(parse_recall_intervals("8-12").of(1), 12u);
  EXPECT_THAT(error_of("scoutattention:recall=8-12-3"), HasSubstr("intervals for 3 layers and the model has 2"));
  EXPECT_THAT(error_of("scoutattention:recall=8--3"), HasSubstr("'8--3': give a number of steps from 0"));
  EXPECT_THAT(error_of("scoutattention:recall=99999999"), HasSubstr("from 0 (never) to 1000000"));
  EXPECT_THAT(error_of("scoutattention:recall=nowhere.json"), HasSubstr("nor a file that can be read"));
  EXPECT_THAT(error_of("scoutattention:budget=127"), HasSubstr("need 128"));
  EXPECT_THAT(error_of("scoutattention:true_layers=0"), HasSubstr("the least is 1"));
  EXPECT_EQ(error_of("scoutattention:true_layers=3"), "");  // of two layers
  EXPECT_THAT(error_of("scoutattention:block=128,sinks=1,budget=300"), HasSubstr("the sinks (128)"));
  const testing::TemporaryFolder folder;
  const std::string file = (folder.path() / "intervals.json").string();
  const auto with = [&](const std::string& text) {
    std::ofstream(file) << text;
    return error_of("scoutattention:recall=" + file);
  };
  EXPECT_EQ(with(R"({"intervals": [4, 0]})"), "");
  EXPECT_THAT(make_method("scoutattention:recall=" + file)->spelled_out(), HasSubstr("recall=4-0,"));
  EXPECT_THAT(with(R"({"intervals": [4, -1]})"), HasSubstr("intervals[1] is -1"));
  EXPECT_THAT(with(R"({"intervals": [4, 2.5]})"), HasSubstr("intervals[1] is 2.5"));
  EXPECT_THAT(with(R"({"intervals": []})"), HasSubstr("'intervals' is empty"));
  EXPECT_THAT(with(R"({"interval": [4]})"), HasSubstr("has no list 'intervals'"));
  EXPECT_THAT(with("no"), HasSubstr("not valid JSON from byte 2 of 2 on"));
  EXPECT_THAT(with(R"({"intervals": [)" + std::string(400000, '[') + std::string(400000, ']') + "]}"),
              HasSubstr("nested more than 32 deep"));
  EXPECT_THAT(with("[]"), HasSubstr("has no list 'intervals'"));
}

}  // namespace
}  // namespace tandem::testing
