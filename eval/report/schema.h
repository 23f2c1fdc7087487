// What a run writes into its folder (run_folder.h), and reading it back strictly.
//   manifest.json   what was run, where, with which options       (one object)
//   samples.jsonl   predictions and scores, one line per sample   (deterministic bytes: same run, same file)
//   windows.jsonl   losses, one line per window of a text         (perplexity; instead of samples.jsonl)
//   timings.jsonl   times and bytes, one line per sample          (deterministic on a simulated clock)
//   *.damaged       lines that were no longer sound when the run was resumed, as they were found
// A line's keys have a fixed order; floating-point numbers are written in a form that reads back to the same double.
// Times are nanoseconds, sizes bytes.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/common/error.h"

namespace tandem::eval {

class ObjectReader;

/// 2: isa; 3: a depth may be null; 4: layer 0's idle; 5: hashes of files; 6: task_samples, length 0; 7: summary.json's
/// bytes_per_token, which was called bytes_per_step; 8: precision, prefill_chunk; 9: bytes touched; 10: config_hash;
/// 11: a sample's document; 12: a sample's rule and scores by rule; 13: null in summary.json where there is no figure;
/// `parted`, where a lossless method's tokens part from full's; 14: openblas, reused_tokens. All are read.
inline constexpr int kSchemaVersion = 14;
inline constexpr int kDocumentsSince = 11;  // runs that older programs began name no documents, also where they go on
inline constexpr int kPartedSince = 13;     // likewise `parted`

inline constexpr const char* kPerplexity = "perplexity";  // Manifest::benchmark of runs that have windows.jsonl

struct NearTieMark {
  std::uint32_t step = 0;  // decode step whose two best logits are close
  double margin = 0;       // their difference
  bool operator==(const NearTieMark&) const = default;
};

/// The step at which a lossless method's tokens part from full's, which should not happen: what both made of the step.
struct Parting {
  struct Choice {
    std::array<std::int32_t, 2> tokens = {-1, -1};  // the best and the second best
    std::array<double, 2> logits = {0, 0};          // theirs
    bool operator==(const Choice&) const = default;
  };
  std::uint32_t step = 0;
  Choice full, own;
  double gap() const { return full.logits[0] - full.logits[1]; }
  bool operator==(const Parting&) const = default;
};

/// What identifies a sample under a method; samples with equal first four fields are paired between methods.
struct SampleKey {
  std::string benchmark, task;  // "ruler", "niah_single_1"
  std::uint32_t length = 0;     // asked for, tokens; 0: prompts are as long as they are
  std::uint32_t index = 0;      // of the sample in its task and length
  std::string method;           // label of a Manifest::methods entry
  auto operator<=>(const SampleKey&) const = default;
  const SampleKey& key() const { return *this; }
};

struct SampleResult : SampleKey {
  std::uint32_t prompt_tokens = 0;
  std::vector<std::int32_t> tokens;  // generated
  std::string prediction;            // bytes that are no UTF-8 are written as U+FFFD; `tokens` keeps the truth
  std::vector<std::string> answers;
  double score = 0;  // in [0, 1]
  std::vector<NearTieMark> near_ties;
  std::optional<double> depth;  // of the asked needle, in [0, 1]; null where it is not known
  /// Which of its task's documents it is about, in tasks that ask about some of theirs more than once; written there.
  std::optional<std::uint32_t> document = {};
  /// How the answer was found, in benchmarks that have several ways: the rule that decided (null: none found one), and
  /// the score by each published rule alone, in [0, 1]. Written where there are such scores.
  std::optional<std::string> rule = {};
  std::vector<std::pair<std::string, double>> by_rule = {};
  std::optional<Parting> parted = {};  // of lossless methods beside full, where tokens part; written there
  bool operator==(const SampleResult&) const = default;
};

/// How well one window of a text was predicted under one method, every token through the method.
/// Its key: kPerplexity, which text, the tokens of context before the scored ones, the window's number.
struct WindowLoss : SampleKey {
  std::uint64_t first_token = 0;             // of the text's tokens: where the window begins
  std::uint32_t scored = 0;                  // tokens
  double nll = 0;                            // mean negative log likelihood of the scored tokens, nats
  std::vector<double> nll_by_position = {};  // over equal stretches: stretch b of B from b * scored / B on
  bool operator==(const WindowLoss&) const = default;
};

struct ByteCounts {
  std::uint64_t hbm = 0, dram = 0, h2d = 0, d2h = 0;
  std::uint64_t peer_link = 0, peer_hbm = 0;  // between two devices; of the other one. Written where there is one
  std::uint64_t touched = 0;                  // Cost::context of the trace's records; 0 before version 9
  // KV looked up on the device, and the part of `h2d` that was not there; of this, what was brought ahead and came
  // late; what was to come ahead and found no room. Written where there is some.
  std::uint64_t looked_up = 0, missed = 0, late = 0, cancelled = 0;
  bool operator==(const ByteCounts&) const = default;
};

/// Times of one sample. "Decode steps" are all that produce a token, the first included; prefill and setup are outside.
/// Where samples were decoded in one batch, a step's window is the batch's and bytes and FLOPs are the sample's share.
struct SampleTiming : SampleKey {
  std::string clock = {};                  // "simulated for <profile>" or "measured on <machine>"
  std::int64_t prefill_ns = 0;             // shared by all methods, but for what only some need
  std::int64_t setup_ns = 0;               // the method's own work between prefill and the first step
  std::int64_t first_step_ns = 0;          // TTFT = prefill + setup + first step
  std::vector<std::int64_t> step_ns = {};  // windows of decode steps 2, 3, ...: their mean is TPOT
  std::int64_t window_ns = 0;              // all decode steps; busy + idle = window
  std::int64_t busy_ns = 0, idle_ns = 0;
  std::vector<std::pair<std::string, std::int64_t>> idle_by_cause = {};  // sums to idle_ns; names as to_string(Cause)
  std::int64_t layer0_idle_ns = 0;  // of idle_ns; a method that works a layer ahead has no layer before it there
  // Time of the copies that brought `bytes.missed`; part of it in which the device waited. Absent where both are 0.
  std::int64_t bringing_ns = 0, waited_ns = 0;
  ByteCounts bytes = {};  // over all decode steps
  std::uint64_t flops = 0;
  std::uint64_t peer_flops = 0;                          // of a peer device; written where there is one
  std::uint32_t steps = 0;                               // decode steps, the first included
  std::uint64_t device_kv_bytes = 0, host_kv_bytes = 0;  // peaks
  std::uint64_t peer_kv_bytes = 0;  // the same of a cache rank on a peer device; written where there is one
  std::uint64_t tokens_attended_device = 0, tokens_attended_host = 0;  // per KV head and layer, summed over steps
  /// Tokens of the prompt whose KV came from the prefix cache; prefill_ns has the time of their prefill nevertheless.
  std::uint32_t reused_tokens = 0;
  bool operator==(const SampleTiming&) const = default;
};

struct MethodEntry {
  std::string label;                                         // unique in the run, as typed: "hgca:beta=0.5"
  std::string name;                                          // registry name
  std::vector<std::pair<std::string, std::string>> options;  // all, defaults included
  std::string content;  // of the files that options name, 16 hexadecimal digits; empty: none, or before version 5
  bool operator==(const MethodEntry&) const = default;
};

struct Program {
  std::string tandem_version, git_commit;  // commit: known at configuration time of the build, else "unknown"
  bool operator==(const Program&) const = default;
};

/// Those that made what is there, and one that goes on with it, which may be one of them.
std::vector<Program> with_program(std::vector<Program> there, const Program& one);

struct Machine {
  std::string cpu_model, device;  // device: name of the GPU, empty for none
  std::uint32_t cores = 0;
  std::uint64_t memory_bytes = 0;
  bool operator==(const Machine&) const = default;
};

struct Manifest {
  int schema_version = kSchemaVersion;
  std::string command;
  /// Programs that made samples: the one that began the run, then others that continued it.
  std::vector<Program> programs = std::vector<Program>(1);
  std::string model, weights_hash, tokenizer_hash;
  std::string config_hash;           // of the model's config.json; empty before version 10
  std::vector<MethodEntry> methods;  // the first is the baseline that others are compared with
  std::string benchmark;
  std::vector<std::string> tasks;
  std::vector<std::uint32_t> lengths;
  std::uint32_t samples = 0;  // per task and length
  /// Of each task at a length, where they differ: at most `samples`; else empty.
  std::vector<std::uint32_t> task_samples;
  std::uint64_t seed = 0;
  std::string protocol_id;
  std::string precision;            // "bf16": what --precision auto came to; empty before version 8
  std::uint32_t prefill_chunk = 0;  // tokens; 0 before version 8
  std::string hardware_profile;     // empty for a measured run
  std::string hardware_hash;  // of its content, 16 hexadecimal digits; empty for a measured run and before version 5
  std::string clock;          // as SampleTiming::clock; empty when no timings are taken
  Machine machine;
  std::string isa;       // of the CPU kernels: another one rounds differently; empty in runs of schema version 1
  std::string openblas;  // its version and kernels, likewise; empty before version 14 and where no method uses it
  std::uint32_t threads = 0;
  std::string started_utc, finished_utc;  // "2026-01-31T12:00:00Z"; finished is empty while the run is going on
  /// Sets `samples` and, where they differ, `task_samples`: one number per task.
  void set_samples(std::vector<std::uint32_t> of_tasks);
  /// Samples of a task at a length; 0 for a task that the run does not have.
  std::uint32_t samples_of(std::string_view task) const;
  /// Of all tasks and lengths, under one method.
  std::uint64_t all_samples() const;
  bool operator==(const Manifest&) const = default;
};

Machine this_machine();
std::string utc_now();

/// A clock says where its numbers come from: "simulated for X" or "measured on X" with a non-empty X.
bool is_clock(std::string_view clock);
bool is_simulated(std::string_view clock);

std::string to_line(const SampleResult& sample);  // no newline at the end
std::string to_line(const WindowLoss& window);
std::string to_line(const SampleTiming& timing);
std::string to_json_text(const Manifest& manifest);

/// The fields "tandem_version", "git_commit" and "later_programs" of a manifest, which other files have too.
void write_programs(nlohmann::ordered_json& json, const std::vector<Program>& all);
std::vector<Program> read_programs(ObjectReader& in);

/// Parse one line or document; `where` ("samples.jsonl:12") begins every error. Unknown, missing, repeated and mistyped
/// fields, values outside their range and broken sums are InputErrors.
template <class Item>
Item parse_line(std::string_view line, const std::string& where);  // SampleResult, WindowLoss or SampleTiming
Manifest parse_manifest(std::string_view text, const std::string& where);

/// A manifest of a schema version that this program does not know: not damaged, but another program's.
class UnknownSchema : public InputError {
 public:
  using InputError::InputError;
};

}  // namespace tandem::eval
