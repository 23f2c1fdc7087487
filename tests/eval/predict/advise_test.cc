// Rules of a recommendation, as properties of many made-up predictions and losses, and single cases beside them.
#include "eval/predict/advise.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/common/json.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint32_t kContext = 131072;

SweepPoint point_of(const std::string& method, double step_ms, double share = 0.1) {
  SweepPoint point{"h100", method, kContext, 1, 1, method.starts_with("full"), {}};
  point.row.method = method;
  point.row.step_ms = step_ms;
  point.row.step_low_ms = 0.9 * step_ms;
  point.row.step_high_ms = 1.1 * step_ms;
  point.row.attended_device = share * kContext;
  point.row.device_kv_bytes = 1'000'000'000;
  point.row.host_kv_bytes = 2'000'000'000;
  return point;
}

SweepPoint refused_point(const std::string& method, bool too_large) {
  SweepPoint point = point_of(method, 1);
  point.row = refused_row(method, "its KV takes 17.2 GB");
  point.row.too_large = too_large;
  return point;
}

Loss loss_of(LossKind kind, const std::string& method, double points, std::uint32_t length, double share) {
  Loss loss;
  loss.kind = kind;
  loss.method = method;
  loss.model = kind == LossKind::paper ? "Llama-3.1-8B-Instruct" : "small";
  loss.source = "somewhere";
  loss.shortest = loss.longest = length;
  loss.share = share;
  loss.points = points;
  loss.exact = kind == LossKind::paper;
  return loss;
}

AdviceLimits limits_of(double lose) {
  return {"llama-3.1-8b", kContext, lose, 5e9, 10e9, kContext};
}

std::string first_of(const Advice& advice) {
  const Judged* first = advice.at(advice.first);
  return first == nullptr ? "none" : first->point.method;
}

/// Methods, losses and limits at random, with the edges that matter: no range, refusals, lengths here and elsewhere.
struct MadeUp {
  std::vector<SweepPoint> points;
  std::vector<Loss> losses;
  AdviceLimits limits;
};

MadeUp random_case(std::mt19937& random) {
  const auto real = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
  const auto pick = [&](std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random); };
  MadeUp made;
  made.limits = limits_of(real(0, 10));
  std::vector<std::string> names = {"full", "full-offload", "a", "b", "c", "d"};
  std::ranges::shuffle(names, random);
  for (const std::string& name : names) {
    SweepPoint point = point_of(name, real(1, 100), real(0.01, 1));
    point.row.device_kv_bytes = static_cast<std::size_t>(real(0, 8e9));
    point.row.host_kv_bytes = static_cast<std::size_t>(real(0, 14e9));
    if (pick(4) == 0) point.row.step_low_ms = point.row.step_high_ms = 0;
    if (pick(6) == 0) point = refused_point(name, /*too_large=*/pick(2) == 0);
    made.points.push_back(point);
    for (std::size_t i = pick(4); !point.lossless && i > 0; --i) {
      constexpr LossKind kKinds[] = {LossKind::yours, LossKind::run, LossKind::paper};
      constexpr std::uint32_t kLengths[] = {2048, 4096, kContext, 2 * kContext};
      Loss loss = loss_of(kKinds[pick(3)], name, real(-1, 12), kLengths[pick(4)], real(0.01, 1));
      loss.exact = pick(2) == 0;
      loss.any_length = loss.exact && pick(2) == 0;
      if (pick(3) == 0) loss.model = "Qwen2.5-7B-Instruct";
      made.losses.push_back(loss);
    }
  }
  return made;
}

template <class Check>
void for_many_cases(const Check& check) {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    const MadeUp made = random_case(random);
    const Advice advice = recommend(made.points, made.losses, made.limits);
    SCOPED_TRACE(i);
    check(made, advice);
    if (::testing::Test::HasFailure()) return;
  }
}

const SweepPoint& prediction_of(const MadeUp& made, const std::string& method) {
  return *std::ranges::find(made.points, method, &SweepPoint::method);
}

