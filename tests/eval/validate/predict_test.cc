#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "eval/validate/validation.h"

namespace tandem::eval {
namespace {

MeasuredPoint kernel(const std::string& kind, const std::string& shape, double batch, double context) {
  MeasuredPoint p;
  p.id = "one";
  p.kind = kind;
  p.hardware = "NVIDIA H100 SXM 80GB";
  p.unit = "us";
  p.source = "a page";
  p.value = 100;
  p.model_shape = shape;
  p.batch = batch;
  p.context = context;
  return p;
}

TEST(Predictor, KernelsAreLinesOverBytes) {
  const HardwareProfile::DeviceRates d = profile_of_device("h100-sxm-80gb").device;
  Predictor predictor;
  const Comparison product = predictor.compare(kernel("gemm_kernel", "N=16384 K=8192", 4, 0));
  const double product_bytes = 2.0 * 16384 * 8192 + 4 * 4 * (16384 + 8192);
  EXPECT_NEAR(product.predicted, 1e-3 * (double(d.product_ns) + product_bytes / (d.hbm_gbps * d.weights_efficiency)),
              0.002);
  const Comparison attention =
      predictor.compare(kernel("decode_attention_kernel", "32 query heads, 8 KV heads, head_dim 128", 8, 32768));
  const double kv = 8.0 * 32768 * 8 * 128 * 4, queries = 8 * 8.0 * 32 * 128;
  EXPECT_NEAR(attention.predicted,
              1e-3 * (double(d.attention_ns) + (kv + queries) / (d.hbm_gbps * d.attention_efficiency)), 0.002);
  EXPECT_EQ(product.use, Use::compared);
  EXPECT_EQ(attention.what, "decode attention");
  EXPECT_NEAR(product.error(), product.predicted / 100 - 1, 1e-12);
}

TEST(Predictor, ALinksRangeIsTheLinksAlone) {
  MeasuredPoint p = kernel("h2d_transfer", "", 1, 0);
  p.hardware = "NVIDIA GB300, NVLink-C2C";
  p.unit = "GB/s";
  p.transfer_bytes = 1 << 28;
  const Comparison c = Predictor().compare(p);
  ASSERT_EQ(c.use, Use::compared) << c.why;
  EXPECT_GT(c.low, 0.75 * c.predicted) << "the host's memory is not its limit";
  EXPECT_LT(c.high, 1.2 * c.predicted);
}

TEST(Predictor, ErrorsOfRatesHaveTheSignOfTimes) {
  Comparison c;
  c.point.value = 50;
  c.point.unit = "tok/s";
  c.predicted = 40;  // slower
  EXPECT_NEAR(c.error(), 0.25, 1e-12);
}

TEST(Predictor, WhatFitsInTheCacheIsInNoError) {
  Predictor predictor;
  const auto use = [&](double context) {
    return predictor.compare(kernel("decode_attention_kernel", "32 query heads, 8 KV heads, head_dim 128", 1, context))
        .use;
  };
  EXPECT_EQ(use(8192), Use::in_cache);  // 34 MB
  EXPECT_EQ(use(16384), Use::compared);
}

TEST(Predictor, HardwareIsFoundByWholeWords) {
  const std::vector<DeviceFacts> devices = device_facts();
  const auto name = [&](const std::string& hardware) {
    const DeviceFacts* found = device_in(devices, hardware);
    return found == nullptr ? "" : found->name;
  };
  EXPECT_EQ(name("NVIDIA RTX 4090 24GB"), "rtx-4090-24gb");
  EXPECT_EQ(name("NVIDIA RTX 4090D 24GB"), "");
  EXPECT_EQ(name("NVIDIA A100 PCIe 80GB"), "a100-pcie-80gb");
  EXPECT_EQ(name("NVIDIA A100-SXM4-80GB"), "a100-sxm-80gb");
  EXPECT_EQ(name("NVIDIA A100 80GB PCIe"), "a100-pcie-80gb");
  EXPECT_EQ(name("NVIDIA A100-SXM4-40GB"), "");
  EXPECT_EQ(name("NVIDIA H100 NVL"), "");
  EXPECT_EQ(name("NVIDIA RTX 4090 Laptop GPU"), "");
  EXPECT_EQ(name("NVIDIA RTX A6000 48GB"), "rtx-a6000-48gb");
  EXPECT_EQ(name("NVIDIA RTX 6000 Ada 48GB"), "rtx-6000-ada-48gb");
  EXPECT_EQ(name("Intel Sapphire Rapids, 16 threads"), "");
}

TEST(Predictor, WhatCannotBePredictedSaysWhy) {
  Predictor predictor;
  MeasuredPoint p = kernel("gemm_kernel", "N=16384 K=8192", 4, 0);
  p.gpus = 8;
  EXPECT_EQ(predictor.compare(p).why, "it is of several GPUs");
  p.gpus = 1;
  p.kind = "method_decode";
  EXPECT_EQ(predictor.compare(p).why, "nothing here predicts the kind method_decode");
  p.kind = "gemm_kernel";
  p.model_shape = "";
  EXPECT_EQ(predictor.compare(p).why, "its matrix or its rows are not given");
  p.model_shape = "N=4096 K=4096";
  p.precision = "FP8";
  EXPECT_EQ(predictor.compare(p).why, "its weights or KV have other than 16 bits");
  p.unit = "GB/s";
  EXPECT_EQ(predictor.compare(p).why, "the unit 'GB/s' is none of gemm_kernel");
  p.hardware = "a toaster";
  EXPECT_EQ(predictor.compare(p).why, "hardware/devices has no such GPU");
}

const Validation& shipped() {
  static const Validation all = [] {
    const std::string path = (data_path("hardware/validation") / "points.json").string();
    return validate(parse_points(read_file(path), path), path, {}, {});
  }();
  return all;
}

// expected.json has the errors of the commit that wrote it. A cost model or a profile that makes them worse has to say
// so there.
TEST(Validation, NoErrorIsWorseThanExpected) {
  const std::string path = (data_path("hardware/validation") / "expected.json").string();
  const nlohmann::json expected = parse_json(read_file(path), path);
  const double tolerance = expected.at("tolerance").get<double>();
  std::size_t seen = 0;
  for (const ErrorGroup& group : shipped().groups(/*by_device=*/false)) {
    if (group.points != "validation") continue;
    const auto& own = expected.at("validation").at(group.what);
    EXPECT_LE(group.absolute.value, own.at("absolute").get<double>() + tolerance) << group.what;
    EXPECT_LE(std::abs(group.bias.value), std::abs(own.at("bias").get<double>()) + tolerance) << group.what;
    EXPECT_EQ(group.absolute.n, own.at("n").get<std::uint64_t>()) << group.what;
    ++seen;
  }
  EXPECT_EQ(seen, expected.at("validation").size());
}

TEST(Validation, KernelsAreWithinWhatIsPromised) {
  for (const ErrorGroup& group : shipped().groups(/*by_device=*/false)) {
    if (group.points != "validation") continue;
    if (group.what == "decode attention") {
      EXPECT_LE(group.absolute.value, 0.06);
      EXPECT_LE(std::abs(group.bias.value), 0.03);
    }
    if (group.what == "attention, batch 1") {
      EXPECT_LE(group.absolute.value, 0.20);
    }
    if (group.what == "decode product") {
      EXPECT_LE(group.absolute.value, 0.08);
    }
  }
}

}  // namespace
}  // namespace tandem::eval
