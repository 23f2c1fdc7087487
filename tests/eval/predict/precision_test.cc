// Weights and KV of fewer bits: bytes by arithmetic, and steps that bandwidth limits beside those of bf16.
#include "eval/predict/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/eval/predict/sweeps.h"

namespace tandem::eval {
namespace {

using ::testing::HasSubstr;

PredictedRow row_of(const std::string& method, const Precision& precision, std::uint32_t context = 4096,
                    const HardwareProfile& hardware = load_profile("rtx-4090")) {
  const PredictionOptions options{.methods = {method},
                                  .batch = 2,
                                  .context = context,
                                  .steps = 3,
                                  .precision = precision,
                                  .threads = 1,
                                  .checked = false,
                                  .ranges = true};
  return predict(load_shape(kShape), hardware, a_workload(), options).rows.at(0);
}

TEST(Precision, BitsAreBytes) {
  const PredictedRow whole = row_of("full", {}), half = row_of("full", {16, 8}), quarter = row_of("full", {4, 4});
  EXPECT_EQ(half.device_kv_bytes, whole.device_kv_bytes / 2);
  EXPECT_EQ(quarter.device_kv_bytes, whole.device_kv_bytes / 4);
  EXPECT_EQ(half.touched_bytes, whole.touched_bytes / 2);
  EXPECT_EQ(row_of("full-host", {8, 4}).host_kv_bytes, row_of("full-host", {}).host_kv_bytes / 4);
  const Model shape = load_shape(kShape);
  const HardwareProfile machine = load_profile("rtx-4090");
  EXPECT_EQ(device_kv_room(shape, machine, {4, 16}) - device_kv_room(shape, machine),
            0.75 * double(shape.weights.bytes()));
}

TEST(Precision, AStepIsShorterByTheBytesThatItNoLongerReads) {
  const HardwareProfile machine = load_profile("rtx-4090");
  const double hbm = machine.device.hbm_gbps * 1e6;  // bytes per ms
  const double efficiency =
      machine.device.weights_efficiency > 0 ? machine.device.weights_efficiency : machine.device.stream_efficiency;
  const PredictedRow whole = row_of("full", {});
  const double weights = double(load_shape(kShape).weights.bytes()) / (hbm * efficiency);
  EXPECT_NEAR(whole.step_ms - row_of("full", {8, 16}).step_ms, weights / 2, 0.1 * weights / 2);
  const double kv = whole.touched_bytes * 2 / (hbm * machine.device.attention_efficiency);
  EXPECT_NEAR(whole.step_ms - row_of("full", {16, 8}).step_ms, kv / 2, 0.1 * kv / 2);
}

TEST(Precision, WhatTheLinkOrHostMemoryLimitsTakesHalfAsLongWithHalfTheBits) {
  for (const char* method : {"full-offload", "full-host"}) {
    SCOPED_TRACE(method);
    const PredictedRow whole = row_of(method, {}, 32768), half = row_of(method, {16, 8}, 32768);
    EXPECT_GT(half.step_ms, 0.5 * whole.step_ms);
    EXPECT_LT(half.step_ms, 0.6 * whole.step_ms);
    EXPECT_LT(half.step_low_ms, half.step_ms);
    EXPECT_GT(half.step_high_ms, half.step_ms);
    EXPECT_NEAR(half.step_high_ms / half.step_ms, whole.step_high_ms / whole.step_ms, 0.1) << "the range scales, too";
  }
}

TEST(Precision, SixteenBitsChangeNothing) {
  HardwareProfile machine = load_profile("h100");
  EXPECT_EQ(profile_to_json(at_precision(machine, {})), profile_to_json(machine));
  machine.device.cpu_threads = 2;
  EXPECT_EQ(profile_to_json(at_precision(machine, {})), profile_to_json(machine));
  EXPECT_THAT(sentence_of([&] { at_precision(machine, {8, 16}); }), HasSubstr("is a CPU that plays the device"));
}

TEST(Precision, OtherNumbersOfBitsAreRefused) {
  for (const Precision bad : {Precision{5, 16}, Precision{32, 16}, Precision{0, 16}})
    EXPECT_THAT(sentence_of([&] { check_precision(bad); }), HasSubstr("--weight-bits is ")) << bad.weight_bits;
  EXPECT_THAT(sentence_of([] { check_precision({16, 2}); }), HasSubstr("--kv-bits is 2"));
  EXPECT_EQ(sentence_of([] { check_precision({8, 4}); }), "no InputError");
  EXPECT_EQ(precision_text({}), "weights and KV in bf16");
  EXPECT_EQ(precision_text({4, 16}), "weights in 4 bits and KV in bf16");
}

}  // namespace
}  // namespace tandem::eval
