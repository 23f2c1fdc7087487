// Fields of a serialized protocol-buffer message, of the wire types that SentencePiece's format uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem {

/// One field after the other.
class ProtobufMessage {
 public:
  explicit ProtobufMessage(std::string_view bytes) : bytes_(bytes) {}
  struct Field {
    std::uint64_t number = 0;
    std::uint64_t value = 0;                // of whole numbers; the bits of a 32-bit float; 0 otherwise
    std::optional<std::string_view> bytes;  // of length-delimited fields
  };
  bool at_end() const { return bytes_.empty(); }

  /// Nothing for a malformed message. Groups, which the format never used, count as malformed.
  std::optional<Field> next() {
    const auto tag = varint();
    if (!tag) return std::nullopt;
    Field field;
    field.number = *tag >> 3;
    const auto wire = *tag & 7;
    std::optional<std::uint64_t> length;
    if (wire == 0) {
      const auto value = varint();
      if (!value) return std::nullopt;
      field.value = *value;
      return field;
    }
    if (wire == 1) length = 8;
    if (wire == 2) length = varint();
    if (wire == 5) length = 4;
    if (!length || *length > bytes_.size()) return std::nullopt;
    if (wire == 2) field.bytes = bytes_.substr(0, *length);
    for (std::size_t i = 0; wire == 5 && i < 4; ++i)
      field.value |= std::uint64_t{static_cast<std::uint8_t>(bytes_[i])} << 8 * i;
    bytes_.remove_prefix(*length);
    return field;
  }

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<std::uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      if (shift < 64) value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }
  std::string_view bytes_;
};

}  // namespace tandem
