// Bytes of prompts are those of a run on them.
#include <gtest/gtest.h>

#include "engine/device/sim_device.h"
#include "eval/match_bytes/match_bytes.h"
#include "eval/report/summary.h"
#include "eval/ruler/ruler_dataset.h"
#include "eval/run/run_dataset.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

DatasetRunOptions options_of(std::uint32_t batch) {
  DatasetRunOptions options;
  options.methods = {"full", "quest:budget=64", "hgca", "h2o", "scoutattention:budget=128"};
  options.batch = batch;
  options.engine.kv.device_bytes = options.engine.kv.host_bytes = std::size_t{64} << 20;
  return options;
}

Ruler three_tasks(const Model& model) {
  RulerOptions options;
  options.tasks = {"niah_single_1", "niah_multikey_1", "vt"};
  options.lengths = {256};
  options.samples = 1;
  options.seed = 7;
  return {options, model};
}

std::vector<DatasetSample> first_samples(const Ruler& ruler) {
  std::vector<DatasetSample> samples;
  for (const std::string& task : ruler.tasks()) samples.push_back(ruler.sample(task, 256, 0));
  return samples;
}

TEST(BytesOfPrompts, AreThoseOfARunOnThem) {
  const Model model = load_model("tiny");
  ThreadPool pool(2);
  const auto device = make_sim_device(load_profile("fluxion-a100"));
  const DatasetRunOptions options = options_of(1);
  const Ruler ruler = three_tasks(model);
  const TemporaryFolder root;
  Manifest manifest;
  manifest.command = "tandem compare";
  manifest.clock = device->clock_name();
  manifest.started_utc = utc_now();
  manifest.tokenizer_hash = "t";
  ruler.fill_manifest(options.methods, manifest);
  RunFolder folder = RunFolder::create(root / "run", manifest);
  run_dataset(ruler, options, model, *device, pool, folder);
  const Summary summary = summarise(folder);
  const std::vector<DatasetSample> samples = first_samples(ruler);
  BytesOfPrompts bytes(samples, options, model, *device, pool);
  EXPECT_EQ(bytes.prompts(), 3u);
  for (const MethodSummary& method : summary.methods) {
    EXPECT_DOUBLE_EQ(bytes(method.label, Measure::touched), method.latency->touched.value()) << method.label;
    EXPECT_EQ(bytes(method.label, Measure::device), double(method.latency->peak_device_kv)) << method.label;
  }
}

TEST(BytesOfPrompts, TakeHalfOfTheDevicesMemoryAtMost) {
  const Model model = load_model("tiny");
  ThreadPool pool(2);
  const auto device = make_sim_device(load_profile("fluxion-a100"));
  DatasetRunOptions options = options_of(2);
  const std::vector<DatasetSample> samples = first_samples(three_tasks(model));
  const KvShape kv{model.config.layers, model.config.kv_heads, model.config.head_dim, DType::f32};
  const std::size_t prompt =
      blocks_for(static_cast<std::uint32_t>(samples[0].prompt.size())) * std::size_t{kv.layers} * kv.slot_bytes();
  options.methods = {"full"};
  for (const auto& [room, prompts] : {std::pair{3 * prompt, 1u}, {9 * prompt / 2, 2u}, {7 * prompt, 3u}}) {
    options.engine.kv.device_bytes = room;
    BytesOfPrompts bytes(samples, options, model, *device, pool);
    EXPECT_EQ(bytes.prompts(), prompts);
    EXPECT_GT(bytes("full", Measure::touched), 0);
  }
}

}  // namespace
}  // namespace tandem::eval
