#include "engine/model/tokenizer.h"

#include <optional>
#include <sentencepiece_processor.h>

#include "engine/common/error.h"
#include "engine/model/character_map.h"
#include "engine/model/json_file.h"
#include "engine/model/safetensors.h"

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

  std::vector<std::int32_t> encode(std::string_view text, bool add_bos) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode(std::string(text), &ids);
    if (!status.ok()) throw_input_error("The text cannot be tokenized: {}.", status.ToString());
    std::vector<std::int32_t> out;
    out.reserve(ids.size() + 1);
    if (add_bos && add_bos_ && bos() >= 0) out.push_back(bos());
    out.insert(out.end(), ids.begin(), ids.end());
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

  std::uint32_t vocab_size() const override { return static_cast<std::uint32_t>(processor_.GetPieceSize()); }
  std::int32_t bos() const override { return processor_.bos_id(); }
  std::string hash() const override { return hash_; }

 private:
  sentencepiece::SentencePieceProcessor processor_;
  bool add_bos_;
  std::string hash_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer.model";
  if (path_exists(file)) return std::make_unique<SentencePieceTokenizer>(file, read_settings(folder));
  throw_input_error("{} has no tokenizer.model; SentencePiece is the one kind of tokenizer this version reads{}.",
                    folder.string(),
                    path_exists(folder / "tokenizer.json") ? " (tokenizer.json is there, but not supported yet)" : "");
}

}  // namespace tandem
