// Single tokens of a sequence that the KV heads of one layer choose on the device by their exact scores (TOVA). The
// next layer's choice takes the same room.
//   lists: [kv_head][1 + most] u32: a count, then tokens in ascending order
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/runtime/mechanism.h"

namespace tandem {

struct TokenChoice {
  static constexpr const char* kName = "token choice";
  SequenceId sequence = 0;
  std::uint32_t most = 0;  // tokens per KV head
  DeviceBuffer lists;

  std::size_t list(std::uint32_t kv_head) const { return kv_head * (1 + std::size_t{most}); }  // in u32
  std::size_t bytes(Tier tier) const { return tier == Tier::device ? lists.bytes() : 0; }
};

/// Room for the choice of single tokens of one layer.
using TokenChoiceRef = Ref<TokenChoice>;
struct ChooseRequest {
  const SequenceState* sequence = nullptr;
  TokenChoiceRef choice;
  std::uint32_t end = 0;     // tokens [0, end) are scored; all are on the device
  std::uint32_t tokens = 0;  // that a KV head gets, at most `end`
  Event ready = {};          // when these are there
};

class TokenChoices : public MechanismOf<TokenChoice> {
 public:
  using MechanismOf::MechanismOf;
  /// Room for a choice of at most `most` tokens per KV head.
  TokenChoiceRef make(SequenceState& sequence, std::uint32_t most);
  /// Other room in its place: what was chosen is gone.
  void renew(const SequenceState& sequence, TokenChoiceRef choice, std::uint32_t most);
  /// Scores single tokens against this layer's true query and takes each KV head's best, by the best of its query
  /// heads; ties go to the older token. On the device. A choice holds until the sequence's next one.
  std::vector<Tokens> choose(const LayerContext& context, std::span<const ChooseRequest> requests);

 private:
  TokenChoice room_for(SequenceId sequence, std::uint32_t most) const;
};

}  // namespace tandem
