// Joins the shards of a run.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "engine/common/error.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/run_folder.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

/// The lines of all runs, each sample once.
class Union {
 public:
  void add(const auto& items, const std::string& run) {
    for (const auto& item : items) {
      std::string line = to_line(item) + "\n";
      const auto [there, is_new] = lines_.try_emplace(item.key(), line, run);
      if (!is_new && there->second.first != line)
        throw_input_error(
            "Sample {} of {} at length {} under {} is in '{}' and in '{}', and is not the same: they are no shards of "
            "one run.",
            item.index, item.task, item.length, item.method, there->second.second, run);
    }
  }

  /// In this order.
  std::string lines(const std::vector<SampleKey>& order) const {
    std::string text;
    for (const SampleKey& key : order)
      if (has(key)) text += lines_.at(key).first;
    return text;
  }

  bool has(const SampleKey& key) const { return lines_.contains(key); }

 private:
  std::map<SampleKey, std::pair<std::string, std::string>> lines_;  // with the run that it is from
};

/// Also through links, and where there is no such folder.
bool same_folder(const fs::path& a, const fs::path& b) {
  std::error_code none;
  return fs::equivalent(a, b, none) || normalised(a) == normalised(b);
}

/// Of the oldest version among them, since what later ones say of a run does not hold for all of its samples; with all
/// programs that made samples, and when the first began.
Manifest manifest_of(const std::vector<RunFolder>& runs) {
  const auto older = [](const RunFolder& a, const RunFolder& b) {
    return a.manifest().schema_version < b.manifest().schema_version;
  };
  Manifest merged = std::ranges::min_element(runs, older)->manifest();
  merged.finished_utc.clear();
  for (const RunFolder& run : runs) {
    merged.started_utc = std::min(merged.started_utc, run.manifest().started_utc);
    for (const Program& program : run.manifest().programs)
      merged.programs = with_program(std::move(merged.programs), program);
  }
  return merged;
}

/// As a run of that version has them: with the documents of some samples alone, intervals would take the others for
/// independent, and a count of those that part would not be of all.
std::vector<SampleResult> samples_of(const RunFolder& run, int version, bool& dropped) {
  std::vector<SampleResult> samples = run.samples();
  for (SampleResult& sample : samples) {
    if (version < kPartedSince) sample.parted.reset();
    if (version >= kDocumentsSince) continue;
    dropped = dropped || sample.document;
    sample.document.reset();
  }
  return samples;
}

}  // namespace

Merged merge_runs(std::span<const fs::path> paths, const fs::path& out, bool force) {
  TANDEM_CHECK(!paths.empty(), "no runs to join");
  std::vector<RunFolder> runs;
  Union results, timings;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (same_folder(paths[i], out))
      throw_input_error("'{}' is one of the runs to join: give another folder for the whole run.", out.string());
    for (std::size_t j = 0; j < i; ++j)
      if (same_folder(paths[i], paths[j])) throw_input_error("'{}' is given twice.", paths[i].string());
  }
  for (const fs::path& path : paths) {
    const RunFolder& run = runs.emplace_back(RunFolder::open(path));
    try {
      check_resumable(path, run.manifest(), runs.front().manifest());
    } catch (const InputError& error) {
      throw_input_error("'{}' and '{}' are not shards of one run: {}", paths.front().string(), path.string(),
                        error.what());
    }
  }
  const Manifest manifest = manifest_of(runs);
  bool dropped = false;
  for (const RunFolder& run : runs) {
    if (manifest.benchmark == kPerplexity)
      results.add(run.windows(), run.path().string());
    else
      results.add(samples_of(run, manifest.schema_version, dropped), run.path().string());
    if (!manifest.clock.empty()) timings.add(run.timings(), run.path().string());
  }
  const std::vector<SampleKey> order = keys_in_order(manifest, batch_of(manifest));
  RunFolder::create_whole(out, manifest, results.lines(order), timings.lines(order), force);
  const auto is_finished = [&](const SampleKey& key) {
    return results.has(key) && (manifest.clock.empty() || timings.has(key));
  };
  return {static_cast<std::uint64_t>(std::ranges::count_if(order, is_finished)), order.size(), dropped};
}

}  // namespace tandem::eval
