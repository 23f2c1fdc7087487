#include "engine/model/text_borders.h"

#include "engine/model/protobuf_message.h"

namespace tandem {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, which stands for a space in pieces

bool crosses_a_border(std::string_view piece) {
  if (piece.size() > 1 && piece.find('\n') != std::string_view::npos) return true;
  const auto begins_with_space = [&] { return piece.starts_with(kSpace) || piece.starts_with(' '); };
  while (begins_with_space()) piece.remove_prefix(piece[0] == ' ' ? 1 : kSpace.size());
  return piece.find(kSpace) != std::string_view::npos || piece.find(' ') != std::string_view::npos;
}

/// Calls `field` for every field; false for a malformed message and where `field` says so.
template <class Call>
bool all_fields(std::string_view bytes, const Call& field) {
  for (ProtobufMessage message(bytes); !message.at_end();) {
    const auto next = message.next();
    if (!next || !field(*next)) return false;
  }
  return true;
}

}  // namespace

bool can_be_cut(std::string_view model) {
  using Field = ProtobufMessage::Field;
  // Of ModelProto, SentencePiece, TrainerSpec and NormalizerSpec.
  constexpr std::uint64_t kPieces = 1, kTrainer = 2, kNormalizer = 3, kPiece = 1;
  constexpr std::uint64_t kModelType = 3, kSpaceAsSuffix = 24, kByteFallback = 35, kBpe = 2;
  constexpr std::uint64_t kMap = 2, kRemoveSpaces = 4;
  std::uint64_t type = 0, suffix = 0, bytes = 0, removes = 1;  // the format's defaults
  const bool sound = all_fields(model, [&](const Field& field) {
    if (!field.bytes) return true;
    if (field.number == kPieces) {
      return all_fields(*field.bytes, [](const Field& inner) {
        return inner.number != kPiece || (inner.bytes && !crosses_a_border(*inner.bytes));
      });
    }
    if (field.number == kTrainer) {
      return all_fields(*field.bytes, [&](const Field& inner) {
        if (inner.number == kModelType) type = inner.value;
        if (inner.number == kSpaceAsSuffix) suffix = inner.value;
        if (inner.number == kByteFallback) bytes = inner.value;
        return true;
      });
    }
    if (field.number != kNormalizer) return true;
    return all_fields(*field.bytes, [&](const Field& inner) {
      if (inner.number == kRemoveSpaces) removes = inner.value;
      return inner.number != kMap || (inner.bytes && inner.bytes->empty());
    });
  });
  return sound && type == kBpe && suffix == 0 && bytes == 1 && removes == 0;
}

std::size_t text_border(std::string_view text, std::size_t from) {
  for (std::size_t i = from; i < text.size(); ++i) {
    if (text[i] == '\n' || (text[i] == ' ' && text[i - 1] > 0x20 && text[i - 1] < 0x7F)) return i;
  }
  return text.size();
}

}  // namespace tandem
