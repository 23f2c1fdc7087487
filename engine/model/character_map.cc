#include "engine/model/character_map.h"

#include <cstdint>
#include <cstring>

#include "engine/model/protobuf_message.h"

namespace tandem {
namespace {

/// u32 length of the trie, the trie's 32-bit units, strings that each end with a zero byte. A unit holds in bit 31
/// "this is a value", in bits 0-7 the label, in bit 8 "a value follows", in bits 10-30 the offset, shifted by 8 more
/// where bit 9 is set. A lookup goes from unit i to unit (i xor offset) xor next byte.
bool is_sound(std::string_view map) {
  if (map.empty()) return true;
  std::uint32_t trie_bytes = 0;
  if (map.size() <= sizeof trie_bytes) return false;
  std::memcpy(&trie_bytes, map.data(), sizeof trie_bytes);
  map.remove_prefix(sizeof trie_bytes);
  if (trie_bytes >= map.size() || trie_bytes % 4 != 0 || trie_bytes == 0) return false;
  const std::string_view trie = map.substr(0, trie_bytes), strings = map.substr(trie_bytes);
  if (strings.back() != '\0') return false;
  const std::size_t units = trie.size() / 4;
  const auto unit = [&](std::size_t i) {
    std::uint32_t u;
    std::memcpy(&u, trie.data() + i * 4, 4);
    return u;
  };
  for (std::size_t i = 0; i < units; ++i) {
    const std::uint32_t u = unit(i);
    if (i > 0 && (u >> 31) != 0) continue;  // a value: no label matches it, so no lookup goes on from here
    const std::size_t next = i ^ (std::size_t{u >> 10} << ((u & (1u << 9)) >> 6));
    if ((next | 0xFF) >= units) return false;  // every next byte stays inside
    if ((u >> 8 & 1) != 0 && (unit(next) & 0x7FFFFFFF) >= strings.size()) return false;
  }
  return true;
}

bool normalizer_is_sound(std::string_view bytes) {
  constexpr std::uint64_t kMap = 2;
  for (ProtobufMessage spec(bytes); !spec.at_end();) {
    const auto field = spec.next();
    if (!field) return false;
    if (field->number == kMap && field->bytes && !is_sound(*field->bytes)) return false;
  }
  return true;
}

}  // namespace

bool character_maps_are_sound(std::string_view model) {
  constexpr std::uint64_t kNormalizer = 3, kDenormalizer = 5;
  for (ProtobufMessage message(model); !message.at_end();) {
    const auto field = message.next();
    if (!field) return false;
    const bool normalizer = field->number == kNormalizer || field->number == kDenormalizer;
    if (normalizer && field->bytes && !normalizer_is_sound(*field->bytes)) return false;
  }
  return true;
}

}  // namespace tandem
