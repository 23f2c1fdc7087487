// A small invented run, for the tests of eval/report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "eval/report/run_folder.h"
#include "tests/files.h"

namespace tandem::eval {

inline SampleResult example_sample(std::uint32_t index = 0, const std::string& method = "full") {
  SampleResult sample;
  sample.benchmark = "ruler";
  sample.task = "niah_single_1";
  sample.length = 1024;
  sample.index = index;
  sample.method = method;
  sample.prompt_tokens = 890;
  sample.tokens = {17, -1, 2047};
  sample.prediction = "1234567\n\"quoted\" \xc3\xa9";
  sample.answers = {"1234567", "b"};
  sample.score = 1.0 / 3;
  sample.near_ties = {{2, 0.000123}, {7, 0}};
  sample.depth = 0.1;
  return sample;
}

inline WindowLoss example_window(std::uint32_t index = 0, const std::string& method = "full") {
  return {kPerplexity, "book.txt", 1024, index, method, 1279ull * index, 256, 2.0 / 3, {0.5, 1.0 / 3, 1.25}};
}

inline SampleTiming example_timing(std::uint32_t index = 0, const std::string& method = "full") {
  SampleTiming timing;
  timing.benchmark = "ruler";
  timing.task = "niah_single_1";
  timing.length = 1024;
  timing.index = index;
  timing.method = method;
  timing.clock = "simulated for h200";
  timing.prefill_ns = 4000000;
  timing.setup_ns = 500000;
  timing.first_step_ns = 1500000;
  timing.step_ns = {1000000, 3000000};
  timing.window_ns = 5500000;
  timing.busy_ns = 3300000;
  timing.idle_ns = 2200000;
  timing.idle_by_cause = {{"host attention", 1200000}, {"launch", 1000000}};
  timing.layer0_idle_ns = 700000;
  timing.bytes = {3000000, 600000, 30000, 3000};
  timing.flops = 1u << 20;
  timing.steps = 3;
  timing.device_kv_bytes = 1000000;
  timing.host_kv_bytes = 2000000;
  timing.tokens_attended_device = 300;
  timing.tokens_attended_host = 2370;
  return timing;
}

inline Manifest example_manifest() {
  Manifest manifest;
  manifest.command = "tandem compare --samples 4";
  manifest.programs = {{"0.1.0", "abc"}};
  manifest.model = "tiny";
  manifest.weights_hash = "w1";
  manifest.config_hash = "c1";
  manifest.tokenizer_hash = "t1";
  manifest.methods = {{"full", "full", {}, {}}, {"hybrid:budget=0.2", "hybrid", {{"budget", "0.2"}}, "c1"}};
  manifest.benchmark = "ruler";
  manifest.tasks = {"niah_single_1"};
  manifest.lengths = {1024};
  manifest.samples = 4;
  manifest.seed = 42;
  manifest.protocol_id = "ruler/embedded-v1";
  manifest.precision = "bf16";
  manifest.prefill_chunk = 512;
  manifest.hardware_profile = "h200";
  manifest.hardware_hash = "h1";
  manifest.clock = "simulated for h200";
  manifest.machine = {"A CPU", "", 2, 1ull << 33};
  manifest.isa = "avx2";
  manifest.openblas = "0.3.21 Haswell";
  manifest.threads = 2;
  manifest.started_utc = "2026-01-31T12:00:00Z";
  return manifest;
}

/// A run with a manifest and without samples.
inline RunFolder begun_run(const std::filesystem::path& path, const Manifest& manifest, bool force = false) {
  return RunFolder::create_whole(path, manifest, "", "", force);
}

using tandem::testing::contents;
using tandem::testing::read_bytes;
using tandem::testing::TemporaryFolder;
using tandem::testing::write_bytes;

}  // namespace tandem::eval
