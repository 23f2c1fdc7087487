// Tokens in host memory whose averaged weights make them worth keeping at hand, packed for attention there (HGCA
// section 3.2.2).
#pragma once

#include "engine/mechanisms/attention_averages/attention_averages.h"
#include "engine/mechanisms/salient_tokens/token_set.h"
#include "engine/runtime/mechanism.h"

namespace tandem {

struct TokenSetRef {  // a sequence's salient tokens
  std::uint32_t id = 0;
};

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
};

}  // namespace tandem
