#include "engine/model/bpe_tokenizer.h"

#include <array>
#include <unordered_map>

#include "engine/common/error.h"
#include "engine/common/utf8_character.h"
#include "engine/model/safetensors.h"
#include "engine/model/utf8.h"
#include "engine/model/word_splitter.h"

namespace tandem {
namespace {

class BpeTokenizer : public AddedTokenizer {
 public:
  BpeTokenizer(BpeSpec spec, std::uint32_t rows)
      : AddedTokenizer(static_cast<const TokenizerSpec&>(spec), rows),
        pairs_(std::move(spec.tokens), spec.merges, spec.whole_words, spec.drop_unknown, spec.file),
        splitter_(spec.words, spec.file) {
    set_size(pairs_.tokens().size());
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string bytes;
    for (const std::int32_t t : tokens) bytes += bytes_of(t, false);
    return repair_utf8(bytes);
  }

  std::string bytes_of(std::int32_t token, bool) const override {
    if (added(token) != nullptr) return added_text(token);
    const auto id = static_cast<std::size_t>(token);
    return id < pairs_.tokens().size() ? pairs_.tokens()[id] : std::string();
  }

  std::string dropped_bytes() const override {
    std::string dropped;
    for (int byte = 0; byte < 0xF5; ++byte) {
      if (byte == 0xC0 || byte == 0xC1) continue;  // no text has these, nor those from 0xF5 on
      if (const char c = static_cast<char>(byte); pairs_.find({&c, 1}) < 0) dropped.push_back(c);
    }
    return dropped;
  }

 private:
  /// Its parts are words.
  bool encode_stretch(std::string_view stretch, bool, std::size_t, std::vector<std::int32_t>& out,
                      const Done& done) const override {
    return splitter_.split(stretch, [&](std::string_view word) {
      pairs_.encode(word, out);
      return done(word.size());
    });
  }

  BytePairs pairs_;
  WordSplitter splitter_;
};

/// GPT-2's printable characters: bytes that print stand for themselves, the others for U+0100 and up, in order.
std::array<int, 324> byte_of_character() {
  std::array<int, 324> bytes{};
  bytes.fill(-1);
  int next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    bytes[static_cast<std::size_t>(prints ? b : next++)] = b;
  }
  return bytes;
}

}  // namespace

bool bytes_from_printable(std::string_view text, std::string& bytes) {
  static const std::array<int, 324> table = byte_of_character();
  bytes.clear();
  while (!text.empty()) {
    const Utf8Character next = first_character(text);
    if (next.bytes == 0 || next.code >= table.size() || table[next.code] < 0) return false;
    bytes += static_cast<char>(table[next.code]);
    text.remove_prefix(next.bytes);
  }
  return true;
}

void set_vocabulary(BpeSpec& spec, const Vocabulary& vocabulary, const Merges& merges) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (const auto& [text, id] : vocabulary) {
    if (id < 0 || id >= kMostTokens)
      throw_input_error("{}: token '{}' has the id {}, outside 0 to {}.", spec.file, text, id, kMostTokens - 1);
    if (spec.tokens.size() <= static_cast<std::size_t>(id)) spec.tokens.resize(static_cast<std::size_t>(id) + 1);
    std::string& bytes = spec.tokens[static_cast<std::size_t>(id)];
    if (!bytes.empty()) throw_input_error("{}: the id {} is given to two tokens, '{}' being one.", spec.file, id, text);
    // What is no byte-level text can only be an added token.
    if (!bytes_from_printable(text, bytes)) bytes.clear();
    ids.emplace(text, id);
  }
  spec.merges.reserve(merges.size());
  for (const auto& [left, right] : merges) {
    const auto a = ids.find(left), b = ids.find(right), result = ids.find(left + right);
    if (a == ids.end() || b == ids.end() || result == ids.end())
      throw_input_error("{}: the merge '{} {}' names a token that the vocabulary does not have.", spec.file, left,
                        right);
    spec.merges.push_back({a->second, b->second, result->second});
  }
}

void apply_class(BpeSpec& spec, TokenizerSettings& settings) {
  if (settings.kind == TokenizerClass::qwen2) {
    spec.words = {kQwen2Words};
  } else if (settings.kind == TokenizerClass::gpt2) {
    spec.words = {kGpt2Words};
  } else {
    throw_input_error(
        "{}: with vocab.json and merges.txt, field 'tokenizer_class' must be Qwen2Tokenizer or GPT2Tokenizer, or be "
        "missing where the model_type in config.json is qwen2 or qwen3.",
        settings.file);
  }
  settings.name_by_class();
  if (settings.kind == TokenizerClass::qwen2) spec.normalize = compose_utf8;
  spec.whole_words = false;
  spec.drop_unknown = true;
  if (settings.add_prefix_space.value_or(false))
    throw_input_error("{}: field 'add_prefix_space' is true, but false is needed.", settings.file);
}

KnownVocabulary known_vocabulary(const Vocabulary& vocabulary) {
  std::unordered_map<std::string_view, std::int32_t> ids(vocabulary.begin(), vocabulary.end());
  return {vocabulary.size(), [ids = std::move(ids)](const std::string& text) {
            const auto found = ids.find(text);
            return found == ids.end() ? -1 : found->second;
          }};
}

void add_to_hash(BpeSpec& spec, std::span<const AddedToken> tokens) {
  if (tokens.empty()) return;
  std::string all = spec.hash;
  for (const AddedToken& token : tokens) all += hash_text(token);
  spec.hash = hash_digits(all);
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeSpec spec, std::uint32_t rows) {
  return std::make_unique<BpeTokenizer>(std::move(spec), rows);
}

}  // namespace tandem
