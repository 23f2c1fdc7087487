// Perplexity in decode mode: a window's context is prefilled with full attention, then every further token of the text
// is fed and goes through the method, so that its losses add up as in a generation. Methods are compared on the same
// tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/device.h"
#include "engine/model/model.h"
#include "engine/runtime/engine.h"
#include "eval/report/statistics.h"

namespace tandem::eval {

struct PerplexityOptions {
  std::vector<std::string> methods;  // specs; the first is the baseline
  std::uint32_t context = 1024;      // tokens of a window before the scored ones, BOS included
  std::uint32_t scored = 256;        // tokens of a window that are scored
  std::uint32_t windows = 32;
  std::uint32_t batch = 1;
  EngineOptions engine;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // in windows times methods
};

struct MethodLoss {
  std::string label;        // as typed
  std::string method;       // spelled out
  std::vector<double> nll;  // [window] mean negative log likelihood of the scored tokens, in nats
  double attended[2] = {};  // tokens per KV head, layer and step, by Side
  double step_ms = 0;       // mean window of the steps after the first
};

struct Perplexity {
  std::string model, weights_hash, tokenizer_hash, text, text_hash, clock;
  std::uint32_t context = 0, scored = 0, batch = 0;
  std::vector<MethodLoss> methods;
};

/// Prose of made-up sentences, as RULER's embedded source has it: what is scored where no text is given.
std::string invented_prose(std::uint64_t seed, std::size_t bytes);

/// Non-overlapping windows from the start of `text`. InputError where it is too short for them; `name` stands for it.
Perplexity decode_perplexity(const PerplexityOptions& options, const Model& model, Device& device, ThreadPool& pool,
                             std::string_view text, const std::string& name);

std::string perplexity_text(const Perplexity& result);
std::string perplexity_json(const Perplexity& result);

}  // namespace tandem::eval
