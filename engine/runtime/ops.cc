#include "engine/runtime/ops.h"

#include <algorithm>
#include <utility>

#include "engine/common/error.h"
#include "engine/runtime/companion.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/mechanism.h"

namespace tandem {
Event EngineParts::ask(LaneKind lane, Op op) {
  const Event event = device.submit(device.lane(lane), std::move(op));
  const auto found = std::ranges::find(last_asked, event.lane, &Event::lane);
  if (found == last_asked.end())
    last_asked.push_back(event);
  else
    *found = event;
  return event;
}

const PromptQueries& EngineParts::queries_of(SequenceId sequence) const {
  const auto found = queries.find(sequence);
  TANDEM_CHECK(found != queries.end() && found->second.kept > 0, "sequence {} has no prompt queries", sequence);
  return found->second;
}

void EngineParts::forget(SequenceId sequence) {
  for (auto& [type, mechanism] : mechanisms) mechanism->forget(sequence);
}

std::size_t EngineParts::bytes_of(SequenceId sequence, Tier tier) const {
  std::size_t bytes = 0;
  for (const auto& [type, mechanism] : mechanisms) bytes += mechanism->bytes_of(sequence, tier);
  return bytes;
}

std::size_t EngineParts::peer_bytes_of(SequenceId sequence) const {
  std::size_t bytes = 0;
  for (const auto& [type, mechanism] : mechanisms) bytes += mechanism->peer_bytes_of(sequence);
  return bytes;
}

std::size_t EngineParts::prompt_bytes(SequenceId sequence, const Needs& needs) const {
  std::size_t bytes = 0;
  if (const auto found = queries.find(sequence); found != queries.end() && found->second.kept > 0) {
    const std::uint32_t kept = found->second.kept;
    bytes += found->second.values.bytes() / kept * std::min(needs.last_queries, kept);
  }
  if (const auto found = sums.find(sequence); found != sums.end() && needs.column_sums)
    bytes += found->second.values.bytes();
  return bytes;
}

std::unique_ptr<Mechanism>& Ops::mechanism(std::type_index type) {
  return parts_.mechanisms[type];
}

const ModelShape& Ops::shape() const {
  return parts_.forward.shape();
}

void Ops::move_to_host(SequenceState& sequence, Range tokens, std::uint32_t layer, Companion* along) {
  TANDEM_CHECK(tokens.begin % kPageTokens == 0 && tokens.end % kPageTokens == 0 && tokens.begin < tokens.end &&
                   tokens.end <= sequence.tokens,
               "move_to_host of tokens [{}, {}) of {}", tokens.begin, tokens.end, sequence.tokens);
  const Range blocks{tokens.begin / kPageTokens, tokens.end / kPageTokens};
  const KvShape& shape = parts_.kv.shape();
  Op op("offload kv", Cause::offload, layer);
  const std::vector<SlotCopy> copies = parts_.kv.add_host_blocks(sequence.id, layer, blocks, op.after);
  TANDEM_CHECK(copies.size() == blocks.end - blocks.begin, "pages of tokens [{}, {}) are in host memory already",
               tokens.begin, tokens.end);
  parts_.kv.append_filled(sequence.id, layer, blocks, Tier::device, op.after);
  parts_.kv.append_access(sequence.id, layer, blocks, Tier::device, Range{0, shape.kv_heads}, false, op.access);
  parts_.kv.append_access(sequence.id, layer, blocks, Tier::host, Range{0, shape.kv_heads}, true, op.access);
  if (along != nullptr) along->declare_move(layer, tokens, op);
  set_copies(op, [this, copies, tokens, layer, along](Copier& copier) {
    copier.between(parts_.kv.host_buffer(), parts_.kv.device_buffer()).add(copies, parts_.kv.shape().slot_bytes());
    if (along != nullptr) along->move(copier, layer, tokens);
  });
  const Event done = parts_.ask(LaneKind::d2h, std::move(op));
  parts_.kv.set_filled(sequence.id, layer, blocks, Tier::host, done);
  // Attention that still reads these slots needs no event: it runs on the compute lane, as all that writes slots.
  parts_.kv.drop(sequence.id, layer, blocks, Tier::device, {done});
  if (along != nullptr) along->moved_by(layer, tokens, done);
}

void Ops::move_to_host(SequenceState& sequence, Range tokens) {
  for (std::uint32_t layer = 0; layer < parts_.kv.shape().layers; ++layer)
    move_to_host(sequence, tokens, layer, nullptr);
}

void Ops::copy_to_host(std::uint32_t layer, std::span<const CopyRequest> requests) {
  struct Part {
    std::uint32_t from = 0, to = 0;  // slots
    Range tokens;                    // inside the page
  };
  const KvShape& shape = parts_.kv.shape();
  const Range heads{0, shape.kv_heads};
  Op op("offload kv", Cause::offload, layer);
  std::vector<Part> parts;
  for (const CopyRequest& request : requests) {
    const SequenceId id = request.sequence->id;
    const Range tokens = request.tokens;
    TANDEM_CHECK(tokens.begin < tokens.end && tokens.end <= request.sequence->tokens,
                 "copy_to_host of tokens [{}, {}) of {}", tokens.begin, tokens.end, request.sequence->tokens);
    const Range blocks{tokens.begin / kPageTokens, blocks_for(tokens.end)};
    parts_.kv.add_host_blocks(id, layer, blocks, op.after);
    parts_.kv.append_filled(id, layer, blocks, Tier::device, op.after);
    parts_.kv.append_access(id, layer, blocks, Tier::device, heads, false, op.access);
    parts_.kv.append_access(id, layer, blocks, Tier::host, heads, true, op.access);
    for (std::uint32_t block = blocks.begin; block < blocks.end; ++block) {
      const std::uint32_t first = block * kPageTokens;
      const Part part{parts_.kv.slot(id, layer, block, Tier::device),
                      parts_.kv.slot(id, layer, block, Tier::host),
                      {std::max(tokens.begin, first) - first, std::min(tokens.end, first + kPageTokens) - first}};
      TANDEM_CHECK(part.from != KvStore::kNoSlot, "block {} of layer {} is not on the device", block, layer);
      parts.push_back(part);
    }
  }
  set_copies(op, [this, parts](Copier& copier) {
    const std::size_t bytes = parts_.kv.shape().vector_bytes();
    Copier::Between pages = copier.between(parts_.kv.host_buffer(), parts_.kv.device_buffer());
    for (const Part& part : parts) {
      const std::size_t at = part.tokens.begin * bytes, count = (part.tokens.end - part.tokens.begin) * bytes;
      for (std::uint32_t head = 0; head < parts_.kv.shape().kv_heads; ++head) {
        pages.add(parts_.kv.k_offset(part.to, head) + at, parts_.kv.k_offset(part.from, head) + at, count);
        pages.add(parts_.kv.v_offset(part.to, head) + at, parts_.kv.v_offset(part.from, head) + at, count);
      }
    }
  });
  const Event done = parts_.ask(LaneKind::d2h, std::move(op));
  for (const CopyRequest& request : requests) {
    const Range blocks{request.tokens.begin / kPageTokens, blocks_for(request.tokens.end)};
    parts_.kv.set_filled(request.sequence->id, layer, blocks, Tier::host, done);
  }
}

void Ops::drop(SequenceState& sequence, Range tokens) {
  const Range blocks{blocks_for(tokens.begin), tokens.end / kPageTokens};
  if (blocks.begin >= blocks.end) return;
  std::vector<Event> after = parts_.last_asked;  // copies may still read the pages
  wait_for(after, parts_.last_reader);
  for (std::uint32_t layer = 0; layer < parts_.kv.shape().layers; ++layer)
    parts_.kv.drop(sequence.id, layer, blocks, Tier::device, after);
}

std::vector<Blocks> Ops::score_topk(const LayerContext& context, std::span<const ScoreRequest> requests) {
  return parts_.attention.score_topk(context, requests);
}

QueryRef Ops::predict_query(const LayerContext& context, std::uint32_t layer, std::uint32_t norm_of) {
  return parts_.attention.predict_query(context, layer, norm_of);
}

QueryRef Ops::layer_query(const LayerContext& context) {
  return parts_.attention.layer_query(context);
}

}  // namespace tandem
