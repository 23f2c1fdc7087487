// What methods keep about sequences beside their KV.
#pragma once

#include "engine/kv/attention_average.h"
#include "engine/kv/cache_rank.h"
#include "engine/kv/digest_index.h"
#include "engine/kv/heavy_set.h"
#include "engine/kv/per_sequence.h"
#include "engine/kv/resident_set.h"
#include "engine/kv/skewed_index.h"
#include "engine/kv/staging.h"
#include "engine/kv/token_choice.h"
#include "engine/kv/token_set.h"

namespace tandem {

struct SequenceStores {
  PerSequence<DigestIndex> digests;
  PerSequence<AttentionAverage> averages;
  PerSequence<TokenSet> sets;
  PerSequence<Staging> stagings;
  PerSequence<ResidentSet> residents;
  PerSequence<SkewedIndex> skewed;
  PerSequence<HeavySet> heavy;
  PerSequence<TokenChoice> choices;
  PerSequence<CacheRank> ranks;

  void destroy_of(SequenceId sequence) {
    digests.destroy_of(sequence);
    averages.destroy_of(sequence);
    sets.destroy_of(sequence);
    stagings.destroy_of(sequence);
    residents.destroy_of(sequence);
    skewed.destroy_of(sequence);
    heavy.destroy_of(sequence);
    choices.destroy_of(sequence);
    ranks.destroy_of(sequence);
  }
  std::size_t bytes_of(SequenceId sequence, Tier tier) const {
    return digests.bytes_of(sequence, tier) + averages.bytes_of(sequence, tier) + sets.bytes_of(sequence, tier) +
           stagings.bytes_of(sequence, tier) + heavy.bytes_of(sequence, tier) + residents.bytes_of(sequence, tier) +
           skewed.bytes_of(sequence, tier) + choices.bytes_of(sequence, tier) + ranks.bytes_of(sequence, tier);
  }
};

}  // namespace tandem
