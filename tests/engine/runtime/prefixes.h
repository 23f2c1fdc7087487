// Engines with and without a prefix cache, and what a prefilled prompt comes to.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/engine.h"
#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {

/// An engine of options as they are; 64 MB of KV on both sides unless they say less.
struct PrefixBench {
  explicit PrefixBench(EngineOptions options, std::unique_ptr<Device> d = sim(), unsigned threads = 2,
                       Model m = tiny_model())
      : model(std::move(m)),
        device(std::move(d)),
        pool(threads),
        engine(model, *device, pool, sized(std::move(options))) {}
  static EngineOptions sized(EngineOptions options) {
    for (std::size_t* bytes : {&options.kv.device_bytes, &options.kv.host_bytes})
      *bytes = std::min(*bytes, std::size_t{64} << 20);
    return options;
  }
  Model model;
  std::unique_ptr<Device> device;
  ThreadPool pool;
  Engine engine;
};

/// The KV of a sequence as it is stored: [layer][block's slot].
inline std::string kv_of(Engine& engine, SequenceId sequence) {
  const KvStore& kv = engine.kv();
  std::string bytes;
  Op op("read kv");
  std::vector<std::uint32_t> slots;
  const Range blocks{0, blocks_for(kv.tokens(sequence))};
  for (std::uint32_t layer = 0; layer < kv.shape().layers; ++layer) {
    kv.append_slots(sequence, layer, blocks, Tier::device, slots);
    kv.append_access(sequence, layer, blocks, Tier::device, Range{0, kv.shape().kv_heads}, false, op.access);
  }
  if (slots.empty()) return bytes;
  const std::uint32_t used = kv.tokens(sequence) % kPageTokens;  // of the last page; the others' bytes mean nothing
  op.body = [&](BodyContext& ctx) {
    const char* from = ctx.read<char>(kv.device_buffer());
    const std::size_t run = kPageTokens * kv.shape().vector_bytes();
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const bool is_last = used > 0 && (i + 1) % blocks.end == 0;
      const std::size_t count = is_last ? used * kv.shape().vector_bytes() : run;
      for (std::size_t at = 0; at < kv.shape().slot_bytes(); at += run)
        bytes.append(from + slots[i] * kv.shape().slot_bytes() + at, count);
    }
  };
  engine.device().host_wait(engine.device().submit(engine.device().lane(LaneKind::device_compute), std::move(op)));
  return bytes;
}

/// Tokens, logits, bytes and times of a decode behind a prefix.
struct Decoded {
  std::vector<std::int32_t> tokens;
  std::vector<std::vector<float>> logits;
  std::size_t peaks[2];
  std::vector<Nanos> windows;
  CostTotals cost;
  bool operator==(const Decoded&) const = default;
  /// Without what depends on where pages lie, and so on what was in the store before.
  bool same_bits(const Decoded& other) const {
    return tokens == other.tokens && logits == other.logits && peaks[0] == other.peaks[0] && peaks[1] == other.peaks[1];
  }
};

inline Decoded decode_behind(Engine& engine, const Prefix& prefix, const std::string& spec,
                             std::uint32_t new_tokens = 6) {
  const auto method = make_method(spec);
  Decoded out;
  const DecodeRequest request{&prefix, new_tokens};
  const DecodeResult result = engine.decode(*method, {&request, 1}, {.logits = &out.logits});
  out.tokens = result.sequences[0].tokens;
  for (const StepIdle& step : result.idle.steps) out.windows.push_back(step.window);
  out.cost = result.idle.total;
  std::copy_n(result.sequences[0].peak_kv_bytes, 2, out.peaks);
  return out;
}

/// The first tokens of one prompt, and others behind them.
inline std::vector<std::int32_t> behind(const std::vector<std::int32_t>& prompt, std::uint32_t shared,
                                        std::uint32_t own, std::uint32_t seed) {
  std::vector<std::int32_t> out(prompt.begin(), prompt.begin() + shared);
  const std::vector<std::int32_t> more = random_prompt(own, seed);
  if (shared < prompt.size() && own > 0 && more.front() == prompt[shared]) return behind(prompt, shared, own, seed + 1);
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

}  // namespace tandem::testing
