#include "engine/model/sentencepiece_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sentencepiece_processor.h>

#include "engine/common/error.h"
#include "engine/model/added_tokens.h"
#include "engine/model/character_map.h"
#include "engine/model/json_fields.h"
#include "engine/model/json_file.h"
#include "engine/model/safetensors.h"
#include "engine/model/text_borders.h"
#include "engine/model/utf8.h"

namespace tandem {
namespace {

/// What the files beside tokenizer.model change about it.
struct Settings {
  bool add_bos = true;
  std::optional<bool> add_prefix_space;  // unset: as the model says
  ListedTokens listed;
};

Settings read_settings(const std::filesystem::path& folder) {
  Settings settings;
  const nlohmann::json json = read_tokenizer_config(folder);
  const JsonFields fields(json, (folder / "tokenizer_config.json").string());
  settings.listed = read_listed_tokens(folder, json);
  settings.add_bos = fields.flag("add_bos_token", true);
  if (fields.has("add_prefix_space")) settings.add_prefix_space = fields.flag("add_prefix_space", false);
  return settings;
}

// Serialized messages merge when they are joined: this is normalizer_spec (field 3) {add_dummy_prefix (field 3)}.
constexpr std::string_view kPrefixSpace("\x1A\x02\x18\x01", 4), kNoPrefixSpace("\x1A\x02\x18\x00", 4);

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::filesystem::path& file, const Settings& settings, std::uint32_t rows)
      : add_bos_(settings.add_bos) {
    std::string bytes = read_small_file(file, std::size_t{64} << 20);
    if (bytes.empty()) throw_input_error("{} is empty.", file.string());
    if (settings.add_prefix_space.has_value()) {
      bytes.append(*settings.add_prefix_space ? kPrefixSpace : kNoPrefixSpace);
    }
    if (!character_maps_are_sound(bytes) || !processor_.LoadFromSerializedProto(bytes).ok() ||
        processor_.GetPieceSize() <= 0) {
      throw_input_error("{} is not a SentencePiece model (other kinds are not supported yet), or it is damaged.",
                        file.string());
    }
    bytes += read_specials(file.string(), settings.listed, rows);
    const std::byte bos_rule{add_bos_};
    hash_ = fmt::format("{:016x}", content_hash({&bos_rule, 1}, content_hash(std::as_bytes(std::span(bytes)))));
  }

  std::vector<std::int32_t> encode(std::string_view text, bool add_bos, Specials specials) const override {
    std::vector<std::int32_t> out;
    if (add_bos && add_bos_ && bos() >= 0) out.push_back(bos());
    const auto words = [&](std::string_view stretch) {
      encode_text(processor_, stretch, out);
      return true;
    };
    if (specials == Specials::as_text) {
      words(text);
    } else {
      // Each stretch between special tokens is a text of its own, with its own leading space, as Meta's code has it.
      finder_.cut(text, true, words, [&out](const AddedToken& token) { out.push_back(token.id); });
    }
    return out;
  }

