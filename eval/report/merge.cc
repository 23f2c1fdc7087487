#include "eval/report/merge.h"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <string>
#include <vector>

#include "engine/common/error.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/resume_check.h"
#include "eval/report/run_folder.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

/// The lines of all runs, each sample once.
template <class Item>
class Union {
 public:
  void add(const std::vector<Item>& items, const std::string& run) {
    for (const Item& item : items) {
      const auto [there, is_new] = items_.try_emplace(item.key(), item, run);
      if (is_new) continue;
      const SampleKey& key = there->first;
      if (there->second.first != item)
        throw_input_error(
            "Sample {} of {} at length {} under {} is in '{}' and in '{}', and is not the same: they are no shards of "
            "one run.",
            key.index, key.task, key.length, key.method, there->second.second, run);
    }
  }

  void append_to(RunFolder& folder) const {
    for (const auto& [key, item] : items_) folder.append(item.first);
  }

 private:
  std::map<SampleKey, std::pair<Item, std::string>> items_;  // with the run that it is from
};

/// Who made samples of any of them, and when.
Manifest manifest_of(const std::vector<RunFolder>& runs) {
  Manifest merged = runs.front().manifest();
  merged.finished_utc.clear();
  for (const RunFolder& run : runs) {
    merged.started_utc = std::min(merged.started_utc, run.manifest().started_utc);
    for (const Program& program : run.manifest().programs()) {
      const auto all = merged.programs();
      if (std::find(all.begin(), all.end(), program) == all.end()) merged.later_programs.push_back(program);
    }
  }
  return merged;
}

}  // namespace

Merged merge_runs(std::span<const fs::path> paths, const fs::path& out, bool force) {
  TANDEM_CHECK(!paths.empty(), "no runs to join");
  std::vector<RunFolder> runs;
  Union<SampleResult> samples;
  Union<WindowLoss> windows;
  Union<SampleTiming> timings;
  for (const fs::path& path : paths) {
    const RunFolder& run = runs.emplace_back(RunFolder::open(path));
    check_resumable(path, run.manifest(), runs.front().manifest());
    if (run.manifest().benchmark == kPerplexity)
      windows.add(run.windows(), path.string());
    else
      samples.add(run.samples(), path.string());
    if (!run.manifest().clock.empty()) timings.add(run.timings(), path.string());
  }
  const Manifest manifest = manifest_of(runs);
  RunFolder merged = RunFolder::create(out, manifest, force);
  samples.append_to(merged);
  windows.append_to(merged);
  timings.append_to(merged);
  merged.arrange(keys_in_order(manifest, batch_of(manifest)));
  merged.keep();
  return {merged.finished().size(), manifest.all_samples() * manifest.methods.size()};
}

}  // namespace tandem::eval
