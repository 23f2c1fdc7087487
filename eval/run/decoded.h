// What evaluations share that prefill prompts once and decode them with several methods.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "engine/runtime/engine.h"
#include "eval/report/schema.h"

namespace tandem::eval {

/// The manifest's entries of method specs, options spelled out. InputError for an unknown method or option, and for a
/// spec that is listed twice.
std::vector<MethodEntry> method_entries(const std::vector<std::string>& specs);

/// What the budget of each method counts, as protocol ids say it: "hgca=...,streaming=..."; "none" where none has one.
std::string budget_meanings(const std::vector<MethodEntry>& methods);

/// What tables of these methods, run on a model with these weights, have to say of their options and of the files that
/// these name, each sentence once. InputError where such a file is gone.
std::vector<std::string> method_remarks(const std::vector<MethodEntry>& methods, const std::string& weights_hash);

/// What a prompt's KV takes in the store.
std::size_t prompt_kv_bytes(const EngineOptions& engine, const Model& model, std::uint32_t tokens);

/// InputError where the prompts of a batch, `tokens` each, are more than the device's KV budget. `lengths`: the option
/// to lower.
void check_device_room(const EngineOptions& engine, const Model& model, std::uint32_t batch, std::uint32_t tokens,
                       const char* lengths);

/// The prefill of a batch, whose prompts are prefilled one after another, for a method with these needs: what others of
/// a comparison need of the prompts is not in it.
std::int64_t prefill_ns_of(std::span<const DecodeRequest> requests, const Needs& needs);

/// The timing of one sequence of a decoded batch. `prefill_ns`: of all prompts of the batch, since the first step waits
/// for all of them, as for the setup of all. Windows, busy and idle are the batch's; bytes and FLOPs are divided by the
/// sequences that took part in a step, the remainder going to the earlier ones, so that the sum is exact.
SampleTiming timing_of(const SampleKey& key, const DecodeResult& result, std::size_t row, std::int64_t prefill_ns,
                       const std::string& clock);

}  // namespace tandem::eval
