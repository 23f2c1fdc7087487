// What beginning a layer ahead is worth, in virtual nanoseconds: how long the device waits for the host in each layer,
// from the durations of the operations alone.
#include <gtest/gtest.h>
#include <map>

#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

/// Launching costs nothing and memories are wide, so that what waits, waits for the host. 1 byte of HBM per ns.
HardwareProfile plain_fluxion_profile(double host_gbps_per_thread) {
  HardwareProfile p = load_profile("fluxion-a100");
  p.device.hbm_gbps = 1;
  p.device.stream_efficiency = p.device.attention_efficiency = p.device.select_efficiency = 1;
  p.device.launch_ns = p.device.segment_launch_ns = p.device.op_floor_ns = 0;
  p.control.submit_ns = 0;
  p.host.dram_gbps = 1e5;
  p.host.attention_efficiency = 1;
  p.host.attention_gbps_per_thread = host_gbps_per_thread;
  p.host.gflops_per_thread = 1e4;
  p.handoff = {30, 40};
  return p;
}

/// Records by name and layer, in the order of the steps.
class Timeline {
 public:
  explicit Timeline(const Trace& trace) {
    for (const TraceRecord& r : trace.records) {
      if (r.start >= trace.steps.front().end) records_[{r.name, r.layer}].push_back(r);
    }
  }
  const TraceRecord& at(const std::string& name, std::uint32_t layer, std::size_t step) const {
    return records_.at({name, layer}).at(step);
  }
  Nanos time(const std::string& name, std::uint32_t layer, std::size_t step) const {
    const TraceRecord& r = at(name, layer, step);
    return r.end - r.start;
  }
  bool has(const std::string& name, std::uint32_t layer) const { return records_.contains({name, layer}); }

 private:
  std::map<std::pair<std::string, std::uint32_t>, std::vector<TraceRecord>> records_;
};

constexpr std::uint32_t kLayers = 4, kAheadSteps = 12;
constexpr Nanos kHandoffs = 30 + 40;  // of a round: device to host, host to device

DecodeResult run(const std::string& spec, const HardwareProfile& profile) {
  Bench bench(tiny_model(true, kLayers), make_sim_device(profile));
  return bench.decode(*make_method(spec), {random_prompt(601, 1), random_prompt(450, 2)}, kAheadSteps);
}

/// How long the device has waited between a layer's own attention and its merge.
Nanos waited(const Timeline& t, std::uint32_t layer, std::size_t step, const char* before) {
  return t.at("merge", layer, step).start - t.at(before, layer, step).end;
}

TEST(LayerAheadTime, ScoutWaitsForWhatALayerAndItsAttentionDoNotHide) {
  for (const double host_gbps : {0.02, 0.2, 50.0}) {
    const DecodeResult result =
        run("scoutattention:budget=160,block=16,sinks=16,recall=0", plain_fluxion_profile(host_gbps));
    const Timeline t(result.trace);
    for (const TraceRecord& r : result.trace.records) {
      if (std::string(r.name) == "prediction to host") {
        EXPECT_EQ(r.cost.pieces, 3u) << "two adjacent queries, and a list each";
      }
      if (std::string(r.name) == "host partials to device") {
        EXPECT_EQ(r.cost.pieces, 2u) << "outputs and log sums";
      }
    }
    std::size_t waits = 0, hidden = 0;
    for (std::size_t step = 0; step < kAheadSteps; ++step) {
      // Layer 0: the choice is on its way to the host, and the device goes on: it begins layer 1 and attends.
      const Nanos host = t.time("prediction to host", 0, step) + t.time("host attention", 0, step) +
                         t.time("host partials to device", 0, step) + kHandoffs;
      const Nanos beside = t.time("predict query", 1, step) + t.time("select blocks", 1, step) +
                           t.time("split by residency", 1, step) + t.time("device attention", 0, step);
      EXPECT_EQ(waited(t, 0, step, "device attention"), std::max<Nanos>(0, host - beside)) << "step " << step;
      for (std::uint32_t layer = 1; layer < kLayers; ++layer) {
        // The rest r of a layer: from the merge before to this layer's attention, busy throughout.
        const Nanos c = t.time("host attention", layer, step);
        const Nanos a = t.time("device attention", layer, step);
        const Nanos r = t.at("device attention", layer, step).start - t.at("merge", layer - 1, step).start;
        const Nanos gap = waited(t, layer, step, "device attention");
        const bool behind = t.at("host attention", layer, step).start == t.at("host attention", layer - 1, step).end;
        const bool waited_before = waited(t, layer - 1, step, "device attention") > 0;
        if (behind && waited_before && gap > 0) {
          EXPECT_EQ(gap, c - (a + r)) << "layer " << layer << " of step " << step << " at " << host_gbps << " GB/s";
          ++waits;
        } else if (c <= a + r) {
          EXPECT_EQ(gap, 0) << "layer " << layer << " of step " << step << " at " << host_gbps << " GB/s";
          ++hidden;
        }
      }
    }
    if (host_gbps == 0.02) {
      EXPECT_EQ(waits, std::size_t{kAheadSteps} * (kLayers - 1));
    }
    if (host_gbps == 50.0) {
      EXPECT_EQ(hidden, std::size_t{kAheadSteps} * (kLayers - 1));
    }
  }
}

