// Tokens in host memory whose averaged weights make them worth keeping at hand, packed for attention there (HGCA
// section 3.2.2).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/device.h"
#include "engine/kv/kv_store.h"
#include "engine/mechanisms/attention_averages/attention_averages.h"
#include "engine/runtime/mechanism.h"

namespace tandem {

// Chosen tokens of a sequence in host memory, packed per layer and KV head so that attention over them reads contiguous
// memory: the union of what the query heads of the group chose, with a mask of who chose each.
//   counts: [layer][kv_head] u32
//   masks:  [layer][kv_head][capacity] u32
//   kv:     [layer][kv_head]{K [capacity][D], V [capacity][D]} of KvShape::type
// Which tokens are in a set is known to operation bodies only; `offered` bounds it.
struct TokenSet {
  static constexpr const char* kName = "token set";
  SequenceId sequence = 0;
  KvShape shape;
  std::uint32_t capacity = 0;          // tokens per layer and KV head
  std::vector<std::uint32_t> offered;  // [layer] tokens that could have been chosen so far
  std::vector<Event> packed;           // [layer] the operation that last changed it
  HostBuffer counts, masks, kv;

  std::size_t index(std::uint32_t layer, std::uint32_t kv_head) const {
    return std::size_t{layer} * shape.kv_heads + kv_head;
  }
  std::size_t half_bytes() const { return capacity * shape.vector_bytes(); }         // K or V of a KV head
  std::size_t kv_offset(std::size_t list) const { return list * 2 * half_bytes(); }  // of K, in bytes
  /// Bytes per token that is in the set, of one layer and KV head.
  std::size_t token_bytes() const { return 2 * shape.vector_bytes() + sizeof(std::uint32_t); }
  /// All of a layer.
  void append_access(std::uint32_t layer, bool write, std::vector<Access>& out) const {
    for (const HostBuffer* buffer : {&counts, &masks, &kv})
      out.push_back(write ? buffer->writes(layer, layer + 1) : buffer->reads(layer, layer + 1));
  }
  /// The room, which is not touched before it is used, is not counted; the engine counts the tokens.
  std::size_t bytes(Tier tier) const { return tier == Tier::host ? counts.bytes() : 0; }
};

inline TokenSet make_token_set(Device& device, SequenceId sequence, const KvShape& shape, std::uint32_t capacity) {
  TokenSet set;
  set.sequence = sequence;
  set.shape = shape;
  set.capacity = capacity;
  set.offered.resize(shape.layers);
  set.packed.resize(shape.layers);
  const std::size_t lists = std::size_t{shape.layers} * shape.kv_heads, tokens = lists * capacity;
  set.counts = device.allocate_host_only(lists * sizeof(std::uint32_t), "token set counts");
  set.masks = device.allocate_host_only(tokens * sizeof(std::uint32_t), "token set masks");
  set.kv = device.allocate_host_only(2 * tokens * shape.vector_bytes(), "token set kv");
  return set;
}

using TokenSetRef = Ref<TokenSet>;  // a sequence's salient tokens

struct SalientRequest {
  TokenSetRef set;
  AverageRef average;
  Range tokens;
  double times = 1;                  // salient: an average above `times` the mean weight; 0: all are
  std::uint32_t softmax_tokens = 1;  // that the averaged softmax ran over: its mean weight is 1 / softmax_tokens
};

class SalientTokens : public MechanismOf<TokenSet> {
 public:
  using MechanismOf::MechanismOf;
  /// An empty set with room for the sequence's max_tokens.
  TokenSetRef make(SequenceState& sequence);
  /// Grows the set to max_tokens and keeps its tokens. Only between decodes.
  void extend(SequenceState& sequence, TokenSetRef set);
  /// Empties the set and gives it room for max_tokens. Only between decodes.
  void renew(SequenceState& sequence, TokenSetRef set);
  /// Adds those of request.tokens, which are on the host with their averages, that are salient for a query head of the
  /// group. Runs on the host's threads.
  void keep(SequenceState& sequence, std::uint32_t layer, const SalientRequest& request);
  /// The set's tokens of a layer, for its plan.
  Packed kv(TokenSetRef set, std::uint32_t layer) const;

 private:
  TokenSet empty_set(const SequenceState& sequence) const;
};

}  // namespace tandem
