// Selections of blocks, and digests on the device whichever side holds the KV.
#include "engine/runtime/selection.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

const ModelShape kShape{.layers = 2, .hidden = 48, .q_heads = 6, .kv_heads = 2, .head_dim = 16};

class Choose : public ::testing::TestWithParam<std::tuple<Scope, Reduce, std::uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Scopes, Choose,
                         ::testing::Combine(::testing::Values(Scope::query_head, Scope::kv_head, Scope::layer),
                                            ::testing::Values(Reduce::max, Reduce::mean),
                                            ::testing::Values(0u, 3u, 10u)));

TEST_P(Choose, TakesTheBestOfTheReducedScores) {
  const auto [scope, reduce, first] = GetParam();
  constexpr std::uint32_t kBlocks = 60, kRoom = 70, kKeep = 10;
  std::mt19937 random(7);
  std::vector<float> scores(kShape.q_heads * kBlocks);
  for (float& s : scores) s = static_cast<float>(random() % 40);  // many ties
  const Choice choice{kBlocks, kKeep, first, scope, reduce};
  std::vector<std::uint32_t> lists(choice.lists(kShape) * (1 + kRoom));
  ThreadPool pool(2);
  choose_blocks(pool, kShape, choice, scores.data(), lists.data(), kRoom);
  const std::uint32_t heads_per_list = kShape.q_heads / choice.lists(kShape), group = kShape.group();
  for (std::uint32_t list = 0; list < choice.lists(kShape); ++list) {
    std::vector<double> value(kBlocks);
    for (std::uint32_t b = 0; b < kBlocks; ++b) {
      const std::uint32_t head = list * heads_per_list;
      if (scope == Scope::query_head) value[b] = double(scores[head * kBlocks + b]);
      for (std::uint32_t g = 0; scope != Scope::query_head && g < heads_per_list / group; ++g) {
        double most = 0, sum = 0;
        for (std::uint32_t h = 0; h < group; ++h) {
          const double s = double(scores[(head + g * group + h) * kBlocks + b]);
          most = std::max(most, s);
          sum += s;
        }
        value[b] += reduce == Reduce::max ? most : double(float(sum) / float(group));
      }
      if (b < first) value[b] = 1e9;
    }
    std::vector<std::uint32_t> order(kBlocks);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return float(value[a]) > float(value[b]); });
    std::vector<std::uint32_t> expected(order.begin(), order.begin() + kKeep);
    std::sort(expected.begin(), expected.end());
    const std::uint32_t* own = lists.data() + list * (1 + kRoom);
    EXPECT_EQ(own[0], kKeep);
    EXPECT_EQ(std::vector<std::uint32_t>(own + 1, own + 1 + kKeep), expected) << "list " << list;
  }
  std::vector<std::uint32_t> masks(kBlocks);
  for (std::uint32_t g = 0; g < kShape.kv_heads; ++g) {
    chosen_masks(kShape, scope, g, lists.data(), kRoom, masks);
    for (std::uint32_t b = 0; b < kBlocks; ++b) {
      for (std::uint32_t h = 0; h < group; ++h) {
        const std::uint32_t list = scope == Scope::query_head ? g * group + h : scope == Scope::kv_head ? g : 0;
        const std::uint32_t* own = lists.data() + list * (1 + kRoom) + 1;
        EXPECT_EQ((masks[b] >> h & 1) != 0, std::find(own, own + kKeep, b) != own + kKeep);
      }
    }
  }
}

