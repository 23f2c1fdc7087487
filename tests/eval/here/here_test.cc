// The comparison of predicted and measured steps, without measuring anything.
#include "eval/here/here.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/json.h"
#include "engine/device/emu_device.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LatencyRow row(const std::string& label, std::vector<double> rounds) {
  LatencyRow r;
  r.label = label;
  r.median_ms = rounds[rounds.size() / 2];
  r.round_ms = std::move(rounds);
  r.operations = {{.name = "qkv", .ms = 1}};
  return r;
}

HereValidation example() {
  Latency measured, predicted;
  measured.context = 16384;
  measured.rows = {row("streaming", {3.9, 4, 4.2}), row("quest", {4.9, 5, 5.1}), row("full", {9, 10, 12})};
  predicted.rows = {row("streaming", {4.4}), row("quest", {4.2}), row("full", {11})};
  HereValidation v;
  v.profile = load_profile("fluxion-a100");
  v.warnings = {"A warning."};
  v.rows = here_rows(measured, predicted);
  return v;
}

TEST(Here, ComparesStepsAndWhatIsBeyondStreaming) {
  const HereValidation v = example();
  ASSERT_EQ(v.rows.size(), 3u);
  EXPECT_TRUE(v.rows[0].is_base());
  EXPECT_NEAR(v.rows[0].step.error(), 0.1, 1e-9);
  EXPECT_NEAR(v.rows[2].beyond.measured, 6, 1e-9);
  EXPECT_NEAR(v.rows[2].beyond.predicted, 6.6, 1e-9);
  EXPECT_NEAR(v.rows[2].beyond.error(), 0.1, 1e-9);
  EXPECT_NEAR(v.errors(&HereRow::step).median, 0.1, 1e-9);
  EXPECT_NEAR(v.errors(&HereRow::step).worst, 0.16, 1e-9);
  EXPECT_NEAR(v.errors(&HereRow::beyond).worst, 1.2, 1e-9);  // quest: 0.2 faster than streaming, 1 slower in truth
}

TEST(Here, FindsPairsInTheWrongOrder) {
  HereValidation v = example();
  const std::vector<WrongOrder> wrong = v.wrong_orders();
  ASSERT_EQ(wrong.size(), 1u);
  EXPECT_EQ(wrong[0].faster, "streaming");
  EXPECT_EQ(wrong[0].slower, "quest");
  v.rows[1].step.measured = 4.5;  // 12.5 % slower than streaming: no order is claimed
  EXPECT_TRUE(v.wrong_orders().empty());
}

TEST(Here, SaysWhatIsCompared) {
  const HereValidation v = example();
  EXPECT_THAT(here_text(v, false), AllOf(HasSubstr("this machine"), HasSubstr("9.00-12.00"), HasSubstr("+10.0"),
                                         HasSubstr("quest"), HasSubstr("A warning.")));
  EXPECT_THAT(here_operations_text(v), HasSubstr("qkv"));
  const auto json = parse_ordered_json(here_json(v, "tandem validate --here", "tandem"), "JSON");
  EXPECT_EQ(json.at("level"), "this machine");
  EXPECT_EQ(json.at("rows").size(), 3u);
  EXPECT_EQ(json.at("wrong_orders").size(), 1u);
}

TEST(Here, MakesAProfileOfKernelsAndHandOffs) {
  MachineFigures f;
  for (const unsigned threads : {1u, 2u}) {
    auto& rows = threads == 1 ? f.one_thread : f.two_threads;
    const auto add = [&](const char* kernel, double us, double bytes, double flops) {
      KernelTime time;
      time.kernel = kernel;
      time.least_us = us;
      time.bytes = bytes;
      time.flops = flops;
      rows.push_back(time);
    };
    add("decode_attention", 10000.0 / threads, 1.2e8, 4.8e8);
    add("contiguous_attention", 9000.0 / threads, 1.2e8, 4.8e8);
    add("score_blocks", 50000.0 / threads, 5e8, 2e9);
    add("linear", 10000, 1.5e8, 1.5e8);
    add("linear_prefill", 100000, 1.5e8, 1e10);
    add("rms_norm", 2, 3e4, 0);
    add("top_k", 1000, 2e6, 0);
    add("blend_weights", 1000, 8e6, 0);
  }
  f.read_gbps = 20;
  f.product_gbps = 15;
  f.copies = {{4096, 5}, {1 << 20, 8}};
  f.hand_offs = {.submit = 2000, .across = 50000, .device_to_host = 4000, .host_to_device = 5000};
  f.memory_gb = 16;
  f.cache_bytes = 3e7;
  std::vector<std::string> warnings;
  const HardwareProfile p = profile_of(f, "A CPU", warnings);
  EXPECT_EQ(p.device.cpu_threads, 1u);
  EXPECT_NEAR(p.device.hbm_gbps * p.device.weights_efficiency, 15, 1e-6);
  EXPECT_NEAR(p.device.hbm_gbps * p.device.attention_efficiency, 12, 1e-6);
  EXPECT_NEAR(p.device.gemm_tflops, 0.1, 1e-6);
  EXPECT_NEAR(p.host.attention_gbps_per_thread, 12, 1e-6);
  EXPECT_EQ(p.host.threads, 1u);
  EXPECT_EQ(p.handoff.stream_ns, 50000);
  EXPECT_EQ(p.handoff.device_to_host_ns, 4000);
  EXPECT_EQ(p.link.d2h_curve.back().gbps, 8);
  EXPECT_EQ(p.link.piece_ns, 0);
}

TEST(Here, TakesTheMedianOverPasses) {
  std::vector<MachineFigures> passes(3);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const double value = double(i * i + 1);  // 1, 2, 5
    passes[i].read_gbps = passes[i].product_gbps = value;
    passes[i].one_thread.resize(1);
    passes[i].one_thread[0].least_us = value;
    passes[i].copies = {{4096, value}};
    passes[i].hand_offs.across = Nanos(value);
  }
  const MachineFigures medians = medians_of(passes);
  EXPECT_EQ(medians.read_gbps, 2);
  EXPECT_EQ(medians.product_gbps, 2);
  EXPECT_EQ(medians.one_thread[0].least_us, 2);
  EXPECT_EQ(medians.copies[0].gbps, 2);
  EXPECT_EQ(medians.hand_offs.across, 2);
}

TEST(Here, MeasuresHandOffs) {
  const std::unique_ptr<Device> device = make_emu_device();
  const HandOffTimes times = measure_hand_offs(*device, 8);
  EXPECT_GT(times.submit, 0);
  EXPECT_GT(times.across, 0);
  EXPECT_GT(times.device_to_host, 0);
  EXPECT_GT(times.host_to_device, 0);
}

TEST(Here, ModelsShapeHasLittleWeights) {
  const Model model = here_model();
  EXPECT_LT(model.weights.bytes(), std::size_t{80} << 20);
  EXPECT_EQ(model.config.q_heads / model.config.kv_heads, 4u);
  for (const std::string& method : here_methods()) EXPECT_NO_THROW(make_method(method));
}

}  // namespace
}  // namespace tandem::eval
