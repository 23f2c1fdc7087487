// How far the outputs of Fluxion's heads are off in a run of `tandem compare`: errors.jsonl in its folder, one line per
// decoded batch, and the table of it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/runtime/method.h"
#include "eval/report/line_file.h"
#include "eval/report/run_folder.h"
#include "eval/report/schema.h"
#include "eval/report/summary.h"
#include "methods/fluxion/fluxion.h"

namespace tandem::eval {

/// Over the heads of all layers and steps that had KV in host memory. The error is Eq. 2's: |o(chosen) - o| by the
/// largest output of the layer's heads, both from the method's own queries.
struct HeadErrorCounts {
  static constexpr std::array<double, 4> kLimits = {0.05, 0.10, 0.20, 0.50};
  std::uint64_t heads = 0;
  double error = 0;     // sum
  double attended = 0;  // sum of shares of the host's tokens
  double worst = 0;
  std::uint64_t none = 0;                                                         // that attended nothing there
  std::vector<std::uint64_t> above = std::vector<std::uint64_t>(kLimits.size());  // whose error is above kLimits

  void add(const HeadErrors& errors);
  void add(const HeadErrorCounts& other);
};

/// Whether a spec's method is fluxion, whose heads can be watched. InputError for what is no spec.
bool has_head_errors(const std::string& spec);

class HeadErrorLog {
 public:
  /// Of a run that goes on, the lines of whole batches stay: those of which no result and no other line is missing.
  /// Damaged lines are kept beside in errors.jsonl.damaged, the others are taken out, and lacks() says which batches
  /// are to be decoded again. `batch`: samples of a batch. The run outlives this.
  HeadErrorLog(const RunFolder& run, std::uint32_t batch);
  HeadErrorLog(const HeadErrorLog&) = delete;
  HeadErrorLog& operator=(const HeadErrorLog&) = delete;

  /// The method of a spec: fluxion's is watched, every other one as it is. InputError as make_watched_fluxion().
  std::unique_ptr<Method> make(const std::string& spec);
  /// A method has decoded a batch, whose samples are in the run: what was seen of it is written under the key of its
  /// first sample.
  void decoded(const SampleKey& first);

  /// Whether a method's line about the batch of this first sample is missing.
  bool lacks(const SampleKey& first) const;
  /// What the constructor took out of the file: a sentence for each damaged line.
  const std::vector<std::string>& repairs() const { return repairs_; }
  /// Ends the appending and puts the lines into the run's order.
  void arrange();

 private:
  struct Seen {
    std::mutex mutex;
    HeadErrorCounts counts;
  };
  std::map<std::string, std::shared_ptr<Seen>> seen_;  // by spec
  const RunFolder& run_;
  std::uint32_t batch_;
  std::set<SampleKey> there_;
  std::vector<std::string> repairs_;
  LineAppender out_;
};

/// By method, of those in the manifest, as in its folder's errors.jsonl. InputError for a line that is not sound.
std::map<std::string, HeadErrorCounts> read_head_errors(const std::filesystem::path& folder, const Manifest& manifest);

/// A section with a table, in the manifest's order; empty where there are none.
std::string head_errors_text(const std::map<std::string, HeadErrorCounts>& errors, const Summary& summary,
                             bool markdown);
std::string head_errors_json(const std::map<std::string, HeadErrorCounts>& errors, const Manifest& manifest);

}  // namespace tandem::eval