TEST(LayerAheadTime, WithoutItScoutWaitsForWhatItsAttentionDoesNotHideInEveryLayer) {
  for (const double host_gbps : {0.02, 50.0}) {
    const DecodeResult result =
        run("scoutattention:budget=160,block=16,sinks=16,recall=0,ahead=none", plain_fluxion_profile(host_gbps));
    const Timeline t(result.trace);
    EXPECT_FALSE(t.has("predict query", 1));
    std::size_t waits = 0;
    for (std::size_t step = 0; step < kAheadSteps; ++step) {
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        const Nanos host = t.time("prediction to host", layer, step) + t.time("host attention", layer, step) +
                           t.time("host partials to device", layer, step) + kHandoffs;
        const Nanos a = t.time("device attention", layer, step);
        EXPECT_EQ(waited(t, layer, step, "device attention"), std::max<Nanos>(0, host - a))
            << "layer " << layer << " of step " << step;
        waits += host > a ? 1 : 0;
      }
    }
    EXPECT_EQ(waits > 0, host_gbps < 1);
  }
}

TEST(LayerAheadTime, HgcaWaitsForWhatItsAttentionDoesNotHideInEveryLayer) {
  for (const double host_gbps : {0.02, 50.0}) {
    const DecodeResult result = run("hgca:device_kv=128,block=16,beta=0.5", plain_fluxion_profile(host_gbps));
    const Timeline t(result.trace);
    std::size_t waits = 0;
    for (std::size_t step = 0; step < kAheadSteps; ++step) {
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        const Nanos host = t.time("query to host", layer, step) + t.time("host attention", layer, step) +
                           t.time("host partials to device", layer, step) + kHandoffs;
        const Nanos a = t.time("device attention", layer, step) + t.time("update averages", layer, step);
        EXPECT_EQ(waited(t, layer, step, "update averages"), std::max<Nanos>(0, host - a))
            << "layer " << layer << " of step " << step;
        waits += host > a ? 1 : 0;
      }
    }
    EXPECT_EQ(waits > 0, host_gbps < 1);
  }
}

Nanos idle_for(const DecodeResult& result, Cause cause) {
  return result.idle.decode.by_cause[static_cast<std::size_t>(cause)];
}

TEST(LayerAheadTime, ARecallThatFitsIntoAStepDelaysNothing) {
  HardwareProfile fast = plain_fluxion_profile(50), slow = fast;
  for (LinkPoint& point : slow.link.h2d_gather_curve) point.gbps = 0.01;  // a kernel fetches what was chosen
  const std::string spec = "scoutattention:budget=160,block=16,sinks=16,recall=1";
  const DecodeResult fits = run(spec, fast), late = run(spec, slow);
  std::uint64_t bytes = 0;
  for (const TraceRecord& r : fits.trace.records) {
    if (std::string(r.name) == "recall blocks") bytes += r.cost.h2d;
  }
  EXPECT_GT(bytes, 0u);
  EXPECT_EQ(idle_for(fits, Cause::recall), 0);
  EXPECT_GT(idle_for(late, Cause::recall), 0);
  for (std::size_t i = 0; i < fits.sequences.size(); ++i)  // when copies end changes no choice
    EXPECT_EQ(fits.sequences[i].tokens, late.sequences[i].tokens);
  EXPECT_EQ(fits.sequences[0].attended[1], late.sequences[0].attended[1]);
}

}  // namespace
}  // namespace tandem::testing
