// The answer of a run: its rows, the front, and that it fits on a screen.
#include "eval/report/answer.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "eval/report/table.h"
#include "tests/eval/report/example_run.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Bounds from which a synthetic run is drawn.
struct Drawn {
  std::size_t methods = 4;
  bool timed = true, bytes = true;
  std::uint32_t longest = 12;  // columns of an option list
};

/// A summary of invented figures, many of them equal; the first method is `full`.
Summary drawn_summary(std::mt19937& random, const Drawn& of) {
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  Summary s;
  s.complete = true;
  s.manifest = example_manifest();
  s.manifest.methods.clear();
  s.manifest.lengths = {1024, 2048};
  if (!of.timed) s.manifest.clock.clear();
  for (std::size_t i = 0; i < of.methods; ++i) {
    MethodEntry& entry = s.manifest.methods.emplace_back();
    entry.name = i == 0 ? "full" : below(2) == 0 ? "quest" : "hgca";
    entry.label = entry.name;
    if (i > 0) entry.label += fmt::format(":budget={:02},{}=1", i, std::string(1 + below(of.longest), 'x'));
    MethodSummary& m = s.methods.emplace_back();
    m.label = entry.label;
    const std::uint64_t n = 20, right = std::uint64_t{below(6)} * 4;
    m.overall.accuracy = {n, double(right) / n, wilson_interval(right, n), IntervalKind::wilson};
    if (i > 0) {
      const double middle = m.overall.accuracy.value - s.methods[0].overall.accuracy.value;
      const double half = 0.1 + 0.1 * below(4);
      m.overall.has_difference = true;
      m.overall.difference.difference = {n, middle, {middle - half, middle + half}, IntervalKind::newcombe};
      if (below(3) == 0) m.attends_everything_at = {1024};
    }
    if (!of.timed) continue;
    for (const std::uint32_t length : s.manifest.lengths) {
      LatencySummary& l = m.by_length.emplace_back(LengthLatency{length, {}}).latency;
      l.samples = l.steps = n;
      l.tpot_ms = 1 + below(5);
      l.step_ms = 4;
      l.idle_ms = below(4);
      l.attended_device = 100.0 * below(9);
      if (of.bytes) l.touched = 1e6 * (1 + (i == 0 ? 4 : below(5)));
    }
    m.latency = m.by_length.front().latency;
  }
  return s;
}

double value_of(const Answer& a, const AnswerRow& row) {
  return a.losses ? -row.score.value : row.score.value;
}

std::optional<double> cost_of(const Answer& a, const AnswerRow& row) {
  return a.cost == AnswerCost::kv_share ? row.kv_share : row.tpot_ms;
}

TEST(Answer, RowsAndFrontAreThoseOfBruteForce) {
  std::mt19937 random(1);
  for (std::size_t round = 0; round < 200; ++round) {
    const Summary s = drawn_summary(random, {1 + round % 12, round % 5 != 0, round % 3 != 0});
    const Answer a = answer_of(s);
    ASSERT_EQ(a.rows.size(), s.methods.size());
    ASSERT_EQ(a.cost, round % 5 == 0 ? AnswerCost::none : round % 3 == 0 ? AnswerCost::tpot : AnswerCost::kv_share);
    for (const MethodSummary& m : s.methods) {
      const auto row = std::ranges::find(a.rows, m.label, &AnswerRow::label);
      ASSERT_NE(row, a.rows.end()) << m.label;
      EXPECT_EQ(row->score.value, m.overall.accuracy.value);
      const bool is_baseline = m.label == "full";
      EXPECT_EQ(row->keeps, is_baseline || m.overall.difference.difference.interval.high >= 0);
      EXPECT_EQ(row->attends_everything_at, m.attends_everything_at);
      if (a.cost == AnswerCost::none) {
        EXPECT_FALSE(row->front);
        continue;
      }
      double tpot = 0, attended = 0, touched = 0, all = 0;
      for (std::size_t i = 0; i < 2; ++i) {
        const LatencySummary& l = m.by_length[i].latency;
        tpot += l.tpot_ms.value_or(NAN) / 2;
        attended += l.attended_device / 2;
        touched += l.touched.value_or(0);
        all += s.methods[0].by_length[i].latency.touched.value_or(0);
      }
      EXPECT_DOUBLE_EQ(row->tpot_ms.value_or(NAN), tpot);
      EXPECT_DOUBLE_EQ(row->attended.value_or(NAN), attended);
      if (a.cost == AnswerCost::kv_share) {
        EXPECT_DOUBLE_EQ(row->kv_share.value_or(NAN), touched / all);
      }
      const bool beaten = std::ranges::any_of(a.rows, [&](const AnswerRow& other) {
        const double score = value_of(a, other) - value_of(a, *row);
        const double cost = cost_of(a, other).value_or(NAN) - cost_of(a, *row).value_or(NAN);
        return score >= 0 && cost <= 0 && (score > 0 || cost < 0);
      });
      EXPECT_EQ(row->front, !beaten) << round << " " << m.label;
    }
    for (std::size_t i = 1; i < a.rows.size(); ++i) EXPECT_GE(value_of(a, a.rows[i - 1]), value_of(a, a.rows[i]));
  }
}

