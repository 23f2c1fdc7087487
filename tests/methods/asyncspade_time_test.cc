// AsyncSpade: who waits for whom in virtual nanoseconds, and what that is called.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>

#include "engine/device/cost_model.h"
#include "methods/registry.h"
#include "tests/methods/slow_spade.h"

namespace tandem::testing {
namespace {

/// Launching costs nothing; 1 byte of HBM per ns; the host's threads choose at `host_gbps` each.
HardwareProfile plain_asyncspade_profile(double host_gbps) {
  HardwareProfile p = load_profile("asyncspade-a100");
  p.device.hbm_gbps = 1;
  p.device.stream_efficiency = p.device.attention_efficiency = p.device.select_efficiency = 1;
  p.device.gemm_tflops = 1e4;
  p.device.launch_ns = p.device.segment_launch_ns = p.device.op_floor_ns = 0;
  p.control.submit_ns = 0;
  p.host.dram_gbps = 1e5;
  p.host.attention_gbps_per_thread = host_gbps;
  p.host.attention_efficiency = 1;
  p.host.gflops_per_thread = 1e5;
  p.handoff = {30, 40};
  return p;
}

struct Waits {
  Nanos selection = 0, transfer = 0, signals = 0, others = 0, gaps = 0;  // others: nothing here has another cause
};

/// What the device waited for between a layer's query and its attention, and what that was put down to.
Waits waits_of(const DecodeResult& result) {
  Waits waits;
  const auto of = [&](Cause cause) { return result.idle.decode.by_cause[static_cast<std::size_t>(cause)]; };
  waits.selection = of(Cause::selection);
  waits.transfer = of(Cause::transfer);
  waits.signals = of(Cause::handoff);
  waits.others = result.idle.decode.idle - waits.selection - waits.transfer - waits.signals - of(Cause::sampling);
  std::map<std::uint32_t, Nanos> query_end;
  for (const TraceRecord& r : result.trace.records) {
    if (r.start < result.trace.steps.front().end) continue;  // setup
    if (std::string(r.name) == "qkv") query_end[r.layer] = r.end;
    if (std::string(r.name) == "device attention") waits.gaps += r.start - query_end[r.layer];
  }
  return waits;
}

DecodeResult timed(const std::string& options, const HardwareProfile& profile) {
  Bench bench(tiny_model(true, 4), make_sim_device(profile));
  return bench.decode(*make_method("asyncspade:budget=50,window=6," + options), {kRagged[0], kRagged[2]}, 12);
}

TEST(AsyncSpadeTime, TheDeviceNeverWaitsWhereTheRankKeepsUp) {
  HardwareProfile fast = plain_asyncspade_profile(1e4);
  fast.handoff = {0, 0};
  for (LinkPoint& point : fast.link.h2d_curve) point.gbps = 1e4;
  for (LinkPoint& point : fast.link.d2h_curve) point.gbps = 1e4;
  const Waits host = waits_of(timed("pack=1,place=host", fast));
  EXPECT_EQ(host.gaps, 0);
  EXPECT_EQ(host.selection, 0);
  // The peer is as fast as the device: what it does per pack is less than the device's step.
  fast.peer = {1e4, 5};
  const Waits peer = waits_of(timed("pack=1,place=peer", fast));
  EXPECT_EQ(peer.gaps, 0);
  EXPECT_EQ(peer.selection, 0);
}

TEST(AsyncSpadeTime, APredictionTakesTheTimeOfItsRule) {
  const HardwareProfile profile = load_profile("asyncspade-a100");
  const auto chosen = [&](const std::string& rule) {  // the longest: with a full window
    Nanos longest = 0;
    for (const TraceRecord& r : timed("pack=1,place=host,weights=" + rule, profile).trace.records)
      if (std::string(r.name) == "select ahead") longest = std::max(longest, r.end - r.start);
    return longest;
  };
  // Two sequences of four heads, whose six queries of 16 values are there; a thread per KV head and sequence.
  const auto time = [&](LagWeights weights) {
    const PredictionRule rule{.weights = weights, .window = 6};
    const double flops = 2.0 * 4 * double(prediction_flops(rule, 7, 16)) * kSolvedFlopsHost;
    return flops / (4 * profile.host.gflops_per_thread);
  };
  const Nanos newton = chosen("eq2"), ridge = chosen("ridge_softmax"), raw = chosen("raw");
  EXPECT_NEAR(double(newton - ridge), time(LagWeights::eq2) - time(LagWeights::ridge_softmax), 3);
  EXPECT_NEAR(double(ridge - raw), time(LagWeights::ridge_softmax) - time(LagWeights::raw), 3);
  EXPECT_GT(newton, 2 * ridge);
}

TEST(AsyncSpadeTime, AWaitIsPutDownToWhoeverIsLate) {
  const DecodeResult slow_choice = timed("pack=2,place=host", plain_asyncspade_profile(0.002));
  const Waits selection = waits_of(slow_choice);
  EXPECT_GT(selection.gaps, 0);
  EXPECT_GT(selection.selection, selection.gaps / 10 * 9);
  EXPECT_GE(selection.selection + selection.transfer + selection.signals, selection.gaps);
  EXPECT_EQ(selection.others, 0);
  HardwareProfile slow_link = plain_asyncspade_profile(1e4);
  slow_link.peer = {0.001, 5};
  const Waits transfer = waits_of(timed("pack=2,place=peer", slow_link));
  EXPECT_GT(transfer.gaps, 0);
  EXPECT_GT(transfer.transfer, transfer.gaps / 10 * 9);
  EXPECT_GE(transfer.selection + transfer.transfer + transfer.signals, transfer.gaps);
  EXPECT_EQ(transfer.others, 0);
  EXPECT_EQ(timed("pack=2,place=host", plain_asyncspade_profile(1e4)).sequences[0].tokens,
            slow_choice.sequences[0].tokens)
      << "when a selection arrives changes nothing";
}

TEST(AsyncSpadeTime, ASideStreamsChoiceIsTheDevicesOwnWork) {
  HardwareProfile slow = plain_asyncspade_profile(1e4);
  slow.device.gemm_tflops = 1e-4;  // what chooses computes more than a layer does
  const DecodeResult result = timed("pack=1,place=stream", slow);
  const Waits waits = waits_of(result);
  EXPECT_GT(waits.gaps, result.idle.decode.window / 10);
  EXPECT_EQ(waits.selection, 0) << "the device computes while its inference lane waits";
  EXPECT_LT(result.idle.decode.idle, result.idle.decode.window / 100);
  Nanos inference = 0;  // the inference lane alone
  for (const TraceRecord& r : result.trace.records) {
    if (r.kind == Kind::compute && result.trace.lanes[r.lane].inference && r.start >= result.trace.steps.front().end)
      inference += r.end - r.start;
  }
  EXPECT_GT(inference, 0);
  EXPECT_LT(inference, result.idle.decode.busy - waits.gaps / 2);
}

TEST(AsyncSpadeTime, AnAttentionBeginsWhenItsPacksSelectionIsThere) {
  const DecodeResult result = timed("pack=2,place=host", plain_asyncspade_profile(0.002));
  std::map<std::uint32_t, std::vector<TraceRecord>> arrived, attention;
  for (const TraceRecord& r : result.trace.records) {
    if (r.start < result.trace.steps.front().end) continue;
    if (std::string(r.name) == "selection to device") arrived[r.layer].push_back(r);
    if (std::string(r.name) == "device attention") attention[r.layer].push_back(r);
  }
  for (const std::uint32_t layer : {0u, 2u}) {
    for (std::size_t step = 1; step < 12; ++step)  // staleness: exactly one step
      EXPECT_EQ(attention[layer][step].start, arrived[layer][step - 1].end) << "layer " << layer << " step " << step;
  }
}

// By hand, for packs of two layers: of 4 query heads and 2 KV heads with 16 floats each, behind 300 tokens. Tokens 288
// to 303 fill a page, which leaves in the fourth step; the last step's queries leave, and nothing comes back.
}  // namespace
}  // namespace tandem::testing
