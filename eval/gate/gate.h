// Whether a run is as good as a baseline run: accuracy, times and tokens of the same samples, method by method; and
// predicted steps at a large shape, where KV is most of the work.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/predict/prediction.h"
#include "eval/report/run_folder.h"
#include "eval/report/statistics.h"
#include "eval/report/summary.h"

namespace tandem::eval {

/// cannot_tell: nothing shows that the run is worse, and the samples are too few to show that it is not.
enum class Verdict : std::uint8_t { passed, cannot_tell, failed };
const char* to_string(Verdict verdict);  // "passed", "cannot tell", "failed"

inline constexpr std::uint64_t kMostNeeded = 200000;  // what judge_accuracy() looks for more samples than

struct AccuracyVerdict {
  Verdict verdict = Verdict::passed;
  double before = 0, after = 0;  // mean scores
  PairedEstimate change;         // after - before, with the interval that reports have
  std::uint64_t needed = 0;      // where it cannot tell: samples_needed()
};

/// `scores`: first the baseline's, second the run's; `margin`, a share of 1. In this order:
///   failed       a loss is significant at `alpha`: by McNemar's test, two-sided, so that a run as good as the baseline
///                fails about alpha / 2 of the time; where samples have shares, by the paired interval of that level
///   passed       the 95 % interval of the difference ends above -margin
///   cannot tell  else
AccuracyVerdict judge_accuracy(const PairedScores& scores, double margin, double alpha);

/// About how many samples judge_accuracy() needs to find the interval above -margin in four of five runs that are as
/// good as the baseline, if pairs disagree as often as these, one of them at least. At most kMostNeeded. Needs a pair
/// and a margin above 0.
std::uint64_t samples_needed(const PairedScores& scores, double margin);

struct TimeVerdict {
  Verdict verdict = Verdict::passed;
  std::string what = {};                                // "TPOT"
  std::uint32_t length = 0;                             // 0: all lengths
  std::string shape = {};                               // of a predicted step: where; empty: the run's own model
  std::optional<double> before_ms = {}, after_ms = {};  // of virtual time
  std::optional<double> change = {};      // 0.1: the run takes 10 % longer; none where there is nothing to compare
  std::optional<Interval> interval = {};  // of `change`, 95 %, where the clock is measured and samples suffice
  double margin = 0;                      // the largest `change` that passes
  std::string remark = {};  // failed: where the device waits longer; cannot tell: which run has no such time
};

/// Virtual time, which has no noise: more than `margin` fails. `change` is left out where `before_ms` is 0.
TimeVerdict judge_exact(double before_ms, double after_ms, double margin);

/// Measured time: the change is the geometric mean of run / baseline, one for each sample or batch, with a bootstrap
/// interval. All of it above `margin` fails, all below passes; fewer than five ratios tell nothing. Needs a ratio.
TimeVerdict judge_measured(std::span<const double> log_ratios, double margin);

/// A model's shape, a machine and a batch. At the default one, 12 x 32K of an 8B model, full's KV just fits on the
/// machine, and Quest's budget of 512 tokens instead of 128 makes its step 2 % longer.
struct GateShape {
  std::string model = "llama-3.1-8b", hardware = "h100";
  std::uint32_t batch = 12, context = 32768;  // sequences, prompt tokens of each
};

/// Written by `compare` into the run's folder.
inline constexpr const char* kPredictionFile = "predicted.json";

struct GatePrediction {
  Prediction target;
  std::string hardware_hash;  // of the profile's content, 16 hexadecimal digits

