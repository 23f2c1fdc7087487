// One decode of a ragged batch: fork the prefixes, let the method prepare, run steps until every sequence is done.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/kv/sequence_stores.h"
#include "engine/runtime/decode_attention.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/engine_ops.h"
#include "engine/runtime/forward.h"

namespace tandem {

class DecodeRun {
 public:
  DecodeRun(const Model& model, Device& device, ThreadPool& pool, const EngineOptions& engine, KvStore& kv,
            Forward& forward, Method& method, std::span<const DecodeRequest> requests, const DecodeOptions& options);
  ~DecodeRun();
  DecodeRun(const DecodeRun&) = delete;
  DecodeRun& operator=(const DecodeRun&) = delete;

  DecodeResult execute();

 private:
  struct Active {
    std::size_t request = 0;
    SequenceState state;
    std::uint32_t last_row = 0;  // row that wrote this sequence's next token
  };

  void prepare();
  void step(std::uint32_t step);
  Event attend_layers(std::uint32_t step);
  void policy_time(const char* name, std::uint32_t layer);
  void collect(std::uint32_t step);
  std::vector<SequenceState*> batch();

  const Model& model_;
  Device& device_;
  const EngineOptions& engine_;
  KvStore& kv_;
  Forward& forward_;
  Method& method_;
  std::span<const DecodeRequest> requests_;
  const DecodeOptions& options_;
  SequenceStores stores_;
  DecodeAttention attention_;
  EngineOps ops_;
  std::vector<std::unique_ptr<Active>> active_;
  Event uploaded_;  // the last prompt tokens, input of step 0
  DecodeResult result_;
};

}  // namespace tandem
