#include "engine/model/sentencepiece_tokenizer.h"

#include <mutex>
#include <sentencepiece_processor.h>

#include "engine/common/cgroup.h"
#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "engine/model/sentencepiece_model.h"

namespace tandem {
namespace {

class SentencePieceTokenizer : public AddedTokenizer {
 public:
  SentencePieceTokenizer(const SentencePieceSpec& spec, std::uint32_t rows)
      : AddedTokenizer(static_cast<const TokenizerSpec&>(spec), rows),
        prefix_(spec.prefix),
        spaces_are_marked_(spec.normalize != nullptr) {
    if (!processor_.LoadFromSerializedProto(spec.model).ok() || processor_.GetPieceSize() <= 0)
      refuse_sentencepiece(spec.file);
    set_size(static_cast<std::size_t>(processor_.GetPieceSize()));
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    std::vector<int> run;  // of pieces
    bool first = true;
    const auto finish_run = [&] {
      if (run.empty()) return;
      std::string part;
      const auto status = (first ? processor_ : without_prefix()).Decode(run, &part);
      TANDEM_CHECK(status.ok(), "decoding failed: {}", status.ToString());
      text += part;
      run.clear();
      first = false;
    };
    for (const std::int32_t t : tokens) {
      if (is_piece(t)) {
        run.push_back(t);
      } else if (const std::string added = added_text(t); !added.empty()) {
        finish_run();
        text += added;
        first = false;
      }
    }
    finish_run();
    return text;
  }

  std::string bytes_of(std::int32_t token, bool first) const override {
    if (!is_piece(token)) return added_text(token);
    const std::string& piece = processor_.IdToPiece(token);
    if (processor_.IsByte(token)) return std::string(1, byte_of(piece));
    if (first || processor_.IsUnknown(token)) {  // the leading space's rule and the unknown mark are the decoder's
      std::string alone;
      TANDEM_CHECK(processor_.Decode(std::vector<int>{token}, &alone).ok(), "token {} cannot be decoded", token);
      return alone;
    }
    std::string text;
    for (std::size_t at = 0; at < piece.size();) {
      const bool space = piece.compare(at, 3, kSpaceMark) == 0;
      text += space ? ' ' : piece[at];
      at += space ? 3 : 1;
    }
    return text;
  }

  std::string dropped_bytes() const override { return {}; }  // an unknown character is the unknown token

 private:
  static constexpr std::size_t kUnchecked = std::size_t{1} << 20;    // bytes for which nobody looks at the free memory
  static constexpr std::size_t kLongestPart = std::size_t{4} << 20;  // bytes; the library cannot be interrupted
  static constexpr std::size_t kMemoryOfByte = 256;                  // bytes that the library takes meanwhile

  bool encode_stretch(std::string_view stretch, bool at_start, std::size_t part_bytes, std::vector<std::int32_t>& out,
                      const Done& done) const override {
    const bool cuts = stretch.size() > part_bytes && can_be_cut(processor_.serialized_model_proto());
    for (std::size_t begin = 0; begin < stretch.size();) {
      const std::size_t end =
          !cuts || stretch.size() - begin <= part_bytes ? stretch.size() : text_border(stretch, begin + part_bytes);
      encode_text(begin == 0 ? processor_for(stretch, at_start) : without_prefix(), stretch.substr(begin, end - begin),
                  out);
      if (!done(end - begin)) return false;
      begin = end;
    }
    return true;
  }

  static char byte_of(const std::string& piece) {  // "<0x0A>"
    return static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
  }

  static void encode_text(const sentencepiece::SentencePieceProcessor& processor, std::string_view text,
                          std::vector<std::int32_t>& out) {
    if (text.empty()) return;
    stop_if_interrupted();
    if (text.size() > kLongestPart)
      throw_input_error(
          "The text has {} bytes without a place where this tokenizer may cut it, and takes at most {} at a time.",
          text.size(), kLongestPart);
    const std::size_t needed = text.size() * kMemoryOfByte;
    if (const std::size_t room = text.size() < kUnchecked ? needed : available_memory(); needed > room)
      throw_input_error("To encode {} bytes of text takes {} bytes of memory; {} are free.", text.size(), needed, room);
    std::vector<int> ids;
    const auto status = processor.Encode(std::string(text), &ids);
    if (!status.ok()) throw_input_error("The text cannot be tokenized: {}.", status.ToString());
    out.insert(out.end(), ids.begin(), ids.end());
  }

  /// Whether the model gives the token a text: false for special ones, and for those that were added to it.
  bool is_piece(std::int32_t token) const {
    const AddedToken* const found = added(token);
    if (found != nullptr && is_special(*found)) return false;
    return token < processor_.GetPieceSize() && !processor_.IsControl(token);
  }

  const sentencepiece::SentencePieceProcessor& processor_for(std::string_view stretch, bool at_start) const {
    const bool space = stretch.starts_with(' ') || stretch.starts_with(kSpaceMark);
    const bool none = spaces_are_marked_ || (prefix_.first_only && !at_start) || (prefix_.not_before_space && space);
    return none ? without_prefix() : processor_;
  }

  /// The same model, which puts no space in front; loaded when it is first needed.
  const sentencepiece::SentencePieceProcessor& without_prefix() const {
    std::call_once(bare_once_, [this] {
      const std::string bytes = processor_.serialized_model_proto() + normalizer_with_prefix(false);
      TANDEM_CHECK(bare_.LoadFromSerializedProto(bytes).ok(), "a model that was loaded cannot be loaded again");
    });
    return bare_;
  }

  sentencepiece::SentencePieceProcessor processor_;
  mutable sentencepiece::SentencePieceProcessor bare_;
  mutable std::once_flag bare_once_;
  PrefixRule prefix_;
  bool spaces_are_marked_;
};

}  // namespace

void refuse_sentencepiece(const std::string& file) {
  throw_input_error("{} is not a SentencePiece model (other kinds are not supported yet), or it is damaged.", file);
}

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const SentencePieceSpec& spec, std::uint32_t rows) {
  return std::make_unique<SentencePieceTokenizer>(spec, rows);
}

}  // namespace tandem