TEST(Answer, FitsOnAScreenHoweverManyMethodsThereAre) {
  std::mt19937 random(2);
  for (std::size_t methods = 1; methods <= 40; ++methods) {
    for (const std::uint32_t longest : {4u, 90u}) {
      for (const std::size_t width : {std::size_t{60}, std::size_t{100}}) {
        Summary s = drawn_summary(random, {methods, methods % 4 != 1, methods % 3 != 0, longest});
        s.manifest.model = methods % 2 == 0 ? "embedded" : std::string(200, 'm');
        const Answer a = answer_of(s);
        const std::string text = answer_text(a, width, 33);
        EXPECT_LE(std::ranges::count(text, '\n'), 33) << text;
        for (std::size_t begin = 0; begin < text.size();) {
          const std::size_t end = text.find('\n', begin);
          EXPECT_LE(text_columns(std::string_view(text).substr(begin, end - begin)), width) << text;
          begin = end + 1;
        }
        EXPECT_THAT(text, HasSubstr(a.rows[0].name.substr(0, 20)));
        std::size_t shown = 0, hidden = 0;
        for (const AnswerRow& row : a.rows)
          shown += text.find((row.front ? "\n* " : "\n  ") + row.name.substr(0, 20)) < text.size();
        if (const std::size_t at = text.find("\n  and "); at != std::string::npos)
          hidden = std::stoul(text.substr(at + 7));
        EXPECT_EQ(shown + hidden, methods) << text;
        if (methods <= 12 && width == 100) {
          EXPECT_EQ(hidden, 0u) << text;
        }
      }
    }
  }
}

TEST(Answer, SaysWhichMethodsKeepTheScoreAndWhatTheyCost) {
  std::mt19937 random(3);
  Summary s = drawn_summary(random, {3});
  s.manifest.methods[1].label = s.methods[1].label = "a";
  s.manifest.methods[2].label = s.methods[2].label = "b";
  const auto set = [&](std::size_t i, double low, double high, double tpot, double touched) {
    s.methods[i].overall.has_difference = i > 0;
    s.methods[i].overall.difference.difference = {20, (low + high) / 2, {low, high}, IntervalKind::newcombe};
    s.methods[i].attends_everything_at.clear();
    for (LengthLatency& at : s.methods[i].by_length) {
      at.latency.tpot_ms = tpot;
      at.latency.touched = touched;
    }
  };
  set(0, 0, 0, 2, 1000);
  set(1, -0.2, 0.05, 1, 250);
  set(2, -0.4, -0.1, 0.5, 100);
  const Answer one = answer_of(s);
  ASSERT_EQ(one.sentences.size(), 2u);
  EXPECT_THAT(one.sentences[0],
              AllOf(HasSubstr("Within noise of full, or better: a ("), HasSubstr("up to 20.0 points")));
  EXPECT_EQ(one.sentences[1],
            "The fastest of them is a, with a TPOT 0.50 times that of full. a touches the fewest bytes of the context, "
            "25.0 % of what full touches.");
  set(1, -0.2, -0.05, 1, 250);
  const Answer none = answer_of(s);
  ASSERT_EQ(none.sentences.size(), 1u);
  EXPECT_EQ(none.sentences[0], "Every other method loses more against full than noise explains.");
  set(1, -0.2, 0.05, 3, 1000);
  s.methods[1].attends_everything_at = {2048};
  const Answer whole = answer_of(s);
  ASSERT_EQ(whole.sentences.size(), 3u);
  EXPECT_EQ(whole.sentences[1], "None of them is faster than full.");
  EXPECT_THAT(whole.sentences[2], HasSubstr("Warning: at 2K the budget of a holds the whole context"));
}

