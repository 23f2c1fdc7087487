// Decodes that are recorded once: replayed at another precision, or for a range, they give the figures of a simulation.
#include <array>
#include <gtest/gtest.h>

#include "tests/eval/predict/sweeps.h"

namespace tandem::eval {
namespace {

SweepOptions options_of(HardwareProfile hardware, const Precision& precision) {
  SweepOptions o = a_sweep();
  o.methods = {"full", "full-offload", "full-host", "quest:budget=256", "hgca:device_kv=256,block=16", "streaming"};
  o.hardware = {std::move(hardware)};
  o.contexts = {1024};
  o.batches = {2};
  o.steps = kRangeSteps + 2;
  o.checked = false;
  o.precision = precision;
  return o;
}

/// By recordings, with all ranges.
Sweep recorded_sweep(SweepOptions options, Recordings& recordings) {
  options.recordings = &recordings;
  Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  std::vector<SweepPoint*> points;
  for (SweepPoint& point : sweep.points) points.push_back(&point);
  add_ranges(options, points);
  return sweep;
}

void expect_same(const Sweep& found, const Sweep& expected) {
  ASSERT_EQ(found.points.size(), expected.points.size());
  for (std::size_t i = 0; i < found.points.size(); ++i) {
    const PredictedRow &a = found.points[i].row, &b = expected.points[i].row;
    SCOPED_TRACE(b.method);
    EXPECT_EQ(a.method, b.method);
    EXPECT_EQ(a.refused, b.refused);
    EXPECT_EQ(a.too_large, b.too_large);
    EXPECT_EQ(a.widest_range, b.widest_range);
    EXPECT_EQ(a.idle_ms_by_cause, b.idle_ms_by_cause);
    for (const auto figure :
         {&PredictedRow::setup_ms, &PredictedRow::first_step_ms, &PredictedRow::step_ms, &PredictedRow::step_low_ms,
          &PredictedRow::step_high_ms, &PredictedRow::busy_ms, &PredictedRow::idle_ms, &PredictedRow::layer0_idle_ms,
          &PredictedRow::attended_device, &PredictedRow::attended_host, &PredictedRow::touched_bytes})
      EXPECT_EQ(a.*figure, b.*figure);
    for (const auto bytes :
         {&PredictedRow::device_kv_bytes, &PredictedRow::host_kv_bytes, &PredictedRow::peer_kv_bytes})
      EXPECT_EQ(a.*bytes, b.*bytes);
  }
}

constexpr std::array<Precision, 3> kPrecisions = {Precision{16, 16}, {8, 16}, {16, 4}};

TEST(Recordings, GiveTheFiguresOfASimulationAtEachPrecision) {
  Recordings recordings;
  for (const Precision& precision : kPrecisions) {
    SCOPED_TRACE(precision_text(precision));
    const SweepOptions options = options_of(load_profile("rtx-4090"), precision);
    expect_same(recorded_sweep(options, recordings), simulate_sweep(load_shape(kShape), a_workload(), options));
  }
}

// The recording is of a decode that did not fit; with fewer bits it does.
TEST(Recordings, AreOfMethodsThatDoNotFitToo) {
  HardwareProfile small = load_profile("rtx-4090");
  const Model shape = load_shape(kShape);
  small.device.memory_gb = (double(shape.weights.bytes()) + 45e6) / 0.95 * 1e-9;
  Recordings recordings;
  std::vector<bool> fits;
  for (const Precision& precision : kPrecisions) {
    SCOPED_TRACE(precision_text(precision));
    const SweepOptions options = options_of(small, precision);
    const Sweep found = recorded_sweep(options, recordings);
    expect_same(found, simulate_sweep(load_shape(kShape), a_workload(), options));
    fits.push_back(found.points.front().row.refused.empty());
  }
  EXPECT_EQ(fits, (std::vector<bool>{false, true, true}));
}

TEST(Recordings, HaveNoMethodWhoseTasksAreDealtByTime) {
  SweepOptions options = options_of(load_profile("rtx-4090"), {});
  options.methods = {"fluxion:heads=published", "full"};
  Recordings recordings;
  const Sweep first = recorded_sweep(options, recordings);
  EXPECT_EQ(recordings.find(first.points[0]), nullptr);
  ASSERT_NE(recordings.find(first.points[1]), nullptr);
  options.precision = {16, 8};
  expect_same(recorded_sweep(options, recordings), simulate_sweep(load_shape(kShape), a_workload(), options));
  recordings.remove(first.points[1]);
  EXPECT_EQ(recordings.find(first.points[1]), nullptr);
}

// One prompt of each length is prefilled; the others take its time.
TEST(Prediction, APrefillTakesAsLongAsItsPromptsOneByOne) {
  PredictionOptions options{.methods = {"full", "h2o:budget=256"}, .steps = 2, .threads = 1, .checked = false};
  const auto prefill_ms = [&](std::vector<std::uint32_t> contexts) {
    options.batch = static_cast<std::uint32_t>(contexts.size());
    options.contexts = std::move(contexts);
    std::vector<double> ms;
    for (const PredictedRow& row : predict(load_shape(kShape), load_profile("h100"), a_workload(), options).rows)
      ms.push_back(row.prefill_ms);
    return ms;
  };
  options.context = 3000;
  const std::vector<double> longer = prefill_ms({3000}), shorter = prefill_ms({1024}),
                            all = prefill_ms({3000, 1024, 3000, 3000});
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], 3 * longer[i] + shorter[i], 1e-9 * all[i]);
  EXPECT_GT(longer[1], longer[0]) << "column sums";
}

}  // namespace
}  // namespace tandem::eval