/// Attends to the best blocks of the whole context but its newest page; its digests are built before the KV leaves the
/// device, or of what is in host memory already.
class Fetches : public Method {
 public:
  Fetches(bool digests_first, Scope scope, bool pyramid = false)
      : digests_first_(digests_first), scope_(scope), pyramid_(pyramid) {}
  std::string spelled_out() const override { return "fetches"; }
  Needs needs(const ModelShape&) const override { return {}; }
  void context_ready(SequenceState& sequence, Ops& ops) override {
    end_ = sequence.tokens / kPageTokens * kPageTokens;
    DigestRequest request{.tokens = {0, end_}, .block = 32, .side = Side::device};
    if (pyramid_)
      request.finer = ops.build_digests(sequence, {.tokens = {0, end_}, .block = kPageTokens, .side = Side::device});
    if (digests_first_) digests_ = ops.build_digests(sequence, request);
    ops.move_to_host(sequence, {0, end_});
    if (!digests_first_) digests_ = ops.build_digests(sequence, request);
    staging_ = ops.make_staging(sequence, end_ + kPageTokens, 2);
  }
  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    const SequenceState* sequence = context.batch[0];
    const ScoreRequest wanted{
        .sequence = sequence, .digests = digests_, .blocks = 3, .always_first = 1, .scope = scope_};
    const std::vector<Blocks> selection = ops.score_topk(context, {&wanted, 1});
    const FetchRequest fetch{sequence, staging_, selection[0]};
    AttendPlan plan;
    plan.items.push_back({.kv = ops.fetch(context.layer, {&fetch, 1})[0]});
    plan.items.push_back({.kv = Ranges{{end_, sequence->tokens}}});
    return plan;
  }

 private:
  bool digests_first_;
  Scope scope_;
  bool pyramid_;
  std::uint32_t end_ = 0;
  DigestRef digests_;
  StagingRef staging_;
};

TEST(DeviceDigests, AreTheSameFromEitherSide) {
  for (const Scope scope : {Scope::query_head, Scope::kv_head, Scope::layer}) {
    Bench bench(tiny_model());
    const std::vector<std::int32_t> prompt = random_prompt(410, 3);  // 400 whole: the last of 13 blocks has one page
    Fetches before(true, scope), after(false, scope);
    std::vector<std::vector<float>> first, second;
    const DecodeResult a = bench.decode(before, {prompt}, 6, {.logits = &first});
    const DecodeResult b = bench.decode(after, {prompt}, 6, {.logits = &second});
    EXPECT_EQ(first, second);
    Cost built[2];
    std::uint32_t pieces[2] = {0, 0};
    for (const DecodeResult* result : {&a, &b}) {
      for (const TraceRecord& r : result->trace.records) {
        if (std::string(r.name) != "build digests") continue;
        built[result == &b].hbm += r.cost.hbm;
        built[result == &b].h2d += r.cost.h2d;
        pieces[result == &b] += r.cost.pieces;
      }
    }
    Fetches merged(true, scope, true);
    std::vector<std::vector<float>> third;
    const DecodeResult c = bench.decode(merged, {prompt}, 6, {.logits = &third});
    EXPECT_EQ(first, third) << "from the digests of pages";
    std::uint64_t from_pages = 0;
    for (const TraceRecord& r : c.trace.records)
      if (std::string(r.name) == "build digests") from_pages += r.cost.hbm;
    const std::uint64_t keys = 400u * 2 * 2 * 64, digests = 13u * 2 * 2 * 2 * 64, of_pages = 25u * 2 * 2 * 2 * 64;
    EXPECT_EQ(from_pages, keys + of_pages + of_pages + digests);
    EXPECT_EQ(built[0].hbm, keys + digests);
    EXPECT_EQ(built[0].h2d, 0u);
    EXPECT_EQ(built[1].hbm, digests);
    EXPECT_EQ(built[1].h2d, keys);
    EXPECT_EQ(pieces[1], 25u * 2 * 2) << "a page's keys, of two KV heads and layers";
    if (scope == Scope::query_head) continue;
    // 3 blocks, of which the last may be a single page; 6 steps, 2 layers, 2 heads.
    EXPECT_LE(a.sequences[0].attended[0], 6u * 96 + 10 + 11 + 12 + 13 + 14 + 15);
    EXPECT_GE(a.sequences[0].attended[0], 6u * 80 + 10 + 11 + 12 + 13 + 14 + 15);
  }
}

}  // namespace
}  // namespace tandem::testing
