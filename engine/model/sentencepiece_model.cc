#include "engine/model/sentencepiece_model.h"

#include <bit>

#include "engine/model/protobuf_message.h"

namespace tandem {
namespace {

constexpr std::uint64_t kPieces = 1, kTrainer = 2, kNormalizer = 3;              // of ModelProto
constexpr std::uint64_t kText = 1, kScore = 2, kType = 3;                        // of SentencePiece
constexpr std::uint64_t kModelType = 3, kByteFallback = 35, kBpe = 2;            // of TrainerSpec
constexpr std::uint64_t kDummyPrefix = 3, kRemoveSpaces = 4, kEscapeSpaces = 5;  // of NormalizerSpec

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

template <class Call>
void each_field(std::string_view bytes, const Call& call) {
  for (ProtobufMessage message(bytes); !message.at_end();) {
    const auto field = message.next();
    if (!field) return;
    call(*field);
  }
}

SentencePieceModel::Piece read_piece(std::string_view bytes) {
  SentencePieceModel::Piece piece;
  each_field(bytes, [&](const ProtobufMessage::Field& field) {
    if (field.number == kText && field.bytes) piece.text = *field.bytes;
    if (field.number == kScore) piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    if (field.number == kType) piece.type = field.value;
  });
  return piece;
}

}  // namespace

SentencePieceModel read_sentencepiece_model(std::string_view bytes) {
  constexpr std::uint64_t kUnkId = 40, kBosId = 41, kEosId = 42, kUnk = 45, kBos = 46, kEos = 47;
  SentencePieceModel model;
  struct Name {
    std::uint64_t id_field, text_field;
    std::string* text;
    bool missing = false;
  } names[] = {{kUnkId, kUnk, &model.unk}, {kBosId, kBos, &model.bos}, {kEosId, kEos, &model.eos}};
  const auto trainer = [&](const ProtobufMessage::Field& field) {
    if (field.number == kModelType) model.byte_pairs = field.value == kBpe;
    if (field.number == kByteFallback) model.byte_fallback = field.value != 0;
    for (Name& name : names) {
      if (field.number == name.id_field) name.missing = static_cast<std::int32_t>(field.value) < 0;
      if (field.number == name.text_field && field.bytes && !field.bytes->empty()) *name.text = *field.bytes;
    }
  };
  const auto normalizer = [&](const ProtobufMessage::Field& field) {
    if (field.number == kDummyPrefix) model.prefix_space = field.value != 0;
    if (field.number == kRemoveSpaces) model.removes_spaces = field.value != 0;
  };
  each_field(bytes, [&](const ProtobufMessage::Field& field) {
    if (!field.bytes) return;
    if (field.number == kPieces) model.pieces.push_back(read_piece(*field.bytes));
    if (field.number == kTrainer) each_field(*field.bytes, trainer);
    if (field.number == kNormalizer) each_field(*field.bytes, normalizer);
  });
  for (const Name& name : names) {
    if (name.missing) name.text->clear();
  }
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

}  // namespace tandem
