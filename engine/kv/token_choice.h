// Single tokens of a sequence that the KV heads of one layer chose, on the device. The next layer's choice takes the
// same room.
//   lists: [kv_head][1 + most] u32: a count, then tokens in ascending order
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "engine/kv/kv_store.h"

namespace tandem {

struct TokenChoice {
  static constexpr const char* kName = "token choice";
  SequenceId sequence = 0;
  std::uint32_t most = 0;  // tokens per KV head
  DeviceBuffer lists;

  std::size_t list(std::uint32_t kv_head) const { return kv_head * (1 + std::size_t{most}); }  // in u32
  std::size_t bytes(Tier tier) const { return tier == Tier::device ? lists.bytes() : 0; }
};

inline TokenChoice make_token_choice(Device& device, SequenceId sequence, std::uint32_t kv_heads, std::uint32_t most) {
  TokenChoice choice{sequence, most, {}};
  choice.lists =
      device.allocate_device(std::size_t{kv_heads} * (1 + std::size_t{most}) * sizeof(std::uint32_t), "chosen tokens");
  return choice;
}

}  // namespace tandem
