#include "engine/runtime/engine_ops.h"

#include <algorithm>
#include <utility>

#include "engine/common/error.h"
#include "engine/runtime/companion.h"

namespace tandem {
Event EngineParts::asked(Event event) {
  const auto same = [event](const Event& e) { return e.lane == event.lane; };
  const auto found = std::find_if(last_asked.begin(), last_asked.end(), same);
  if (found == last_asked.end()) {
    last_asked.push_back(event);
  } else {
    *found = event;
  }
  return event;
}

const PromptQueries& EngineParts::queries_of(SequenceId sequence) const {
  const auto found = queries.find(sequence);
  TANDEM_CHECK(found != queries.end() && found->second.kept > 0, "sequence {} has no prompt queries", sequence);
  return found->second;
}

void EngineOps::forget(SequenceId sequence) {
  for (auto& [type, mechanism] : mechanisms_) mechanism->forget(sequence);
}

std::size_t EngineOps::bytes_of(SequenceId sequence, Tier tier) const {
  std::size_t bytes = 0;
  for (const auto& [type, mechanism] : mechanisms_) bytes += mechanism->bytes_of(sequence, tier);
  return bytes;
}

std::size_t EngineOps::peer_bytes_of(SequenceId sequence) const {
  std::size_t bytes = 0;
  for (const auto& [type, mechanism] : mechanisms_) bytes += mechanism->peer_bytes_of(sequence);
  return bytes;
}

std::size_t EngineOps::prompt_bytes(SequenceId sequence, const Needs& needs) const {
  std::size_t bytes = 0;
  if (const auto found = parts_.queries.find(sequence); found != parts_.queries.end() && found->second.kept > 0) {
    const std::uint32_t kept = found->second.kept;
    bytes += found->second.values.bytes() / kept * std::min(needs.last_queries, kept);
  }
  if (const auto found = parts_.sums.find(sequence); found != parts_.sums.end() && needs.column_sums)
    bytes += found->second.values.bytes();
  return bytes;
}

void EngineOps::move_to_host(SequenceState& sequence, Range tokens, std::uint32_t layer, Companion* along) {
  TANDEM_CHECK(tokens.begin % kPageTokens == 0 && tokens.end % kPageTokens == 0 && tokens.begin < tokens.end &&
                   tokens.end <= sequence.tokens,
               "move_to_host of tokens [{}, {}) of {}", tokens.begin, tokens.end, sequence.tokens);
  const Range blocks{tokens.begin / kPageTokens, tokens.end / kPageTokens};
  const KvShape& shape = kv_.shape();
  Op op("offload kv", Cause::offload, layer);
  const std::vector<SlotCopy> copies = kv_.add_host_blocks(sequence.id, layer, blocks, op.after);
  kv_.append_filled(sequence.id, layer, blocks, Tier::device, op.after);
  kv_.append_access(sequence.id, layer, blocks, Tier::device, Range{0, shape.kv_heads}, false, op.access);
  kv_.append_access(sequence.id, layer, blocks, Tier::host, Range{0, shape.kv_heads}, true, op.access);
  if (along != nullptr) along->declare_move(layer, tokens, op);
  set_copies(op, [this, copies, tokens, layer, along](Copier& copier) {
    copier.between(kv_.host_buffer(), kv_.device_buffer()).add(copies, kv_.shape().slot_bytes());
    if (along != nullptr) along->move(copier, layer, tokens);
  });
  const Event done = ask(LaneKind::d2h, std::move(op));
  kv_.set_filled(sequence.id, layer, blocks, Tier::host, done);
  kv_.drop(sequence.id, layer, blocks, Tier::device, done);
  if (along != nullptr) along->moved_by(layer, tokens, done);
}

void EngineOps::move_to_host(SequenceState& sequence, Range tokens) {
  for (std::uint32_t layer = 0; layer < kv_.shape().layers; ++layer) move_to_host(sequence, tokens, layer, nullptr);
}

void EngineOps::copy_to_host(std::uint32_t layer, std::span<const CopyRequest> requests) {
  struct Part {
    std::uint32_t from = 0, to = 0;  // slots
    Range tokens;                    // inside the page
  };
  const KvShape& shape = kv_.shape();
  const Range heads{0, shape.kv_heads};
  Op op("offload kv", Cause::offload, layer);
  std::vector<Part> parts;
  for (const CopyRequest& request : requests) {
    const SequenceId id = request.sequence->id;
    const Range tokens = request.tokens;
    TANDEM_CHECK(tokens.begin < tokens.end && tokens.end <= request.sequence->tokens,
                 "copy_to_host of tokens [{}, {}) of {}", tokens.begin, tokens.end, request.sequence->tokens);
    const Range blocks{tokens.begin / kPageTokens, blocks_for(tokens.end)};
    kv_.add_host_blocks(id, layer, blocks, op.after);
    kv_.append_filled(id, layer, blocks, Tier::device, op.after);
    kv_.append_access(id, layer, blocks, Tier::device, heads, false, op.access);
    kv_.append_access(id, layer, blocks, Tier::host, heads, true, op.access);
    for (std::uint32_t block = blocks.begin; block < blocks.end; ++block) {
      const std::uint32_t first = block * kPageTokens;
      const Part part{kv_.slot(id, layer, block, Tier::device),
                      kv_.slot(id, layer, block, Tier::host),
                      {std::max(tokens.begin, first) - first, std::min(tokens.end, first + kPageTokens) - first}};
      TANDEM_CHECK(part.from != KvStore::kNoSlot, "block {} of layer {} is not on the device", block, layer);
      parts.push_back(part);
    }
  }
  set_copies(op, [this, parts](Copier& copier) {
    const std::size_t bytes = kv_.shape().vector_bytes();
    Copier::Between pages = copier.between(kv_.host_buffer(), kv_.device_buffer());
    for (const Part& part : parts) {
      const std::size_t at = part.tokens.begin * bytes, count = (part.tokens.end - part.tokens.begin) * bytes;
      for (std::uint32_t head = 0; head < kv_.shape().kv_heads; ++head) {
        pages.add(kv_.k_offset(part.to, head) + at, kv_.k_offset(part.from, head) + at, count);
        pages.add(kv_.v_offset(part.to, head) + at, kv_.v_offset(part.from, head) + at, count);
      }
    }
  });
  const Event done = ask(LaneKind::d2h, std::move(op));
  for (const CopyRequest& request : requests) {
    const Range blocks{request.tokens.begin / kPageTokens, blocks_for(request.tokens.end)};
    kv_.set_filled(request.sequence->id, layer, blocks, Tier::host, done);
  }
}

void EngineOps::drop(SequenceState& sequence, Range tokens) {
  const Range blocks{blocks_for(tokens.begin), tokens.end / kPageTokens};
  if (blocks.begin >= blocks.end) return;
  for (std::uint32_t layer = 0; layer < kv_.shape().layers; ++layer) {
    kv_.drop(sequence.id, layer, blocks, Tier::device, parts_.last_reader);
  }
}

std::vector<Blocks> EngineOps::score_topk(const LayerContext& context, std::span<const ScoreRequest> requests) {
  return attention_.score_topk(context, requests);
}

QueryRef EngineOps::predict_query(const LayerContext& context, std::uint32_t layer, std::uint32_t norm_of) {
  return attention_.predict_query(context, layer, norm_of);
}

QueryRef EngineOps::layer_query(const LayerContext& context) {
  return attention_.layer_query(context);
}

}  // namespace tandem
