// tokenizer.model of SentencePiece, as transformers reads it: by SentencePiece's own rules, or where the tokenizer's
// class is LlamaTokenizer by that class's.
#include <set>
#include <unordered_map>

#include "engine/common/error.h"
#include "engine/common/read_file.h"
#include "engine/model/safetensors.h"
#include "engine/model/sentencepiece_model.h"
#include "engine/model/sentencepiece_tokenizer.h"
#include "engine/model/tokenizer_settings.h"

namespace tandem {
namespace {

class TokenizerModel {
 public:
  explicit TokenizerModel(const std::filesystem::path& folder)
      : settings_(read_tokenizer_settings(folder, std::nullopt)) {
    spec_.file = (folder / "tokenizer.model").string();
    spec_.model = read_file(spec_.file);
    if (spec_.model.empty()) throw_input_error("{} is empty.", spec_.file);
    if (!character_maps_are_sound(spec_.model)) refuse_sentencepiece(spec_.file);
  }

  SentencePieceSpec read() {
    SentencePieceModel model = read_sentencepiece_model(spec_.model);
    if (!model.byte_pairs)
      throw_input_error(
          "{} is not a SentencePiece model with byte pair encoding, the kind that Llama models have, or it is damaged.",
          spec_.file);
    std::string hashed = spec_.model;
    apply_class(model);
    if (settings_.kind == TokenizerClass::llama && settings_.add_prefix_space.has_value())
      hashed += normalizer_with_prefix(model.prefix_space);
    add_tokens(model);
    spec_.bos = spec_.added.id_of(settings_.bos());
    spec_.add_bos = settings_.add_bos.value_or(!settings_.any) && spec_.bos >= 0;
    hashed += unlike_the_model(model);
    spec_.hash = hash_digits({spec_.add_bos ? "\1" : "\0", 1}, text_hash(hashed));
    return std::move(spec_);
  }

 private:
  /// The model as the tokenizer's class reads it: for LlamaTokenizer one of its own.
  void apply_class(SentencePieceModel& model) {
    if (settings_.kind == TokenizerClass::backend) {  // as SentencePiece itself
      if (!settings_.legacy.value_or(true))
        spec_.prefix = {.first_only = true, .not_before_space = !model.removes_spaces};
      for (const auto& [field, name] :
           {std::pair{"bos_token", model.bos}, std::pair{"eos_token", model.eos}, std::pair{"unk_token", model.unk}}) {
        if (!name.empty()) settings_.name_by_default(field, name);
      }
      return;
    }
    if (settings_.kind != TokenizerClass::llama)
      throw_input_error(
          "{} is a SentencePiece model, which Qwen2Tokenizer and GPT2Tokenizer do not read: write \"tokenizer_class\": "
          "\"LlamaTokenizer\" into {}, which says otherwise or leaves it to the model_type in config.json.",
          spec_.file, settings_.file);
    spec_.model = as_llama_reads_it(model);
    spec_.prefix = {.first_only = !settings_.legacy.value_or(false), .not_before_space = true};
    settings_.name_by_class();
  }

  /// LlamaTokenizer takes the pieces by their ids, whatever their scores, and makes merges of all of them.
  std::string as_llama_reads_it(SentencePieceModel& model) const {
    model.prefix_space = settings_.add_prefix_space.value_or(true);
    SentencePieceModel read = model;
    float score = 0;
    for (SentencePieceModel::Piece& piece : read.pieces) {
      piece.score = --score;
      if (piece.type != SentencePieceModel::unknown && piece.type != SentencePieceModel::byte)
        piece.type = SentencePieceModel::normal;
    }
    return serialize_sentencepiece(read);
  }

  /// Whether the settings' extra tokens take the place of the model's pieces.
  bool own_extra() const { return settings_.extra.has_value() && !settings_.extra_from_map; }

  void add_tokens(const SentencePieceModel& model) {
    const bool backend = settings_.kind == TokenizerClass::backend;
    std::unordered_map<std::string, std::int32_t> ids;  // of placeholders that the settings name, then of pieces
    std::set<std::string> kept;
    for (std::size_t id = 0; backend && id < model.pieces.size(); ++id)
      if (!settings_.listed.contains(static_cast<std::int32_t>(id))) kept.insert(model.pieces[id].text);
    for (auto& [id, token] : settings_.listed) {
      if (!backend) break;
      if (model.prefix_space) token.normalized = false;
      if (id < static_cast<std::int32_t>(model.pieces.size()) && !kept.contains(token.text)) ids[token.text] = id;
    }
    if (!own_extra()) {
      std::vector<AddedToken>& extra = settings_.extra.emplace();
      for (const SentencePieceModel::Piece& piece : model.pieces) {
        const bool control = piece.type == SentencePieceModel::control;
        if (!control && (backend || piece.type != SentencePieceModel::user_defined)) continue;
        extra.push_back({.text = piece.text, .special = control});
      }
    }
    for (std::size_t id = 0; id < model.pieces.size(); ++id)
      ids.emplace(model.pieces[id].text, static_cast<std::int32_t>(id));
    const auto id_of = [&](const std::string& text) {
      const auto found = ids.find(text);
      return found == ids.end() ? -1 : found->second;
    };
    settings_.add_to(spec_.added, {model.pieces.size(), id_of});
  }

  /// What decides ids and is not in the model: for the hash.
  std::string unlike_the_model(const SentencePieceModel& model) const {
    std::string unlike;
    if (model.prefix_space && (spec_.prefix.first_only || spec_.prefix.not_before_space))
      unlike += fmt::format("prefix:{:d}{:d};", spec_.prefix.first_only, spec_.prefix.not_before_space);
    for (const auto& [id, token] : spec_.added.tokens()) {
      AddedToken plain{.text = token.text, .id = id};
      const std::uint64_t type = static_cast<std::size_t>(id) < model.pieces.size()
                                     ? model.pieces[static_cast<std::size_t>(id)].type
                                     : SentencePieceModel::normal;
      plain.special = type != SentencePieceModel::user_defined;
      const bool named_in_model = type == SentencePieceModel::control || type == SentencePieceModel::unknown ||
                                  type == SentencePieceModel::user_defined;
      if (token == plain && named_in_model) continue;
      unlike += token == plain ? fmt::format("{}:{};", id, token.text) : hash_text(token);
    }
    return unlike;
  }

  TokenizerSettings settings_;
  SentencePieceSpec spec_;
};

}  // namespace

SentencePieceSpec read_tokenizer_model(const std::filesystem::path& folder) {
  return TokenizerModel(folder).read();
}

}  // namespace tandem
