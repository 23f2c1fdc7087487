#include "engine/model/sentencepiece_tokenizer.h"

#include <algorithm>
#include <array>
#include <map>
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

struct AddedToken {
  std::string text, file;  // file: where it stands
  bool special = true;
};

/// What the files beside tokenizer.model change about it.
struct Settings {
  bool add_bos = true;
  std::optional<bool> add_prefix_space;      // unset: as the model says
  std::map<std::int32_t, AddedToken> added;  // by id, the model's own pieces among them
};

/// added_tokens.json, {text: id}, and what tokenizer_config.json says of the same tokens.
void read_added_tokens(const std::filesystem::path& folder, const nlohmann::json& config, Settings& settings) {
  constexpr std::int32_t kMostIds = 1 << 21;
  const auto add = [&](const std::filesystem::path& file, std::int64_t id, const nlohmann::json& text, bool special) {
    if (id < 0 || id >= kMostIds || !text.is_string() || text.get<std::string>().empty()) {
      throw_input_error("{}: an added token must have a text and an id from 0 to {}.", file.string(), kMostIds - 1);
    }
    settings.added[static_cast<std::int32_t>(id)] = {text.get<std::string>(), file.string(), special};
  };
  if (const std::filesystem::path file = folder / "added_tokens.json"; path_exists(file)) {
    const nlohmann::json listed = read_json_object(file);  // items() of a temporary would not live long enough
    for (const auto& [text, id] : listed.items())
      add(file, id.is_number_integer() ? id.get<std::int64_t>() : -1, text, /*special=*/true);
  }
  if (!config.contains("added_tokens_decoder") || config["added_tokens_decoder"].is_null()) return;
  const std::filesystem::path file = folder / "tokenizer_config.json";
  const nlohmann::json& decoder = config["added_tokens_decoder"];
  if (!decoder.is_object()) throw_input_error("{}: field 'added_tokens_decoder' must be an object.", file.string());
  for (const auto& [key, token] : decoder.items()) {
    const bool number = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    const bool whole = token.is_object() && token.contains("content");
    const bool special = whole && token.contains("special") && token["special"] == true;
    add(file, number ? std::stoll(key) : -1, whole ? token["content"] : nlohmann::json(), special);
  }
}

Settings read_settings(const std::filesystem::path& folder) {
  Settings settings;
  const std::filesystem::path file = folder / "tokenizer_config.json";
  const nlohmann::json json = path_exists(file) ? read_json_object(file) : nlohmann::json::object();
  read_added_tokens(folder, json, settings);
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
  SentencePieceTokenizer(const std::filesystem::path& file, const Settings& settings, std::uint32_t rows)
      : add_bos_(settings.add_bos) {
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
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsControl(id)) specials_.emplace_back(processor_.IdToPiece(id), id);
    }
    vocab_ = static_cast<std::uint32_t>(processor_.GetPieceSize());
    for (const auto& [id, token] : settings.added) {
      if (id < processor_.GetPieceSize() || static_cast<std::uint32_t>(id) >= rows) continue;
      if (!token.special) {
        throw_input_error("{}: the added token '{}' is not special (\"special\": true), which is not supported.",
                          token.file, token.text);
      }
      specials_.emplace_back(token.text, id);
      vocab_ = std::max(vocab_, static_cast<std::uint32_t>(id) + 1);
      bytes += fmt::format("{}:{};", id, token.text);  // for the hash
    }
    // Of two that begin alike the longer one is meant.
    std::stable_sort(specials_.begin(), specials_.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
    for (const auto& [text, id] : specials_) begins_[static_cast<unsigned char>(text.front())] = true;
    const std::byte bos_rule{add_bos_};
    hash_ = fmt::format("{:016x}", content_hash({&bos_rule, 1}, content_hash(std::as_bytes(std::span(bytes)))));
  }

  std::vector<std::int32_t> encode(std::string_view text, bool add_bos, Specials specials) const override {
    std::vector<std::int32_t> out;
    if (add_bos && add_bos_ && bos() >= 0) out.push_back(bos());
    std::size_t done = 0;
    // Each stretch between special tokens is a text of its own, with its own leading space, as Meta's code has it.
    for (std::size_t at = 0; specials == Specials::parsed && at < text.size();) {
      const auto* found = special_at(text.substr(at));
      if (found == nullptr) {
        ++at;
        continue;
      }
      encode_text(text.substr(done, at - done), out);
      out.push_back(found->second);
      done = at += found->first.size();
    }
    encode_text(text.substr(done), out);
    return out;
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
    const auto found =
        std::find_if(specials_.begin(), specials_.end(), [text](const auto& special) { return special.first == text; });
    return found == specials_.end() ? -1 : found->second;
  }

  std::uint32_t vocab_size() const override { return vocab_; }
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

  using Special = std::pair<std::string, std::int32_t>;
  /// The special token that `text` begins with; nullptr if with none.
  const Special* special_at(std::string_view text) const {
    if (!begins_[static_cast<unsigned char>(text[0])]) return nullptr;
    for (const Special& special : specials_) {
      if (text.starts_with(special.first)) return &special;
    }
    return nullptr;
  }

  sentencepiece::SentencePieceProcessor processor_;
  bool add_bos_;
  std::uint32_t vocab_ = 0;
  std::vector<Special> specials_;  // control pieces and added ones, the longest first
  std::array<bool, 256> begins_{};
  std::string hash_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& folder, std::uint32_t rows) {
  return std::make_unique<SentencePieceTokenizer>(folder / "tokenizer.model", read_settings(folder), rows);
}

}  // namespace tandem