/// The recommendation and the runner-up, where they are there.
std::vector<Judged> chosen(const Advice& advice) {
  std::vector<Judged> out;
  for (const auto& place : {advice.first, advice.second})
    if (const Judged* judged = advice.at(place)) out.push_back(*judged);
  return out;
}

TEST(Advise, RecommendsOnlyMethodsThatFit) {
  std::size_t recommended = 0;
  for_many_cases([&](const MadeUp& made, const Advice& advice) {
    for (const Judged& judged : chosen(advice)) {
      const PredictedRow& row = prediction_of(made, judged.point.method).row;
      EXPECT_TRUE(row.refused.empty());
      EXPECT_LE(double(row.device_kv_bytes), made.limits.device_kv_bytes);
      EXPECT_LE(double(row.host_kv_bytes), made.limits.host_kv_bytes);
      ++recommended;
    }
  });
  EXPECT_GT(recommended, 1000u);
}

TEST(Advise, NeverRecommendsAMethodThatWasMeasuredToLoseMoreAtTheSameLengthAndBudget) {
  std::size_t ruled_out = 0;
  for_many_cases([&](const MadeUp& made, const Advice& advice) {
    for (const Loss& loss : made.losses) {
      const double share = prediction_of(made, loss.method).row.attended_device / kContext;
      const bool same = loss.exact || std::max(loss.share / share, share / loss.share) <= kSameShare;
      const bool has_own = std::ranges::any_of(
          made.losses, [&](const Loss& other) { return other.method == loss.method && other.kind == LossKind::yours; });
      const bool counts = loss.kind == LossKind::yours || (loss.kind == LossKind::run && !has_own);
      if (!counts || loss.longest != kContext || !same || loss.points <= made.limits.lose) continue;
      ++ruled_out;
      for (const Judged& judged : chosen(advice)) EXPECT_NE(judged.point.method, loss.method);
    }
  });
  EXPECT_GT(ruled_out, 100u);
}

TEST(Advise, NeverRecommendsAMethodWhoseLossIsUnknown) {
  std::size_t named = 0;
  for_many_cases([&](const MadeUp& made, const Advice& advice) {
    for (const Judged& judged : chosen(advice)) {
      if (prediction_of(made, judged.point.method).lossless) continue;
      EXPECT_NE(judged.expected.kind, LossKind::unknown);
      EXPECT_LE(judged.expected.points, made.limits.lose);
      EXPECT_TRUE(std::ranges::any_of(made.losses, [&](const Loss& loss) {
        return loss.method == judged.point.method && loss.longest == kContext && loss.points == judged.expected.points;
      }));
    }
    for (const std::size_t i : advice.not_known) {
      EXPECT_EQ(advice.methods[i].expected.kind, LossKind::unknown);
      EXPECT_TRUE(advice.methods[i].fits);
      EXPECT_FALSE(advice.methods[i].loses_more(made.limits.lose));
      ++named;
    }
  });
  EXPECT_GT(named, 100u);
}

TEST(Advise, SaysMeasuredOnlyOfMeasurements) {
  for_many_cases([](const MadeUp& made, const Advice& advice) {
    for (const Judged& judged : advice.methods) {
      if (!judged.expected.measured()) continue;
      EXPECT_TRUE(std::ranges::any_of(made.losses, [&](const Loss& loss) {
        return loss.method == judged.point.method && loss.measured() && loss.points == judged.expected.points;
      }));
    }
    for (const Judged& judged : advice.methods) {
      EXPECT_TRUE(!judged.nearest || judged.nearest->measured());
    }
  });
}

TEST(Advise, LosslessMethodsLoseNothingByConstruction) {
  for_many_cases([](const MadeUp&, const Advice& advice) {
    for (const Judged& judged : advice.methods) {
      EXPECT_EQ(judged.point.lossless, judged.expected.kind == LossKind::construction);
      if (!judged.point.lossless) continue;
      EXPECT_EQ(judged.expected.points, 0);
      EXPECT_EQ(judged.admitted_from, 0);
    }
  });
}

