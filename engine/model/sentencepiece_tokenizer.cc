#include "engine/model/sentencepiece_tokenizer.h"

#include <algorithm>
#include <mutex>
#include <sentencepiece_processor.h>

#include "engine/common/cgroup.h"
#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "engine/model/sentencepiece_model.h"
#include "engine/model/text_borders.h"
#include "engine/model/utf8.h"

namespace tandem {
namespace {

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(SentencePieceSpec spec, std::uint32_t rows)
      : prefix_(spec.prefix),
        spaces_are_marked_(spec.normalize != nullptr),
        added_(std::move(spec.added)),
        finder_(added_.sought(), spec.normalize, rows, spec.file),
        bos_(spec.bos),
        add_bos_(spec.add_bos),
        hash_(std::move(spec.hash)) {
    if (!processor_.LoadFromSerializedProto(spec.model).ok() || processor_.GetPieceSize() <= 0)
      refuse_sentencepiece(spec.file);
    vocab_ = added_.vocab_size(static_cast<std::size_t>(processor_.GetPieceSize()), rows);
    if (add_bos_) check_bos(bos_, rows, spec.file);
  }

  std::vector<std::int32_t> encode(std::string_view text, bool add_bos, Specials specials) const override {
    std::vector<std::int32_t> out;
    if (add_bos && add_bos_) out.push_back(bos_);
    encode_parts(text, specials == Specials::parsed, kPart, [&out](std::span<const std::int32_t> part) {
      out.insert(out.end(), part.begin(), part.end());
      return true;
    });
    return out;
  }

  void encode_parts(std::string_view text, std::size_t part_bytes,
                    const std::function<bool(std::span<const std::int32_t>)>& take) const override {
    encode_parts(text, /*with_special=*/false, part_bytes, take);
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
      TANDEM_CHECK(t >= 0, "token {}", t);
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
    TANDEM_CHECK(token >= 0, "token {}", token);
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
      const bool space = piece.compare(at, 3, kSpace) == 0;
      text += space ? ' ' : piece[at];
      at += space ? 3 : 1;
    }
    return text;
  }

  std::int32_t special(std::string_view text) const override { return added_.id_of(text); }
  std::string dropped_bytes() const override { return {}; }  // an unknown character is the unknown token
  std::uint32_t vocab_size() const override { return vocab_; }
  std::int32_t bos() const override { return bos_; }
  std::string hash() const override { return hash_; }

 private:
  static constexpr const char* kSpace = "\xE2\x96\x81";              // U+2581, which stands for a space in pieces
  static constexpr std::size_t kPart = std::size_t{1} << 20;         // bytes that are encoded at a time, where possible
  static constexpr std::size_t kLongestPart = std::size_t{4} << 20;  // bytes; the library cannot be interrupted
  static constexpr std::size_t kMemoryOfByte = 256;                  // bytes that the library takes meanwhile

  void encode_parts(std::string_view text, bool with_special, std::size_t part_bytes,
                    const std::function<bool(std::span<const std::int32_t>)>& take) const {
    const std::size_t least = std::max<std::size_t>(part_bytes, 1);
    const bool cuts = text.size() > part_bytes && can_be_cut(processor_.serialized_model_proto());
    std::vector<std::int32_t> part;
    std::size_t bytes = 0;  // of text in `part`
    const auto give = [&](std::size_t more) {
      bytes += more;
      if (bytes < least) return true;
      bytes = 0;
      const bool go_on = take(part);
      part.clear();
      return go_on;
    };
    const std::string sound = repair_utf8(text);
    const bool whole = finder_.cut(
        sound, with_special,
        [&](std::string_view stretch, bool at_start) {
          for (std::size_t begin = 0; begin < stretch.size();) {
            const std::size_t end =
                !cuts || stretch.size() - begin <= least ? stretch.size() : text_border(stretch, begin + least);
            encode_text(begin == 0 ? processor_for(stretch, at_start) : without_prefix(),
                        stretch.substr(begin, end - begin), part);
            if (!give(end - begin)) return false;
            begin = end;
          }
          return true;
        },
        [&part](const AddedToken& token) { part.push_back(token.id); });
    if (whole && !part.empty()) take(part);
  }

  static char byte_of(const std::string& piece) {  // "<0x0A>"
    return static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
  }

  static void encode_text(const sentencepiece::SentencePieceProcessor& processor, std::string_view text,
                          std::vector<std::int32_t>& out) {
    if (text.empty()) return;
    stop_if_interrupted();
    if (text.size() > kLongestPart) {
      throw_input_error(
          "The text has {} bytes without a place where this tokenizer may cut it, and takes at most {} at a time.",
          text.size(), kLongestPart);
    }
    const std::size_t needed = text.size() * kMemoryOfByte;
    if (const std::size_t room = text.size() < kPart ? needed : available_memory(); needed > room)
      throw_input_error("To encode {} bytes of text takes {} bytes of memory; {} are free.", text.size(), needed, room);
    std::vector<int> ids;
    const auto status = processor.Encode(std::string(text), &ids);
    if (!status.ok()) throw_input_error("The text cannot be tokenized: {}.", status.ToString());
    out.insert(out.end(), ids.begin(), ids.end());
  }

  /// Whether the model gives the token a text: false for special ones, and for those that were added to it.
  bool is_piece(std::int32_t token) const {
    const auto added = added_.tokens().find(token);
    if (added != added_.tokens().end() && added_.is_special(added->second)) return false;
    return token < processor_.GetPieceSize() && !processor_.IsControl(token);
  }

  std::string added_text(std::int32_t token) const {
    const auto added = added_.tokens().find(token);
    return added == added_.tokens().end() || added_.is_special(added->second) ? std::string() : added->second.text;
  }

  const sentencepiece::SentencePieceProcessor& processor_for(std::string_view stretch, bool at_start) const {
    const bool space = stretch.starts_with(' ') || stretch.starts_with(kSpace);
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
  AddedVocabulary added_;
  TokenFinder finder_;
  std::uint32_t vocab_ = 0;
  std::int32_t bos_;
  bool add_bos_;
  std::string hash_;
};

}  // namespace

void refuse_sentencepiece(const std::string& file) {
  throw_input_error("{} is not a SentencePiece model (other kinds are not supported yet), or it is damaged.", file);
}

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(SentencePieceSpec spec, std::uint32_t rows) {
  return std::make_unique<SentencePieceTokenizer>(std::move(spec), rows);
}

}  // namespace tandem
