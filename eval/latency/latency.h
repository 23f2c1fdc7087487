// How fast a model runs on the device's clock, in the two numbers that engines are compared by: the time of a decode
// step behind a long context, and the tokens per second of a prefill. No text is involved: prompts are random tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/model/model.h"
#include "engine/runtime/engine.h"

namespace tandem::eval {

struct Latency;

struct LatencyOptions {
  std::vector<std::string> methods = {"full"};  // specs; decode only
  std::uint32_t batch = 1;                      // sequences that decode together; decode only
  std::uint32_t context = 8192;  // tokens of a sequence in the KV store before the first step; of a prefill: its tokens
  std::uint32_t steps = 32;      // measured decode steps of a round, each makes one token of each sequence
  std::uint32_t rounds = 5;      // of each method, measured; one more runs before them and is not counted
  EngineOptions engine;
  /// Makes a prompt's prefix, where Engine::prefill is not to do it: one that was kept, for example.
  std::function<std::unique_ptr<Prefix>(Engine& engine, std::span<const std::int32_t> prompt)> prefill;
  std::function<void(std::uint64_t done, std::uint64_t total)>
      progress;  // in rounds and prefills, those that are not counted included
  /// Called with the result so far after each measured round of a method; decode only. May be empty.
  std::function<void(const Latency&)> after_round;
};

/// What the operations of one name took, of everything measured.
struct OperationTime {
  std::string name;      // Op::name
  double ms = 0;         // per decode step, or per prefill
  double gigabytes = 0;  // read and written, as the operations declare it; per step or prefill
  double gigaflops = 0;  // computed; per step or prefill
};

void to_json(nlohmann::ordered_json& json, const OperationTime& time);

/// The rounds of one method, or of the prefill.
struct LatencyRow {
  std::string label, method;     // the spec as it was given, and spelled out; empty for a prefill
  std::vector<double> round_ms;  // [round] a decode step's mean, or the prefill
  double median_ms = 0, min_ms = 0, max_ms = 0;
  std::optional<double> tokens_per_second;  // of all sequences, by the median, if that takes any time
  std::vector<OperationTime> operations;    // of all lanes but the control thread's, largest first; lanes overlap
  double compute_lane_idle_ms = 0;          // per step or prefill: the device's compute lane runs nothing
};

/// The cost of reading the weights, which happened before the measurement.
struct LoadingTime {
  double seconds = 0;
  std::size_t huge_page_bytes = 0;  // of the process after that
};

struct MemoryUse {
  std::size_t weight_bytes = 0;
  std::size_t kv_bytes[2] = {0, 0};                // by Tier: the most at once
  std::size_t resident_bytes = 0, peak_bytes = 0;  // of this process, at the end and at most; 0: not known
};

struct Latency {
  std::string model, weights_hash, clock;
  std::string isa, precision;  // of the CPU kernels; EngineOptions::precision
  std::uint32_t threads = 0, batch = 1, context = 0, steps = 0, rounds = 0, prefill_chunk = 0;
  bool mapped_weights = false;        // read from their files
  std::vector<LatencyRow> rows = {};  // by method; a method without a measured round has none
  std::string unfinished = {};        // "4 of 18 rounds" of all methods; empty: all were measured
  std::optional<LoadingTime> loading = {};
  MemoryUse memory = {};
};

/// Prefills `context` random tokens, other ones for each sequence, and decodes random tokens behind them, a round of 1
/// + steps tokens at a time, each from forks; the first step of a round, and the method's preparation before it, are
/// not counted. Methods take turns by rounds, so that a slow spell of the machine meets all of them. InputError for
/// what the model or the KV store has no room for.
Latency measure_decode(const LatencyOptions& options, const Model& model, Device& device, ThreadPool& pool);

/// Prefills `context` random tokens, each round into an empty sequence. Computes no logits.
Latency measure_prefill(const LatencyOptions& options, const Model& model, Device& device, ThreadPool& pool);

std::string latency_text(const Latency& result);
std::string latency_json(const Latency& result);

}  // namespace tandem::eval