TEST(Advise, RecommendsTheFastestOfThoseAdmitted) {
  for_many_cases([](const MadeUp& made, const Advice& advice) {
    std::vector<double> steps;
    for (const Judged& judged : advice.methods)
      if (judged.admitted(made.limits.lose)) steps.push_back(judged.point.row.step_ms);
    std::ranges::sort(steps);
    const std::vector<Judged> best = chosen(advice);
    ASSERT_EQ(best.size(), std::min<std::size_t>(2, steps.size()));
    for (std::size_t i = 0; i < best.size(); ++i) EXPECT_EQ(best[i].point.row.step_ms, steps[i]);
    if (best.size() < 2) {
      EXPECT_FALSE(advice.order_is_certain);
    } else if (advice.order_is_certain) {
      EXPECT_LT(best[0].point.row.step_high_ms, best[1].point.row.step_low_ms);
      EXPECT_GT(best[0].point.row.step_high_ms, 0);
    }
  });
}

TEST(Advise, AHigherLimitThatIsNamedChangesTheAnswer) {
  std::size_t named = 0;
  for_many_cases([&](const MadeUp& made, const Advice& advice) {
    double before = made.limits.lose;
    for (const std::size_t i : advice.with_higher_limit) {
      const Judged& judged = advice.methods[i];
      EXPECT_GT(judged.admitted_from, before);
      before = judged.admitted_from;
      AdviceLimits higher = made.limits;
      higher.lose = judged.admitted_from;
      EXPECT_EQ(first_of(recommend(made.points, made.losses, higher)), judged.point.method);
      higher.lose = std::nextafter(judged.admitted_from, -1e9);
      EXPECT_NE(first_of(recommend(made.points, made.losses, higher)), judged.point.method);
      ++named;
    }
  });
  EXPECT_GT(named, 100u);
}

TEST(Advise, DoesNotDependOnTheOrderOfItsInput) {
  std::mt19937 random(11);
  for_many_cases([&](const MadeUp& made, const Advice& advice) {
    MadeUp shuffled = made;
    std::ranges::shuffle(shuffled.points, random);
    std::ranges::shuffle(shuffled.losses, random);
    const Advice again = recommend(shuffled.points, shuffled.losses, shuffled.limits);
    EXPECT_EQ(first_of(again), first_of(advice));
    EXPECT_EQ(again.with_higher_limit.size(), advice.with_higher_limit.size());
  });
}

TEST(Advise, APaperDoesNotOverruleARunAtTheNearestLength) {
  const std::vector<SweepPoint> points = {point_of("full", 40, 1), point_of("fluxion", 10, 0.08)};
  const std::vector<Loss> losses = {loss_of(LossKind::paper, "fluxion", 1.43, kContext, 0),
                                    loss_of(LossKind::run, "fluxion", 3.75, 4096, 0.21),
                                    loss_of(LossKind::run, "fluxion", 0.83, 2048, 0.59)};
  const Advice advice = recommend(points, losses, limits_of(2));
  EXPECT_EQ(first_of(advice), "full");
  ASSERT_EQ(advice.with_higher_limit.size(), 1u);
  const Judged& fluxion = advice.methods[advice.with_higher_limit[0]];
  EXPECT_EQ(fluxion.admitted_from, 3.75);
  EXPECT_EQ(fluxion.expected.kind, LossKind::paper);
  EXPECT_EQ(first_of(recommend(points, losses, limits_of(4))), "fluxion");
}

TEST(Advise, AUsersRunGoesBeforeRunsThatShip) {
  const std::vector<SweepPoint> points = {point_of("full", 40, 1), point_of("quest", 10)};
  const Loss shipped = loss_of(LossKind::run, "quest", 47, 4096, 0.12);
  EXPECT_EQ(first_of(recommend(points, {shipped, loss_of(LossKind::yours, "quest", 1, kContext, 0.1)}, limits_of(2))),
            "quest");
  EXPECT_EQ(first_of(recommend(points, {shipped, loss_of(LossKind::yours, "quest", 1, 8192, 0.1)}, limits_of(2))),
            "full")
      << "nothing was run at this length";
}

