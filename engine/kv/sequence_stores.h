// What methods keep about sequences beside their KV.
#pragma once

#include "engine/kv/digest_index.h"
#include "engine/kv/per_sequence.h"
#include "engine/kv/staging.h"

namespace tandem {

struct SequenceStores {
  PerSequence<DigestIndex> digests;
  PerSequence<Staging> stagings;

  void destroy_of(SequenceId sequence) {
    digests.destroy_of(sequence);
    stagings.destroy_of(sequence);
  }
  std::size_t bytes_of(SequenceId sequence, Tier tier) const {
    return digests.bytes_of(sequence, tier) + stagings.bytes_of(sequence, tier);
  }
};

}  // namespace tandem
