#include "engine/model/sentencepiece_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

namespace tandem {
namespace {

constexpr std::uint64_t kPieces = 1, kTrainer = 2, kNormalizer = 3, kDenormalizer = 5;      // of ModelProto
constexpr std::uint64_t kText = 1, kScore = 2, kType = 3;                                   // of SentencePiece
constexpr std::uint64_t kModelType = 3, kSpaceAsSuffix = 24, kByteFallback = 35, kBpe = 2;  // of TrainerSpec
constexpr std::uint64_t kMap = 2, kDummyPrefix = 3, kRemoveSpaces = 4, kEscapeSpaces = 5;   // of NormalizerSpec

struct Field {
  std::uint64_t number = 0;
  std::uint64_t value = 0;                // of whole numbers; the bits of a 32-bit float; 0 otherwise
  std::optional<std::string_view> bytes;  // of length-delimited fields
};

std::optional<std::uint64_t> take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 70 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    if (shift < 64) value |= std::uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

/// Nothing for a malformed message. Groups, which the format never used, count as malformed.
std::optional<Field> take_field(std::string_view& bytes) {
  const auto tag = take_varint(bytes);
  if (!tag) return std::nullopt;
  const auto wire = *tag & 7;
  const auto number = wire == 0 || wire == 2 ? take_varint(bytes) : std::nullopt;
  if (wire == 0) return number ? std::optional<Field>({*tag >> 3, *number, {}}) : std::nullopt;
  const std::optional<std::uint64_t> length = wire == 1 ? 8 : wire == 5 ? 4 : number;
  if (!length || *length > bytes.size()) return std::nullopt;
  Field field{*tag >> 3, 0, {}};
  if (wire == 2) field.bytes = bytes.substr(0, *length);
  for (std::size_t i = 0; wire == 5 && i < 4; ++i)
    field.value |= std::uint64_t{static_cast<std::uint8_t>(bytes[i])} << 8 * i;
  bytes.remove_prefix(*length);
  return field;
}

/// Calls `call` for every field while it returns true; false where it did not, and for a malformed message.
template <class Call>
bool each_field(std::string_view bytes, const Call& call) {
  while (!bytes.empty()) {
    const auto field = take_field(bytes);
    if (!field || !call(*field)) return false;
  }
  return true;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string field_of(std::uint64_t number, std::uint64_t value) {
  return varint(number << 3) + varint(value);
}

std::string field_of(std::uint64_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

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

SentencePieceModel::Piece read_piece(std::string_view bytes) {
  SentencePieceModel::Piece piece;
  each_field(bytes, [&](const Field& field) {
    if (field.number == kText && field.bytes) piece.text = *field.bytes;
    if (field.number == kScore) piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    if (field.number == kType) piece.type = field.value;
    return true;
  });
  return piece;
}

bool crosses_a_border(std::string_view piece) {
  if (piece.size() > 1 && piece.find('\n') != std::string_view::npos) return true;
  const auto begins_with_space = [&] { return piece.starts_with(kSpaceMark) || piece.starts_with(' '); };
  while (begins_with_space()) piece.remove_prefix(piece[0] == ' ' ? 1 : 3);
  return piece.find(kSpaceMark) != std::string_view::npos || piece.find(' ') != std::string_view::npos;
}

}  // namespace

bool character_maps_are_sound(std::string_view model) {
  return each_field(model, [](const Field& part) {
    if (!part.bytes || (part.number != kNormalizer && part.number != kDenormalizer)) return true;
    return each_field(
        *part.bytes, [](const Field& field) { return field.number != kMap || !field.bytes || is_sound(*field.bytes); });
  });
}

SentencePieceModel read_sentencepiece_model(std::string_view bytes) {
  constexpr std::uint64_t kUnkId = 40, kBosId = 41, kEosId = 42, kUnk = 45, kBos = 46, kEos = 47;
  SentencePieceModel model;
  struct Name {
    std::uint64_t id_field, text_field;
    std::string* text;
    bool missing = false;
  } names[] = {{kUnkId, kUnk, &model.unk}, {kBosId, kBos, &model.bos}, {kEosId, kEos, &model.eos}};
  const auto trainer = [&](const Field& field) {
    if (field.number == kModelType) model.byte_pairs = field.value == kBpe;
    if (field.number == kSpaceAsSuffix) model.space_suffix = field.value != 0;
    if (field.number == kByteFallback) model.byte_fallback = field.value != 0;
    for (Name& name : names) {
      if (field.number == name.id_field) name.missing = static_cast<std::int32_t>(field.value) < 0;
      if (field.number == name.text_field && field.bytes && !field.bytes->empty()) *name.text = *field.bytes;
    }
    return true;
  };
  const auto normalizer = [&](const Field& field) {
    if (field.number == kMap) model.maps_characters = !field.bytes || !field.bytes->empty();
    if (field.number == kDummyPrefix) model.prefix_space = field.value != 0;
    if (field.number == kRemoveSpaces) model.removes_spaces = field.value != 0;
    return true;
  };
  each_field(bytes, [&](const Field& field) {
    if (!field.bytes) return true;
    if (field.number == kPieces) model.pieces.push_back(read_piece(*field.bytes));
    if (field.number == kTrainer) each_field(*field.bytes, trainer);
    if (field.number == kNormalizer) each_field(*field.bytes, normalizer);
    return true;
  });
  for (const Name& name : names)
    if (name.missing) name.text->clear();
  return model;
}

std::string serialize_sentencepiece(const SentencePieceModel& model) {
  std::string bytes;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    std::string message = field_of(kText, piece.text);
    message += static_cast<char>(kScore << 3 | 5);
    const auto score = std::bit_cast<std::uint32_t>(piece.score);
    for (int shift = 0; shift < 32; shift += 8) message += static_cast<char>(score >> shift & 0xFF);
    message += field_of(kType, piece.type);
    bytes += field_of(kPieces, message);
  }
  bytes += field_of(kTrainer, field_of(kModelType, kBpe) + field_of(kByteFallback, model.byte_fallback ? 1 : 0));
  bytes += field_of(kNormalizer, field_of(kDummyPrefix, model.prefix_space ? 1 : 0) + field_of(kRemoveSpaces, 0) +
                                     field_of(kEscapeSpaces, 1));
  return bytes;
}

std::string normalizer_with_prefix(bool prefix_space) {
  return field_of(kNormalizer, field_of(kDummyPrefix, prefix_space ? 1 : 0));
}

bool can_be_cut(std::string_view bytes) {
  if (!character_maps_are_sound(bytes)) return false;
  const SentencePieceModel model = read_sentencepiece_model(bytes);
  return model.byte_pairs && model.byte_fallback && !model.space_suffix && !model.removes_spaces &&
         !model.maps_characters &&
         std::ranges::none_of(model.pieces, crosses_a_border, &SentencePieceModel::Piece::text);
}

std::size_t text_border(std::string_view text, std::size_t from) {
  for (std::size_t i = from; i < text.size(); ++i)
    if (text[i] == '\n' || (text[i] == ' ' && text[i - 1] > 0x20 && text[i - 1] < 0x7F)) return i;
  return text.size();
}

}  // namespace tandem