  void encode_parts(std::string_view text, std::size_t part_bytes,
                    const std::function<bool(std::span<const std::int32_t>)>& take) const override {
    std::unique_ptr<sentencepiece::SentencePieceProcessor> later;  // for all parts but the first
    if (text.size() > part_bytes) {
      std::string bytes = processor_.serialized_model_proto();
      if (can_be_cut(bytes)) {
        bytes.append(kNoPrefixSpace);
        later = std::make_unique<sentencepiece::SentencePieceProcessor>();
        TANDEM_CHECK(later->LoadFromSerializedProto(bytes).ok(), "a model that was loaded cannot be loaded again");
      }
    }
    std::vector<std::int32_t> part;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t least = std::max<std::size_t>(part_bytes, 1);
      const std::size_t end =
          later == nullptr || text.size() - begin <= least ? text.size() : text_border(text, begin + least);
      part.clear();
      encode_text(begin == 0 ? processor_ : *later, text.substr(begin, end - begin), part);
      if (!take(part)) return;
      begin = end;
    }
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::vector<int> ids;
    for (const std::int32_t t : tokens) {
      TANDEM_CHECK(t >= 0, "token {}", t);
      if (t < processor_.GetPieceSize() && !processor_.IsControl(t)) ids.push_back(t);
    }
    std::string text;
    const auto status = processor_.Decode(ids, &text);
    TANDEM_CHECK(status.ok(), "decoding failed: {}", status.ToString());
    return text;
  }

  std::string bytes_of(std::int32_t token, bool first) const override {
    TANDEM_CHECK(token >= 0, "token {}", token);
    if (token >= processor_.GetPieceSize() || processor_.IsControl(token)) return {};
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

  std::int32_t special(std::string_view text) const override {
    const auto found = std::find_if(specials_.begin(), specials_.end(),
                                    [text](const AddedToken& special) { return special.text == text; });
    return found == specials_.end() ? -1 : found->id;
  }

  std::string dropped_bytes() const override { return {}; }  // an unknown character is the unknown token
  std::uint32_t vocab_size() const override { return vocab_; }
  std::int32_t bos() const override { return processor_.bos_id(); }
  std::string hash() const override { return hash_; }

 private:
  static constexpr const char* kSpace = "\xE2\x96\x81";  // U+2581

  static char byte_of(const std::string& piece) {  // "<0x0A>"
    return static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
  }

  static void encode_text(const sentencepiece::SentencePieceProcessor& processor, std::string_view text,
                          std::vector<std::int32_t>& out) {
    if (text.empty()) return;
    std::vector<int> ids;
    const auto status = processor.Encode(repair_utf8(text), &ids);
    if (!status.ok()) throw_input_error("The text cannot be tokenized: {}.", status.ToString());
    out.insert(out.end(), ids.begin(), ids.end());
  }

  /// Control pieces, and what files beside the model list, up to the embedding's `rows`. Returns what is added to the
  /// model, for the hash.
  std::string read_specials(const std::string& file, const ListedTokens& listed, std::uint32_t rows) {
    const int pieces = processor_.GetPieceSize();
    ListedTokens more{listed.file, {}, listed.says_kinds, listed.named};
    for (int id = 0; id < pieces; ++id) {
      if (processor_.IsControl(id)) specials_.push_back({processor_.IdToPiece(id), id});
    }
    for (const AddedToken& token : listed.tokens) {
      if (static_cast<std::uint32_t>(token.id) >= rows) {
        std::erase(more.named, token.text);
        continue;
      }
      if (token.id < pieces) {
        if (processor_.IdToPiece(token.id) != token.text) {
          throw_input_error("{}: the added token '{}' has the id {}, but {} has '{}' there. Make both say the same.",
                            listed.file, token.text, token.id, file, processor_.IdToPiece(token.id));
        }
        if (processor_.IsUnknown(token.id) && token.special) specials_.push_back({token.text, token.id});
        continue;  // the other kinds are the model's own affair
      }
      if (!token.special) {
        throw_input_error("{}: the added token '{}' is not special (\"special\": true), which is not supported.",
                          listed.file, token.text);
      }
      more.tokens.push_back({token.text, token.id});
    }
    const std::size_t own = specials_.size();
    const auto id_of = [this](const std::string& text) {
      const int id = processor_.PieceToId(text);  // the unknown piece's for what is none
      return processor_.IdToPiece(id) == text ? id : -1;
    };
    add_listed_tokens(more, {file, static_cast<std::size_t>(pieces), id_of}, specials_);
    vocab_ = static_cast<std::uint32_t>(pieces);
    std::string added;
    for (const AddedToken& token : std::span(specials_).subspan(own)) {
      if (token.id < pieces) continue;
      vocab_ = std::max(vocab_, static_cast<std::uint32_t>(token.id) + 1);
      added += fmt::format("{}:{};", token.id, token.text);
    }
    finder_ = TokenFinder(specials_);
    return added;
  }

  sentencepiece::SentencePieceProcessor processor_;
  bool add_bos_;
  std::uint32_t vocab_ = 0;
  std::vector<AddedToken> specials_;  // control pieces, the unknown one where files say so, and added ones
  TokenFinder finder_{{}};
  std::string hash_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& folder, std::uint32_t rows) {
  return std::make_unique<SentencePieceTokenizer>(folder / "tokenizer.model", read_settings(folder), rows);
}

}  // namespace tandem
