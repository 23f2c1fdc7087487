// A run in figures, all that tables and plots show: accuracy with intervals, differences to the first method on the
// same samples, latency, idle time by cause, bytes.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "eval/report/run_folder.h"
#include "eval/report/statistics.h"

namespace tandem::eval {

/// Scores by sample: task, length, index.
using Scores = std::map<std::tuple<std::string, std::uint32_t, std::uint32_t>, double>;

/// Which samples are of one question or about one document, and so not independent.
struct Repeated {
  std::set<std::string> tasks;  // ask the same questions at every length (ruler_repeating_tasks())
  std::uint32_t answers = 1;    // to each question, one after another (repeats_of())
  std::map<Scores::key_type, std::uint32_t> documents;  // of samples that have one (SampleResult::document)
};
Repeated repeated_in(const Manifest& manifest, const std::vector<SampleResult>& samples);

/// The samples that two methods, or one method in two runs, both have. All samples of one question, or about one
/// document, are one unit with its mean scores and as much weight as it has samples.
struct PairedScores {
  std::vector<double> first, second, weights;
  std::uint64_t samples = 0;
};

PairedScores paired_scores(const Scores& first, const Scores& second, const Repeated& repeated);

struct AccuracyCell {
  std::string task;          // empty: all tasks
  std::uint32_t length = 0;  // 0: all lengths
  Estimate accuracy;
  bool has_difference = false;  // false for the baseline and where no sample is shared with it
  PairedEstimate difference;    // this method minus the baseline
  std::uint64_t units = 0;      // independent ones: PairedScores has as many
};

/// Of samples with a decode step, one or more.
struct LatencySummary {
  std::uint64_t samples = 0, steps = 0;
  std::uint64_t left_out = 0;  // samples beside these, of a task's last batch that is smaller; of all lengths together
  double ttft_ms = 0, prefill_ms = 0, setup_ms = 0, first_step_ms = 0;   // means over samples
  std::optional<double> tpot_ms, tpot_p50_ms, tpot_p90_ms, tpot_p99_ms;  // over steps after the first, if any
  double step_ms = 0, busy_ms = 0, idle_ms = 0;                          // means per decode step; busy + idle = step
  double layer0_idle_ms = 0;                                             // of idle_ms
  std::map<std::string, double> idle_ms_by_cause;                        // sums to idle_ms
  double hbm = 0, dram = 0, h2d = 0, d2h = 0;                            // bytes per decoded token
  double peer_link = 0, peer_hbm = 0;                                    // between two devices; of the other one
  std::optional<double> touched;          // Cost::context, per decoded token, where every sample has it
  double looked_up = 0, missed = 0;       // bytes per decoded token looked up on the device, and not there
  double late = 0, cancelled = 0;         // bytes per decoded token brought ahead too late, or not for want of room
  double bringing_ms = 0, waited_ms = 0;  // per step: what brought `missed` took, and of it the device waited
  double attended_device = 0, attended_host = 0;                         // tokens per KV head, layer and step
  std::uint64_t peak_device_kv = 0, peak_host_kv = 0, peak_peer_kv = 0;  // bytes, largest sample
  /// Share of all attended tokens, if any. (ScoutAttention's CPU compute ratio is a share of the budget.)
  std::optional<double> host_share() const { return ratio(attended_host, attended_device + attended_host); }
  /// Share of the looked-up bytes that were there, if any were looked up.
  std::optional<double> hit_rate() const { return ratio(looked_up - missed, looked_up); }
  /// Share of the time that bringing the others took in which the device did not wait for it, if any was brought.
  std::optional<double> overlap() const { return ratio(bringing_ms - waited_ms, bringing_ms); }
  /// Of a step's time, if it takes any.
  std::optional<double> idle_share() const { return ratio(idle_ms, step_ms); }
};

struct LengthLatency {
  std::uint32_t length = 0;
  LatencySummary latency;
};

struct MethodSummary {
  std::string label;
  AccuracyCell overall;
  std::vector<AccuracyCell> cells;        // by task and length, in the manifest's order; missing ones left out
  std::vector<AccuracyCell> lengths;      // by length, all tasks together
  std::optional<LatencySummary> latency;  // all lengths together, every step alike; none without times
  std::vector<LengthLatency> by_length;   // in the manifest's order; lengths without a timing left out
  std::uint64_t near_ties = 0, near_tie_samples = 0;
  std::vector<std::uint32_t> attends_everything_at;  // lengths, in the manifest's order (lengths_attended_whole())
  std::vector<SampleResult> parted;                  // of a lossless method: samples whose tokens part from full's
};

struct Summary {
  Manifest manifest;
  std::vector<MethodSummary> methods;        // in the manifest's order, the baseline first
  bool complete = false;                     // every sample of every method is there, with its times
  std::vector<std::string> about_documents;  // the manifest's tasks that ask about some documents more than once
  std::vector<std::string> remarks;          // sentences on the methods' options, for below the tables
  std::uint64_t prefill_tokens = 0, reused_tokens = 0;  // of prompts with times; among them the prefix cache's
};

/// Tokens of context of a sample's first decode step.
using Contexts = std::map<Scores::key_type, std::uint32_t>;

/// Lengths at which a method that has a budget attends all tokens before, in every step of every sample.
std::vector<std::uint32_t> lengths_attended_whole(const Manifest& manifest, const MethodEntry& method,
                                                  const std::vector<SampleTiming>& timings, const Contexts& contexts);

/// Whether as many samples of a method have times, in a run that takes them.
bool has_times(const Manifest& manifest, const std::vector<SampleTiming>& timings, const std::string& method,
               std::uint64_t samples);

/// Fills in `latency` and `by_length` from the method's timings: of whole batches, where there is one.
void add_latency(const Manifest& manifest, const std::vector<SampleTiming>& timings, MethodSummary& method);

/// Fills in `prefill_tokens` and `reused_tokens`, each prompt once.
void add_reuse(const Contexts& contexts, const std::vector<SampleTiming>& timings, Summary& summary);

/// `method.latency` with the same weight for each length, however many steps it has: means of means, peaks of all.
/// Without percentiles where lengths are several.
std::optional<LatencySummary> mean_of_lengths(const MethodSummary& method);

/// Share of a step in which the device waits, with the same weight for each length; none without times.
std::optional<double> mean_idle_share(const MethodSummary& method);

/// InputError for a run without samples and what RunFolder::samples() and timings() refuse.
Summary summarise(const RunFolder& folder);

std::string to_json_text(const Summary& summary);

/// Writes a run's origin: command, programs, model, machine, clock and seed. Threads
/// only where the clock is measured: virtual time is the same with any.
void write_origin(nlohmann::ordered_json& json, const Manifest& manifest);

/// "prefix_cache", where it had tokens of the run's prompts.
void write_reuse(nlohmann::ordered_json& json, const Summary& summary);

/// "latency" (null without times), "latency_by_length", and "attends_everything_at" unless it is empty.
void write_latency(nlohmann::ordered_json& json, const MethodSummary& method);

/// A figure, or null where there is none.
nlohmann::ordered_json json_or_null(const std::optional<double>& figure);

/// The fields of an estimate: "n", `name` for its value, "interval", "interval_kind".
nlohmann::ordered_json estimate_json(const Estimate& estimate, const char* name);

}  // namespace tandem::eval
