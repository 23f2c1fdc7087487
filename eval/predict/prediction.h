// Predicts methods' decode latency at the shape of another model, batch and context: the engine's own schedule with the
// costs of that shape on a simulated device, choices drawn from a workload profile. No tensor is computed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/profile.h"
#include "engine/device/sim_device.h"
#include "engine/model/model.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/workload.h"
#include "engine/trace/idle.h"
#include "eval/predict/precision.h"
#include "eval/report/table.h"

namespace tandem::eval {

/// Beside drawing all 16 sequences of 8K or 32K this changes step times by less than 1 %
/// (studies/notes/simulated-machines.md).
inline constexpr std::uint32_t kDrawnSequences = 2;

/// A method's decode: all that its row is made of, on a machine of other rates too.
struct Recording {
  std::vector<DecodedSequence> sequences;
  SimCalls calls;
};

struct PredictionOptions {
  std::vector<std::string> methods = {};   // specs
  std::vector<std::string> compared = {};  // their specs in the run that this belongs to; empty: the same
  std::uint32_t batch = 1;
  std::uint32_t context = 32768;  // prompt tokens of each sequence
  std::vector<std::uint32_t> contexts =
      {};                    // of each sequence, where they differ; then `batch` of them, `context` the longest
  std::uint32_t steps = 64;  // decode steps; windows slide meanwhile
  std::uint32_t prefill_chunk = 2048;
  Precision precision = {};  // of the shape
  unsigned threads = 0;      // of this machine, for drawing choices
  bool checked = true;       // looks for races in the methods' schedules (check_schedule)
  bool all_checked = false;  // conflicting accesses of the whole schedule must be ordered (SimOptions::checked): slow
  /// Sequences of each length whose heads' choices are drawn; the others share them (BatchDraws). 0: all.
  std::uint32_t drawn_sequences = kDrawnSequences;
  bool prefill = true;  // is timed; without, PredictedRow::prefill_ms is 0
  bool ranges = false;  // of steps, by the ranges of the profile's numbers
  std::function<bool()> interrupted = {};
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};  // in methods
  std::function<void(const DecodeResult& result)> look = {};                   // shows each method's decode
  std::function<void(Recording recording)> record = {};                        // takes each method's, for replays
};

struct PredictedRow {
  std::string method;
  std::string compared;                                    // its spec in the run, where that is another; else empty
  std::string refused;                                     // why it cannot run at this shape; there are no figures then
  bool too_large = false;                                  // refused, since memory ends
  bool too_slow = false;                                   // refused, since one sequence takes longer than is asked for
  double prefill_ms = 0, setup_ms = 0, first_step_ms = 0;  // TTFT of the whole batch is their sum
  double step_ms = 0, busy_ms = 0, idle_ms = 0;            // means over the steps after the first; busy + idle = step
  std::array<double, kCauseCount> idle_ms_by_cause{};      // sums to idle_ms
  /// Low and high of the step by the ranges of the profile's numbers (range_of). 0: not asked for, no ranges, or times
  /// decide who computes what (fluxion).
  double step_low_ms = 0, step_high_ms = 0;
  std::string widest_range;   // the profile's field to which most of that range is due; empty: none
  double layer0_idle_ms = 0;  // of idle_ms; a layer ahead has no layer before it there (ScoutAttention, InfiniGen)
  double attended_device = 0, attended_host = 0;       // tokens per sequence, KV head, layer and step
  double touched_bytes = 0;                            // of the context, per sequence and step (Cost::context)
  double looked_up_bytes = 0, missed_bytes = 0;        // the same looked up on the device, and not there
  double late_bytes = 0, cancelled_bytes = 0;          // brought ahead too late, or not for want of room
  double bringing_ms = 0, waited_ms = 0;               // per step: what brought the missed took; the device waited
  std::size_t device_kv_bytes = 0, host_kv_bytes = 0;  // of the batch, peaks
  std::size_t peer_kv_bytes = 0;                       // the same of a cache rank on a peer device
  std::uint32_t drawn_sequences = 0;                   // with choices of their own; 0: all
  /// Share of the tokens attended by which the batch may differ from one whose choices are all drawn: one standard
  /// error, of the side for which it is larger.
  double sampling_error = 0;
};

struct Prediction {
  std::string model, hardware, hardware_title;
  std::uint32_t layers = 0, batch = 0, context = 0, steps = 0, prefill_chunk = 0;
  Workload workload;
  std::vector<PredictedRow> rows;
};

