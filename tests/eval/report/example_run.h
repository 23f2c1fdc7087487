// A finished run of fixtures.h's invented samples.
#pragma once

#include "tests/eval/report/fixtures.h"

namespace tandem::eval {

/// Two tasks, two lengths, four samples each; the second method is wrong on every fourth sample and twice as slow at
/// 2048.
inline std::filesystem::path write_run(const TemporaryFolder& root, bool all = true) {
  Manifest manifest = example_manifest();
  manifest.tasks = {"niah_single_1", "niah_single_2"};
  manifest.lengths = {1024, 2048};
  RunFolder folder = RunFolder::create(root / "run", manifest);
  for (const std::uint32_t length : manifest.lengths) {
    for (const std::string& task : manifest.tasks) {
      for (std::uint32_t index = 0; index < manifest.samples; ++index) {
        for (const MethodEntry& method : manifest.methods) {
          SampleResult sample = example_sample(index, method.label);
          SampleTiming timing = example_timing(index, method.label);
          sample.task = timing.task = task;
          sample.length = timing.length = length;
          sample.score = method.name == "hybrid" && index == 3 ? 0 : 1;
          if (method.name == "hybrid" && length == 2048) {
            for (std::int64_t& ns : timing.step_ns) ns *= 2;
            timing.window_ns += 4000000;
            timing.idle_ns += 4000000;
            timing.idle_by_cause.emplace_back("recall", 4000000);
          }
          if (!all && method.name == "hybrid" && length == 2048) continue;
          folder.append(sample);
          folder.append(timing);
        }
      }
    }
  }
  return root / "run";
}

}  // namespace tandem::eval