  /// The row of a run's method; null where there is none.
  const PredictedRow* row_of(const std::string& label) const;
};

/// A method to predict: its label in the run, and the spec that is simulated for it.
struct PredictedMethod {
  std::string label, spec;
};
/// As the label says, with what a simulated shape needs in place of what was trained for the embedded model.
PredictedMethod as_typed(const MethodEntry& method);
/// With every option spelled out, so that a default that has changed since counts.
PredictedMethod spelled_out(const MethodEntry& method);

/// Few steps of each method by this program, from the published workload. Methods that cannot run there are rows that
/// say why. InputError as check_target(), and for a shape or a profile that does not exist.
GatePrediction predict_steps(const GateShape& shape, const std::vector<PredictedMethod>& methods,
                             const std::function<bool()>& interrupted);

std::string gate_prediction_json(const GatePrediction& prediction);
/// Reads the run's stored prediction; nullopt without the file. InputError names a damaged file and its field.
std::optional<GatePrediction> stored_prediction(const std::filesystem::path& folder);
/// The same of target.json, which `compare --as` writes with the run's own hardware profile.
std::optional<GatePrediction> stored_target(const std::filesystem::path& folder, const Manifest& manifest);

/// "llama-3.1-8b, 12 x 32K, h100"
std::string shape_text(const Prediction& target);

/// Names how shape, machine or workload differ, as the middle of a sentence; empty where they are the same.
std::string shape_difference(const GatePrediction& baseline, const GatePrediction& run);

struct GateOptions {
  std::vector<std::string> methods;      // labels or names of the baseline's methods; empty: all
  double accuracy_margin = 0.03;         // share of 1
  std::optional<double> latency_margin;  // share of 1; none: kExactMargin or kMeasuredMargin
  double alpha = 0.05;                   // of all methods together: each is tested at alpha over their number
  bool strict = false;                   // what cannot be told fails
  bool same_tokens = false;              // so does a sample with other tokens
  bool any_machine = false;              // measured times of two machines are compared
  bool subset = false;                   // the run may lack samples of the baseline
  std::optional<GateShape> shape;        // where predicted steps are judged; none: only at a shape that both stored
  std::function<bool()> interrupted;     // while this program predicts
};

/// Virtual time has no jitter, but where rounding changes a token or a chosen block, a method's work changes a little.
inline constexpr double kExactMargin = 0.01;
/// Between two runs of one program a machine's clock rates and placement of memory move times by a few per cent.
inline constexpr double kMeasuredMargin = 0.05;

/// Predicted steps of both runs at one shape.
struct PredictedSteps {
  std::string shape;    // "llama-3.1-8b, 12 x 32K, h100"
  bool stored = false;  // each run's own program predicted it; else this program did both
};

/// What was decided about one of the baseline's methods.
struct MethodVerdict {
  Verdict verdict = Verdict::passed;
  std::string label, run_label;  // as typed; run_label is empty where the run has no such method: that fails
  AccuracyVerdict accuracy;
  std::string worst_task;                       // that lost most, where accuracy fails
  std::optional<LatencySummary> before, after;  // of the samples of both; none where no times were taken
  bool idle_compared = false;                   // their idle times are of the same steps
  std::vector<TimeVerdict> times;               // of each length where the clock is simulated; then predicted ones
  bool tokens_compared = false;                 // both claim to be the same computation
  bool by_tokens = false;          // accuracy passes since all tokens are the same; the samples are too few else
  std::uint64_t other_tokens = 0;  // samples
};

struct Gate {
  Verdict verdict = Verdict::passed;  // cannot_tell: some methods; a failure where options.strict
  GateOptions options;
  std::string baseline_path, run_path;
  Manifest baseline, run;
  std::uint64_t samples = 0;  // of each method in both runs
  std::vector<MethodVerdict> methods;
  std::vector<PredictedSteps> predictions;  // TimeVerdict::shape is one of them
  std::vector<std::string> notes;           // sentences: what differs between the runs and was compared all the same
};

/// `noise`: further runs of the baseline's program on a measured clock; the largest change among them becomes the
/// margin of times where it is above options.latency_margin. InputError for runs that cannot be compared (runs.h), that
/// share no sample, and for methods that the baseline does not have. Predicted steps are the runs' own where both have
/// them at one shape; else this program predicts the methods whose options differ.
Gate judge(const RunFolder& baseline, const RunFolder& run, const std::vector<RunFolder>& noise,
           const GateOptions& options);

/// A sentence for each thing that failed, with how much.
std::vector<std::string> failures_of(const Gate& gate);
/// A sentence for each thing that could not be told. `judged`: methods of the whole gate, of which `gate` may be a
/// part.
std::vector<std::string> doubts_of(const Gate& gate, std::size_t judged);
inline std::vector<std::string> doubts_of(const Gate& gate) {
  return doubts_of(gate, gate.methods.size());
}

/// The table, and the sentences below it; `markdown` false: for a terminal.
std::string gate_text(const Gate& gate, bool markdown);
std::string gate_json(const Gate& gate);
/// JUnit XML: methods that cannot be judged are skipped, or fail where options.strict.
std::string gate_junit(const Gate& gate);

}  // namespace tandem::eval