/// One of hardware/workloads, without ".json".
Workload shipped_workload(const std::string& name);

/// What is assumed of prompts, as a sentence of every table.
inline constexpr const char* kPrefillsElsewhere =
    "What fits is what a method keeps while it decodes: a prompt's KV is taken to leave the device layer by layer "
    "while it is prefilled, where the method keeps it elsewhere. The engine itself does so for methods with a device "
    "budget (`device=`); for others it needs the batch's prompts whole on the device.";

/// Why a machine cannot hold the weights beside what is kept for activations, as a sentence without its end; empty: it
/// can.
std::string what_of_weights_is_too_large(const Model& shape, const HardwareProfile& hardware,
                                         const Precision& precision = {});

/// InputError where not even the weights fit, or the context exceeds the model's positions.
void check_target(const Model& shape, const HardwareProfile& hardware, const PredictionOptions& options);

/// Bytes of device memory beside the weights and a reserve of 5 % for what is no KV; may be below 0.
double device_kv_room(const Model& shape, const HardwareProfile& hardware, const Precision& precision = {});

/// The same of a peer device, which is one like this (HardwareProfile::PeerRates) and has no weights.
double peer_kv_room(const HardwareProfile& hardware);

/// Bytes of host memory beside a reserve of 5 %; infinite where the profile does not say.
double host_kv_room(const HardwareProfile& hardware);

/// How many sequences fit that take as much as the one of `one` does, at most `most`; 0: not even that.
std::uint32_t sequences_that_fit(const Model& shape, const HardwareProfile& hardware, const PredictedRow& one,
                                 std::uint32_t most, const Precision& precision = {});

/// The row's times of setup and steps, and the bytes that each of `sequences` touches.
void fill_times(const std::vector<StepIdle>& steps, std::size_t sequences, PredictedRow& row);

PredictedRow refused_row(std::string method, std::string why);

/// Steps of a decode from which its range comes, the first included.
inline constexpr std::uint32_t kRangeSteps = 4;

/// Factors on a time.
struct TimeRange {
  double low = 1, high = 1;
  std::string widest;  // the field whose ends move the time most; empty: none does
};

/// The range of `time` on this profile: moves one number of profile.ranges at a time to its low and its high, and adds
/// the changes in quadrature on a log scale, longer and shorter times apart, as if the numbers were independent. Where
/// two limits are equally slow neither alone makes a time shorter: so all n numbers that matter also move together,
/// each 1/sqrt(n) of its way, which in a product of powers never is more than the quadrature.
TimeRange range_of(const HardwareProfile& profile, const std::function<double(const HardwareProfile&)>& time);

/// Mean window of the recorded steps after the first, ns, on this profile; of the first `steps` alone.
double replayed_step(const SimCalls& calls, const HardwareProfile& profile, std::uint32_t steps = UINT32_MAX);

/// predict()'s row, without a prefill, of the method that `recording` is of, where `hardware` and options.precision
/// differ from the recorded ones in rates and memory alone, and times decide nothing (SimCalls). Of `options` the rest
/// is as it was recorded.
PredictedRow replayed_row(const Model& shape, const HardwareProfile& hardware, const Recording& recording,
                          const PredictionOptions& options);

/// Adds the range of the row's step from a recording of it. None where times decide, or the profile has no ranges.
void add_range(const HardwareProfile& hardware, const Precision& precision, const SimCalls& calls, PredictedRow& row);

/// check_target's errors; a method that does not fit is a row that says so.
Prediction predict(const Model& shape, const HardwareProfile& hardware, const Workload& workload,
                   const PredictionOptions& options);

/// Looks for races in a method's schedule at a small shape: a few steps of up to two sequences of `options.context` and
/// of a little less, with two KV heads, or with all of the model's where a method refuses two. A schedule at a heavy
/// point is the same with more pages, rows and steps, and looking for races there took half to two thirds of a point's
/// time. HazardError for a race.
void check_schedule(const Model& shape, const HardwareProfile& hardware, const Workload& workload,
                    const PredictionOptions& options, const std::string& method);

std::string prediction_text(const Prediction& target, bool markdown);
/// A line for each method; the clock names shape and machine.
Table prediction_table(const Prediction& target);
/// How that is to be read, why methods were refused, and which were predicted with other options: sentences.
std::vector<std::string> prediction_notes(const Prediction& target);
std::string prediction_json(const Prediction& target);
/// Reads what prediction_json() wrote. InputError naming file and field.
Prediction parse_prediction(const std::string& text, const std::string& file);

}  // namespace tandem::eval
