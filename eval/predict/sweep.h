// Predictions over a grid: methods x machines x batches x contexts, each point a predict() of its own. What
// `tandem simulate` prints: which method to run on hardware that one has, or does not have yet.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "engine/device/profile.h"
#include "engine/model/model.h"
#include "engine/runtime/workload.h"
#include "eval/match_bytes/match_bytes.h"
#include "eval/predict/level.h"
#include "eval/predict/prediction.h"
#include "eval/report/table.h"

namespace tandem::eval {

/// In place of a batch: as many sequences as the method's KV leaves room for, and as keep to SweepOptions::tpot_ms.
inline constexpr std::uint32_t kAsManyAsFit = 0;

/// "16", "max".
inline std::string batch_name(std::uint32_t batch) {
  return batch == kAsManyAsFit ? "max" : std::to_string(batch);
}

class Recordings;

struct SweepOptions {
  std::vector<std::string> methods;  // specs
  std::vector<HardwareProfile> hardware;
  std::vector<std::uint32_t> contexts;  // prompt tokens of each sequence
  std::vector<std::uint32_t> batches;   // sequences, or kAsManyAsFit
  std::uint32_t most_sequences = 256;   // of kAsManyAsFit
  double tpot_ms = 0;                   // above 0: the longest step that kAsManyAsFit may come to
  std::uint32_t steps = 64;             // decode steps, at least 2
  std::uint32_t prefill_chunk = 2048;
  std::uint32_t drawn_sequences = kDrawnSequences;  // of a point; 0: all (PredictionOptions)
  Level level;
  Precision precision;  // of the shape
  bool checked = true;  // looks for races in the methods' schedules (check_schedule)
  /// Points that are there are replayed, others recorded; their rows have neither prefills nor ranges (add_range). Not
  /// of kAsManyAsFit. nullptr: points are simulated whole.
  Recordings* recordings = nullptr;
  unsigned threads = 0;  // points at a time, one thread each; 0: as many as this process may use
  std::function<bool()> interrupted;
  /// In points, those that were known before included; `what` was done last. From any thread.
  std::function<void(std::uint64_t done, std::uint64_t total, const std::string& what)> progress;
};

struct SweepPoint {
  std::string hardware, method;  // a profile's name, a spec
  std::uint32_t context = 0, batch = 0;
  std::uint32_t sequences = 0;  // that decode together: `batch`, or as many as fit
  bool lossless = false;        // with the method's options as given
  PredictedRow row;

  /// Of the whole batch. Needs a row that is not refused.
  double tokens_per_second() const { return 1e3 * sequences / row.step_ms; }
};

/// Recordings of points, for the same ones at other precisions and for ranges. For several threads.
class Recordings {
 public:
  /// nullptr where the point has none. Valid until its removal.
  const Recording* find(const SweepPoint& point) const;
  /// In place of an earlier one. Ignored where times decide, so that nothing can be replayed.
  void add(const SweepPoint& point, Recording recording);
  void remove(const SweepPoint& point);

 private:
  using Key = std::tuple<std::string, std::string, std::uint32_t, std::uint32_t>;
  static Key key_of(const SweepPoint& p) { return {p.hardware, p.method, p.context, p.batch}; }

  mutable std::mutex mutex_;
  std::map<Key, Recording> recordings_;
};

struct Sweep {
  std::string model;
  std::uint32_t layers = 0, positions = 0;  // the model's own; longer contexts are costed as ones with scaled RoPE
  std::string shape;                        // all that a cost depends on: two models may have one name
  SweepOptions options;
  Workload workload;
  std::vector<SweepPoint> points;  // by machine, batch, context, method, each in the order of its option

  /// nullptr: not simulated (yet).
  const SweepPoint* find(const std::string& hardware, std::uint32_t batch, std::uint32_t context,
                         const std::string& method) const;
  bool complete() const {
    return points.size() ==
           options.hardware.size() * options.batches.size() * options.contexts.size() * options.methods.size();
  }
};

/// Without points.
Sweep empty_sweep(const Model& shape, const SweepOptions& options, const Workload& workload);

/// Simulates the points that `known` does not have, heaviest first. `shape` may have fewer positions than a context
/// takes. Where options.interrupted says so it stops between points or within one: what was finished is there,
/// complete() is false. InputError for an impossible method or option; a machine that cannot hold a batch, or not even
/// the weights, is a point that says so.
/// `keep`: called now and then with what is finished, from any thread, one call at a time.
Sweep simulate_sweep(Model shape, const Workload& workload, const SweepOptions& options,
                     std::vector<SweepPoint> known = {}, const std::function<void(const Sweep&)>& keep = {});

/// Adds the ranges of these points, of a sweep with recordings: to those with figures that have one to be replayed.
void add_ranges(const SweepOptions& options, const std::vector<SweepPoint*>& points);

/// Whether a method loses nothing at this shape, with its options as given. False for one that refuses the shape.
bool is_lossless(const std::string& spec, const Model& shape);

/// Budgets at equal bytes (eval/match_bytes) at the sweep's first context, of one sequence on a machine like its first
/// one with as much memory as it takes: bytes are no machine's. A method that refuses the shape says why. Throws
/// Interrupted, and InputError as find_equal().
Equal equal_at_shape(Model shape, const Workload& workload, const EqualBytes& asked, const SweepOptions& options);

struct SweepTable {
  std::string title;          // of a quantity
  std::vector<Table> tables;  // their clocks name shape, batch and machine
};

/// Tokens per second, step times and idle time, and the fastest methods of each machine, batch and context.
std::vector<SweepTable> sweep_tables(const Sweep& sweep);
/// How those are to be read, and what was refused: sentences.
std::vector<std::string> sweep_notes(const Sweep& sweep);
/// Both. Markdown also has all figures of each point.
std::string sweep_text(const Sweep& sweep, bool markdown);

/// One line per point.
std::string sweep_csv(const Sweep& sweep);

/// `command` and `program` (its version) are kept with the figures.
std::string sweep_json(const Sweep& sweep, const std::string& command, const std::string& program);

/// In the folder of --out.
inline constexpr const char* kSweepFile = "sweep.json";

struct SweepFile {
  Sweep sweep;  // options: what its points are of, in their order
  std::string command, program;
  bool complete = false;
};

/// What sweep_json() wrote. InputError naming `file` and field, also for a sweep without points.
SweepFile parse_sweep(const std::string& text, const std::string& file);

/// The points of sweep_json()'s text that a sweep with these settings would give, of this program. InputError that
/// names `file` and the field where the text is not a sweep's, or is one of another model, workload, machine, number of
/// steps, or program: those would be mixed with what is simulated now.
std::vector<SweepPoint> known_points(const std::string& text, const std::string& file, const Sweep& settings,
                                     const std::string& program);

}  // namespace tandem::eval