TEST(Advise, AnotherShareOfTheContextIsAnotherMeasurement) {
  const std::vector<SweepPoint> points = {point_of("full", 40, 1), point_of("quest", 10, 0.1)};
  const auto with = [&](double points_lost, double share) {
    return recommend(points, {loss_of(LossKind::run, "quest", points_lost, kContext, share)}, limits_of(2));
  };
  EXPECT_EQ(first_of(with(1, 0.11)), "quest");
  EXPECT_EQ(first_of(with(1, 0.5)), "full") << "more tokens lost little; what fewer lose is not known";
  EXPECT_EQ(with(1, 0.5).not_known.size(), 1u);
  EXPECT_EQ(with(9, 0.5).lose_more.size(), 1u) << "fewer tokens lose no less";
  EXPECT_EQ(with(9, 0.01).lose_more.size(), 0u) << "fewer tokens lost much; what more lose is not known";
}

TEST(Advise, ABudgetThatIsNotKnownHasNoRunAgainstIt) {
  SweepPoint quest = refused_point("quest", /*too_large=*/true);  // its weights alone are too large
  const std::vector<Loss> losses = {loss_of(LossKind::run, "quest", 47, 4096, 0.12)};
  EXPECT_FALSE(recommend({quest}, losses, limits_of(2)).methods[0].nearest);
  quest.row.attended_device = 0.12 * kContext;
  EXPECT_TRUE(recommend({quest}, losses, limits_of(2)).methods[0].nearest);
}

TEST(Advise, PapersRowsOfTheSameModelGoFirst) {
  const std::vector<SweepPoint> points = {point_of("full", 40, 1), point_of("fluxion", 10)};
  const Loss own = loss_of(LossKind::paper, "fluxion", 1, kContext, 0);
  Loss other = loss_of(LossKind::paper, "fluxion", 3, kContext, 0);
  other.model = "Qwen2.5-7B-Instruct";
  AdviceLimits limits = limits_of(2);
  EXPECT_EQ(first_of(recommend(points, {other, own}, limits)), "fluxion");
  limits.model = "qwen3-8b";
  EXPECT_EQ(first_of(recommend(points, {other, own}, limits)), "full") << "the largest of other models' losses";
}

ShownAdvice shown_of(const std::vector<SweepPoint>& points, const std::vector<Loss>& losses, double lose) {
  ShownAdvice shown;
  shown.advice = recommend(points, losses, limits_of(lose));
  shown.hardware = load_profile("h100");
  shown.weight_bytes = 16'000'000'000;
  return shown;
}

