// Levels: what runs on a machine beside its kernels, by method.
#include "eval/predict/level.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "eval/predict/sweep.h"

namespace tandem::eval {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no InputError";
}

TEST(Levels, AreNamedAndOthersRefused) {
  std::vector<std::string> names;
  for (const Level& level : levels()) names.push_back(level.name);
  for (const char* name : {"machine", "this-engine", "vllm-0.19.0"}) EXPECT_THAT(names, Contains(name));
  for (const std::string& name : names) EXPECT_EQ(load_level(name).name, name);
  EXPECT_THAT(error_of([] { load_level("vllm-0.19"); }), HasSubstr("Did you mean 'vllm-0.19.0'?"));
}

TEST(Levels, AMachineIsAsItsProfileSays) {
  const HardwareProfile machine = load_profile("h100");
  EXPECT_EQ(profile_to_json(at_level(machine, {}, "full")), profile_to_json(machine));
}

TEST(Levels, AnEngineAddsItsTimeToEachLayer) {
  const HardwareProfile machine = load_profile("h100");
  const HardwareProfile slower = at_level(machine, load_level("vllm-0.19.0"), "full");
  EXPECT_GT(slower.device.layer_ns, 0);
  EXPECT_TRUE(slower.ranges.contains("device.layer_ns"));
  const Level own = load_level("this-engine");
  const HardwareProfile control = at_level(machine, own, "quest:budget=512");
  EXPECT_EQ(control.control.layer_ns, own.control.at("quest").ns);
  EXPECT_EQ(control.device.segment_launch_ns, 0);
  EXPECT_EQ(control.control.policy_ns + control.control.submit_ns, 0) << "they are in the measured time";
  EXPECT_THAT(error_of([&] { at_level(machine, own, "fluxion:heads=published"); }), HasSubstr("has not been timed"));
}

double step_at(const std::string& level, const std::string& method) {
  SweepOptions options;
  options.methods = {method};
  options.hardware = {load_profile("h100")};
  options.contexts = {1024};
  options.batches = {1};
  options.steps = 3;
  options.level = load_level(level);
  const Workload workload{"test", "made up", {{{2, 0.5, 0.9}}}};
  const SweepPoint point = simulate_sweep(load_shape("llama-3.2-1b"), workload, options).points.at(0);
  EXPECT_EQ(point.row.refused, "") << level;
  return point.row.step_ms;
}

TEST(Levels, ShowInTheStep) {
  constexpr double kLayers = 16, kMs = 1e-6;
  const double machine = step_at("machine", "full"), vllm = step_at("vllm-0.19.0", "full");
  EXPECT_NEAR(vllm - machine, kLayers * double(load_level("vllm-0.19.0").device.ns) * kMs, 1e-3 * machine);
  // The control thread takes longer than the device where it lists the host's pages: then it is the step.
  const double own = step_at("this-engine", "full-offload");
  EXPECT_GT(own, kLayers * double(load_level("this-engine").control.at("full-offload").ns) * kMs);
}

}  // namespace
}  // namespace tandem::eval
