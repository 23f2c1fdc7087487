#include "engine/model/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "engine/common/error.h"
#include "engine/model/utf8.h"
#include "engine/model/word_splitter.h"

namespace tandem {
namespace {

constexpr std::int32_t kMostTokens = 1 << 22;

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeSpec spec)
      : pairs_(std::move(spec.tokens), spec.merges, spec.whole_words, spec.file),
        splitter_(spec.words, spec.file),
        added_(std::move(spec.added)),
        composed_(spec.composed),
        bos_(spec.bos),
        add_bos_(spec.add_bos),
        hash_(std::move(spec.hash)) {
    vocab_ = static_cast<std::uint32_t>(pairs_.tokens().size());
    // Longest first: of two that begin at the same place the longer one is meant.
    std::sort(added_.begin(), added_.end(), [](const AddedToken& a, const AddedToken& b) {
      return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.id < b.id;
    });
    for (std::size_t i = 0; i < added_.size(); ++i) {
      begins_[static_cast<unsigned char>(added_[i].text[0])].push_back(i);
      added_by_id_.emplace(added_[i].id, i);
      vocab_ = std::max(vocab_, static_cast<std::uint32_t>(added_[i].id) + 1);
    }
  }

  std::vector<std::int32_t> encode(std::string_view text, bool add_bos, Specials specials) const override {
    std::vector<std::int32_t> out;
    if (add_bos && add_bos_ && bos_ >= 0) out.push_back(bos_);
    const std::string sound = repair_utf8(text);
    std::size_t done = 0;
    for (std::size_t at = 0; at < sound.size();) {
      const AddedToken* token = added_at(sound, at, specials);
      if (token == nullptr) {
        ++at;
        continue;
      }
      encode_text(std::string_view(sound).substr(done, at - done), out);
      out.push_back(token->id);
      done = at += token->text.size();
    }
    encode_text(std::string_view(sound).substr(done), out);
    return out;
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string bytes;
    for (const std::int32_t t : tokens) bytes += bytes_of(t, false);
    return repair_utf8(bytes);
  }

  std::string bytes_of(std::int32_t token, bool) const override {
    TANDEM_CHECK(token >= 0, "token {}", token);
    if (const auto added = added_by_id_.find(token); added != added_by_id_.end()) {
      const AddedToken& found = added_[added->second];
      return found.special ? std::string() : found.text;
    }
    const auto id = static_cast<std::size_t>(token);
    return id < pairs_.tokens().size() ? pairs_.tokens()[id] : std::string();
  }

  std::uint32_t vocab_size() const override { return vocab_; }
  std::int32_t bos() const override { return bos_; }
  std::int32_t special(std::string_view text) const override {
    for (const AddedToken& token : added_) {
      if (token.text == text) return token.id;
    }
    return -1;
  }
  std::string hash() const override { return hash_; }

 private:
  const AddedToken* added_at(std::string_view text, std::size_t at, Specials specials) const {
    for (const std::size_t i : begins_[static_cast<unsigned char>(text[at])]) {
      const AddedToken& token = added_[i];
      if (token.special && specials == Specials::as_text) continue;
      if (text.substr(at, token.text.size()) == token.text) return &token;
    }
    return nullptr;
  }

  void encode_text(std::string_view text, std::vector<std::int32_t>& out) const {
    if (text.empty()) return;
    const auto word = [&](std::string_view w) { pairs_.encode(w, out); };
    if (composed_) {
      splitter_.split(compose_utf8(text), word);
    } else {
      splitter_.split(text, word);
    }
  }

  BytePairs pairs_;
  WordSplitter splitter_;
  std::vector<AddedToken> added_;
  std::array<std::vector<std::size_t>, 256> begins_;  // added tokens by their first byte
  std::unordered_map<std::int32_t, std::size_t> added_by_id_;
  bool composed_;
  std::int32_t bos_;
  bool add_bos_;
  std::string hash_;
  std::uint32_t vocab_ = 0;
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
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    std::size_t character = first;
    if (first >= 0x80) {
      if (i + 1 >= text.size() || (first & 0xE0) != 0xC0) return false;
      character = (std::size_t{first} & 0x1F) << 6 | (static_cast<unsigned char>(text[i + 1]) & 0x3F);
      ++i;
    }
    if (character >= table.size() || table[character] < 0) return false;
    bytes += static_cast<char>(table[character]);
    ++i;
  }
  return true;
}

void set_vocabulary(BpeSpec& spec, const std::vector<std::pair<std::string, std::int32_t>>& vocabulary,
                    const std::vector<std::pair<std::string, std::string>>& merges) {
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
    if (a == ids.end() || b == ids.end() || result == ids.end()) {
      throw_input_error("{}: the merge '{} {}' names a token that the vocabulary does not have.", spec.file, left,
                        right);
    }
    spec.merges.push_back({a->second, b->second, result->second});
  }
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeSpec spec) {
  for (const AddedToken& token : spec.added) {
    if (token.text.empty()) throw_input_error("{}: the added token {} has no text.", spec.file, token.id);
    if (token.id < 0 || token.id >= kMostTokens)
      throw_input_error("{}: added token '{}' has the id {}, outside 0 to {}.", spec.file, token.text, token.id,
                        kMostTokens - 1);
    // It must not be found as a word of the text.
    if (static_cast<std::size_t>(token.id) < spec.tokens.size())
      spec.tokens[static_cast<std::size_t>(token.id)].clear();
  }
  return std::make_unique<BpeTokenizer>(std::move(spec));
}

}  // namespace tandem