TEST(AdviseText, SaysWhyAndWhatWouldChangeTheAnswer) {
  const SweepPoint whole = refused_point("full", /*too_large=*/true);
  const std::vector<SweepPoint> points = {whole,
                                          point_of("full-host", 40, 1),
                                          point_of("full-offload", 42, 1),
                                          point_of("fluxion", 10),
                                          point_of("quest", 6),
                                          point_of("streaming", 4)};
  const std::vector<Loss> losses = {loss_of(LossKind::paper, "fluxion", 1.43, kContext, 0),
                                    loss_of(LossKind::run, "fluxion", 3.75, 4096, 0.21),
                                    loss_of(LossKind::run, "streaming", 82.5, 2048, 0.16)};
  ShownAdvice shown = shown_of(points, losses, 2);
  Judged better = shown.advice.methods[*shown.advice.first];
  better.point.row.step_ms = 20;
  better.point.row.step_low_ms = better.point.row.step_high_ms = 0;
  shown.what_ifs = {{"--weight-bits 8", better, {8, 16}},
                    {"--kv-bits 8", *shown.advice.at(shown.advice.first), {16, 8}}};
  std::string text = advice_text(shown);
  std::ranges::replace(text, '\n', ' ');
  EXPECT_THAT(text,
              AllOf(HasSubstr("full-host is the fastest method that fits and is known to lose at most 2 points at "
                              "128K. It loses nothing, since it computes what full attention does."),
                    HasSubstr("ranges of the two overlap, so that their order is not certain"),
                    HasSubstr("full does not fit: its KV takes 17.2 GB."),
                    HasSubstr("With --lose 4, fluxion gives 100 [91–111] tokens/s. It loses 1.4 points by a paper, "
                              "not measured here: somewhere, Llama-3.1-8B-Instruct at 128K."),
                    HasSubstr("The run at the nearest length lost 3.8 points, measured by a run that ships")));
  EXPECT_THAT(text,
              AllOf(HasSubstr("unknown: quest 167 tokens/s"), HasSubstr("streaming 250 (82.5 at 2K)"),
                    HasSubstr("With --weight-bits 8, full-host gives 50 (no range) tokens/s and takes 9.0 GB on the "
                              "device and 2.0 GB in host memory. Fewer bits count as"),
                    Not(HasSubstr("--kv-bits"))))
      << "a setting that changes nothing is not named";
  std::istringstream lines(advice_text(shown));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(text_columns(line), kTerminalWidth) << line;
  const nlohmann::json json = parse_json(advice_json({shown}), "JSON").at("answers").at(0);
  EXPECT_EQ(json.at("recommended").at("method"), "full-host");
  EXPECT_EQ(json.at("recommended").at("device_bytes"), 17'000'000'000u);
  EXPECT_EQ(json.at("recommended").at("loss").at("kind"), "construction");
  EXPECT_EQ(json.at("with_higher_limit").at(0).at("loss").at("measured"), false);
  EXPECT_EQ(json.at("with_higher_limit").at(0).at("nearest_measured_loss").at("measured"), true);
  EXPECT_EQ(json.at("loss_unknown").at(0).at("loss").at("points"), nullptr);
  EXPECT_EQ(json.at("what_if").size(), 2u);
}

TEST(AdviseText, OfLimitsThatPrintAlikeTheFastestIsNamed) {
  const std::vector<SweepPoint> points = {point_of("full", 40, 1), point_of("quest", 10), point_of("streaming", 5)};
  const std::vector<Loss> losses = {loss_of(LossKind::yours, "quest", 2.1, kContext, 0.1),
                                    loss_of(LossKind::yours, "streaming", 2.9, kContext, 0.1)};
  const ShownAdvice shown = shown_of(points, losses, 2);
  EXPECT_EQ(shown.advice.with_higher_limit.size(), 2u);
  EXPECT_THAT(advice_text(shown), AllOf(HasSubstr("With --lose 3, streaming gives"), Not(HasSubstr("3, quest gives"))));
}

TEST(AdviseText, AMeasuredIntervalWithoutWidthIsNotNone) {
  std::vector<Loss> losses = {loss_of(LossKind::yours, "quest", 0, kContext, 0.1)};
  EXPECT_THAT(advice_text(shown_of({point_of("quest", 6)}, losses, 2)), Not(HasSubstr("[0.0, 0.0]")));
  losses[0].interval.emplace();
  const ShownAdvice shown = shown_of({point_of("quest", 6)}, losses, 2);
  EXPECT_THAT(advice_text(shown), HasSubstr("  0.0 [0.0, 0.0]  your run\n"));
  const nlohmann::json json = parse_json(advice_json({shown}), "JSON").at("answers").at(0).at("recommended").at("loss");
  EXPECT_EQ(json.at("interval"), nlohmann::json({0.0, 0.0}));
}

TEST(AdviseText, SaysWhereTheModelHasFewerPositions) {
  ShownAdvice shown = shown_of({point_of("full", 6, 1)}, {}, 2);
  EXPECT_THAT(advice_text(shown), Not(HasSubstr("positions")));
  shown.advice.limits.positions = kContext - 1;
  EXPECT_THAT(advice_text(shown), HasSubstr("llama-3.1-8b has 131071 positions"));
}

TEST(AdviseText, SaysWhereNothingIsAdmitted) {
  ShownAdvice shown = shown_of({point_of("quest", 6)}, {}, 2);
  EXPECT_THAT(advice_text(shown), AllOf(HasSubstr("No method fits and is known to lose at most 2 points at 128K."),
                                        HasSubstr("simulated: llama-3.1-8b, batch 1 x 128K")));
  EXPECT_EQ(parse_json(advice_json({shown}), "JSON").at("answers").at(0).at("recommended"), nullptr);
}

}  // namespace
}  // namespace tandem::eval