TEST(Answer, OfARunWithoutTimesHasScoresAlone) {
  std::mt19937 random(4);
  const Answer a = answer_of(drawn_summary(random, {3, false}));
  EXPECT_THAT(answer_text(a, 100, 33), AllOf(HasSubstr("accuracy, %"), Not(HasSubstr("TPOT")), Not(HasSubstr("idle")),
                                             Not(HasSubstr("attended")), Not(HasSubstr("Pareto"))));
}

TEST(Answer, OfAPerplexityTheLowestIsBest) {
  std::mt19937 random(5);
  Summary s = drawn_summary(random, {3, true, false});
  s.manifest.benchmark = kPerplexity;
  const auto set = [&](std::size_t i, double nats, double low, double high, IntervalKind kind) {
    s.methods[i].overall.accuracy = {20, nats, {nats - 0.1, nats + 0.1}, IntervalKind::bootstrap};
    s.methods[i].overall.difference.difference = {20, (low + high) / 2, {low, high}, kind};
  };
  set(0, 2, 0, 0, IntervalKind::none);
  set(1, 1.5, -0.6, -0.4, IntervalKind::paired_bootstrap);
  set(2, 3, 1, 1, IntervalKind::none);
  const Answer a = answer_of(s);
  EXPECT_EQ(a.measure, "perplexity");
  EXPECT_EQ(a.rows[0].label, s.methods[1].label);
  EXPECT_EQ(a.rows[2].label, s.methods[2].label);
  EXPECT_EQ(score_text(a, a.rows[1]), "7.389 [6.686, 8.166]");
  EXPECT_TRUE(a.rows[0].keeps);
  EXPECT_FALSE(a.rows[2].keeps) << "all windows lose alike";
  EXPECT_THAT(answer_text(a, 100, 33), HasSubstr("\n* Pareto front: no method does as well with shorter steps."));
  EXPECT_THAT(answer_list(a), HasSubstr("No other method does as well with shorter steps."));
}

TEST(ShortLabels, TellWhatDiffers) {
  const std::string x(30, 'x');
  EXPECT_EQ(
      short_labels({"full", "quest:budget=64,a=" + x, "hgca:beta=1,heads=2,3,a=" + x, "hgca:beta=1,heads=4,a=" + x}),
      (std::vector<std::string>{"full", "quest", "hgca:heads=2,3", "hgca:heads=4"}));
  EXPECT_EQ(short_labels({"quest", "quest:budget=64,a=" + x, "quest:a=" + x})[1], "quest:budget=64");
  EXPECT_EQ(short_labels({"quest:budget=64,a=" + x, "quest:budget=64,b=" + x}),
            (std::vector<std::string>{"quest#1", "quest#2"}))
      << "what differs is too long";
  EXPECT_EQ(short_labels({"quest:a=1,b=" + x, "quest:a=1,b=" + x + ",c=2"})[0], "quest#1") << "the other has all of it";
}

}  // namespace
}  // namespace tandem::eval
