// What methods keep about sequences beside their KV.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/device.h"
#include "engine/kv/digest_index.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/per_sequence.h"

namespace tandem {

// Room on the device for KV that is fetched from host memory for one layer's attention and then overwritten: a ring of
// parts, so that the next fetch can run while an earlier part is still being read.
//   values: [part][page]{K [16][D], V [16][D]} of KvShape::type. Where whole blocks of all heads are fetched, the pages
//   are [block][kv_head], as in a slot of the KV store; where each KV head has a selection of its own,
//   [kv_head][pages_per_head], a head's chosen pages in ascending order.
struct Staging {
  static constexpr const char* kName = "staging";
  SequenceId sequence = 0;
  KvShape shape;
  std::uint32_t pages_per_head = 0;  // of one part
  std::uint32_t next = 0;            // part that the next fetch fills
  std::vector<Event> read;           // [part] the operation that last read it
  DeviceBuffer values;

  std::uint32_t parts() const { return static_cast<std::uint32_t>(read.size()); }
  std::size_t part_bytes() const { return std::size_t{pages_per_head} * shape.kv_heads * shape.page_bytes(); }
  std::size_t part_offset(std::uint32_t part) const { return part * part_bytes(); }  // in bytes
  std::size_t block_offset(std::uint32_t part, std::uint32_t block, std::uint32_t kv_head) const {
    return part_offset(part) + (std::size_t{block} * shape.kv_heads + kv_head) * shape.page_bytes();
  }
  std::size_t chosen_offset(std::uint32_t part, std::uint32_t kv_head, std::uint32_t page) const {
    return part_offset(part) + (std::size_t{kv_head} * pages_per_head + page) * shape.page_bytes();
  }
  std::size_t bytes(Tier tier) const { return tier == Tier::device ? values.bytes() : 0; }
};

/// `tokens`: most tokens per KV head of one fetch, in whole pages.
inline Staging make_staging(Device& device, SequenceId sequence, const KvShape& shape, std::uint32_t tokens,
                            std::uint32_t parts) {
  Staging staging;
  staging.sequence = sequence;
  staging.shape = shape;
  staging.pages_per_head = blocks_for(tokens);
  staging.read.resize(parts);
  staging.values = device.allocate_device(staging.part_bytes() * parts, "staging");
  return staging;
}

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
