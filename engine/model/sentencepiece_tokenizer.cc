#include "engine/model/sentencepiece_tokenizer.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <sentencepiece_processor.h>

#include "engine/common/error.h"
#include "engine/model/character_map.h"
#include "engine/model/json_file.h"
#include "engine/model/safetensors.h"
#include "engine/model/utf8.h"

namespace tandem {
namespace {

/// What tokenizer_config.json may change about tokenizer.model.
struct Settings {
  bool add_bos = true;
  std::optional<bool> add_prefix_space;  // unset: as the model says
};

Settings read_settings(const std::filesystem::path& folder) {
  Settings settings;
  const std::filesystem::path file = folder / "tokenizer_config.json";
  if (!path_exists(file)) return settings;
  const nlohmann::json json = read_json_object(file);
  const auto flag = [&](const char* name) -> std::optional<bool> {
    if (!json.contains(name) || json[name].is_null()) return std::nullopt;
    if (!json[name].is_boolean()) throw_input_error("{}: field '{}' must be true, false or null.", file.string(), name);
    return json[name].get<bool>();
  };
  settings.add_bos = flag("add_bos_token").value_or(true);
  settings.add_prefix_space = flag("add_prefix_space");
  return settings;
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::filesystem::path& file, const Settings& settings) : add_bos_(settings.add_bos) {
    std::string bytes = read_small_file(file, std::size_t{64} << 20);
    if (bytes.empty()) throw_input_error("{} is empty.", file.string());
    if (settings.add_prefix_space.has_value()) {
      // Serialized messages merge when they are joined: this is normalizer_spec (field 3) {add_dummy_prefix (field 3)}.
      bytes.append({0x1A, 0x02, 0x18, *settings.add_prefix_space ? char{1} : char{0}});
    }
    if (!character_maps_are_sound(bytes) || !processor_.LoadFromSerializedProto(bytes).ok() ||
        processor_.GetPieceSize() <= 0) {
      throw_input_error("{} is not a SentencePiece model (other kinds are not supported yet), or it is damaged.",
                        file.string());
    }
    const std::byte bos_rule{add_bos_};
    hash_ = fmt::format("{:016x}", content_hash({&bos_rule, 1}, content_hash(std::as_bytes(std::span(bytes)))));
  }

  std::vector<std::int32_t> encode(std::string_view text, bool add_bos, Specials specials) const override {
    std::vector<std::int32_t> out;
    if (add_bos && add_bos_ && bos() >= 0) out.push_back(bos());
    std::size_t done = 0;
    // Each stretch between special tokens is a text of its own, with its own leading space, as Meta's code has it.
    for (std::size_t at = 0; specials == Specials::parsed && at < text.size();) {
      const std::int32_t control = control_at(text.substr(at));
      if (control < 0) {
        ++at;
        continue;
      }
      encode_text(text.substr(done, at - done), out);
      out.push_back(control);
      done = at += processor_.IdToPiece(control).size();
    }
    encode_text(text.substr(done), out);
    return out;
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::vector<int> ids;
    for (const std::int32_t t : tokens) {
      TANDEM_CHECK(t >= 0 && static_cast<std::uint32_t>(t) < vocab_size(), "token {} of a vocabulary of {}", t,
                   vocab_size());
      if (!processor_.IsControl(t)) ids.push_back(t);
    }
    std::string text;
    const auto status = processor_.Decode(ids, &text);
    TANDEM_CHECK(status.ok(), "decoding failed: {}", status.ToString());
    return text;
  }

  std::string bytes_of(std::int32_t token, bool first) const override {
    TANDEM_CHECK(token >= 0 && static_cast<std::uint32_t>(token) < vocab_size(), "token {} of a vocabulary of {}",
                 token, vocab_size());
    if (processor_.IsControl(token)) return {};
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
    const int id = processor_.PieceToId(std::string(text));
    return id >= 0 && processor_.IsControl(id) && processor_.IdToPiece(id) == text ? id : -1;
  }

  std::uint32_t vocab_size() const override { return static_cast<std::uint32_t>(processor_.GetPieceSize()); }
  std::int32_t bos() const override { return processor_.bos_id(); }
  std::string hash() const override { return hash_; }

 private:
  static constexpr const char* kSpace = "\xE2\x96\x81";  // U+2581

  static char byte_of(const std::string& piece) {  // "<0x0A>"
    return static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
  }

  void encode_text(std::string_view text, std::vector<std::int32_t>& out) const {
    if (text.empty()) return;
    std::vector<int> ids;
    const auto status = processor_.Encode(repair_utf8(text), &ids);
    if (!status.ok()) throw_input_error("The text cannot be tokenized: {}.", status.ToString());
    out.insert(out.end(), ids.begin(), ids.end());
  }

  /// The control token that `text` begins with; -1 if with none. Control pieces are few and come first.
  std::int32_t control_at(std::string_view text) const {
    if (text[0] != '<') return -1;
    for (const std::int32_t id : {processor_.bos_id(), processor_.eos_id()}) {
      if (id >= 0 && text.starts_with(processor_.IdToPiece(id))) return id;
    }
    return -1;
  }

  sentencepiece::SentencePieceProcessor processor_;
  bool add_bos_;
  std::string hash_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& folder) {
  return std::make_unique<SentencePieceTokenizer>(folder / "tokenizer.model", read_settings(folder));
}

}  // namespace tandem
