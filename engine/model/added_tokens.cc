#include "engine/model/added_tokens.h"

#include <algorithm>
#include <ranges>
#include <utf8proc.h>

#include "engine/common/error.h"
#include "engine/common/utf8_character.h"
#include "engine/model/utf8.h"

namespace tandem {
namespace {

/// The first character, or with `last` the last one; no bytes where there is none, and of what is no UTF-8.
Utf8Character character(std::string_view text, bool last) {
  if (text.empty()) return {};
  std::size_t at = last ? text.size() - 1 : 0;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return first_character(text.substr(at));
}

/// Unicode's White_Space.
bool is_space(char32_t c) {
  if ((c >= 0x09 && c <= 0x0D) || c == 0x85) return true;
  const auto category = utf8proc_category(static_cast<std::int32_t>(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

/// What \w matches: letters, marks, digits, connectors, joiners, and the circled and squared letters.
bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9)) return true;
  if ((c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189)) return true;
  const std::string_view category = utf8proc_category_string(static_cast<std::int32_t>(c));
  return category[0] == 'L' || category[0] == 'M' || category == "Nd" || category == "Nl" || category == "Pc";
}

/// Bytes of the white space that valid UTF-8 begins with, or with `last` ends with.
std::size_t space_bytes(std::string_view text, bool last) {
  std::size_t bytes = 0;
  while (true) {
    const Utf8Character next = character(last ? text.substr(0, text.size() - bytes) : text.substr(bytes), last);
    if (!is_space(next.code)) return bytes;
    bytes += next.bytes;
  }
}

std::vector<AddedToken> of_kind(const TokenizerSpec& spec, bool normalized) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : spec.added.sought()) {
    if (token.normalized != normalized) continue;
    tokens.push_back(token);
    if (normalized && spec.normalize != nullptr) tokens.back().text = spec.normalize(token.text);
  }
  return tokens;
}

}  // namespace

bool same_but_id(const AddedToken& a, const AddedToken& b) {
  AddedToken moved = a;
  moved.id = b.id;
  return moved == b;
}

std::string hash_text(const AddedToken& token) {
  std::string text = fmt::format("{}:{}:{:d}{:d}", token.id, token.text, token.special, token.normalized);
  if (token.strips_left || token.strips_right || token.single_word)
    text += fmt::format(":{:d}{:d}{:d}", token.strips_left, token.strips_right, token.single_word);
  return text + ";";
}

void AddedVocabulary::add(std::span<const AddedToken> tokens, const KnownVocabulary& known) {
  for (const AddedToken& token : tokens)
    if (token.special && !token.text.empty() && special_texts_.insert(token.text).second) special_.push_back(token);
  for (const AddedToken& token : tokens) {
    std::int32_t id = id_of(token.text);
    if (token.text.empty() || (id >= 0 && same_but_id(tokens_.at(id), token))) continue;
    if (id < 0) id = known.id_of(token.text);
    if (id < 0) {
      id = static_cast<std::int32_t>(known.size);
      if (!tokens_.empty()) id = std::max(id, tokens_.rbegin()->first + 1);
    }
    ids_[token.text] = id;
    AddedToken& entry = tokens_[id] = token;
    entry.id = id;
    if (!is_special(token)) others_.push_back(token);
  }
}

std::vector<AddedToken> AddedVocabulary::list() const {
  const auto tokens = std::views::values(tokens_);
  return {tokens.begin(), tokens.end()};
}

std::int32_t AddedVocabulary::id_of(std::string_view text) const {
  const auto found = ids_.find(std::string(text));
  return found == ids_.end() ? -1 : found->second;
}

std::vector<AddedToken> AddedVocabulary::sought() const {
  std::vector<AddedToken> all;
  for (const auto* list : {&special_, &others_}) {
    for (const AddedToken& first : *list) {
      const std::int32_t id = id_of(first.text);
      AddedToken token = tokens_.at(id);  // its flags of now
      token.text = first.text;
      token.normalized = first.normalized;
      token.special = is_special(token);
      all.push_back(std::move(token));
    }
  }
  return all;
}

AddedTokenizer::Pass::Pass(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), by_first_byte_(256) {
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.text.size() > b.text.size(); });
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (!tokens_[i].text.empty()) by_first_byte_[static_cast<unsigned char>(tokens_[i].text[0])].push_back(i);
}

const AddedToken* AddedTokenizer::Pass::at(std::string_view text) const {
  for (const std::size_t i : by_first_byte_[static_cast<unsigned char>(text[0])])
    if (text.starts_with(tokens_[i].text)) return &tokens_[i];
  return nullptr;
}

bool AddedTokenizer::Pass::cut(std::string_view text, bool with_special,
                               const std::function<bool(std::string_view, bool)>& stretch,
                               const std::function<void(const AddedToken&)>& token) const {
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size();) {
    const AddedToken* found = at(text.substr(i));
    if (found == nullptr) {
      ++i;
      continue;
    }
    std::size_t begin = i, end = i + found->text.size();
    i = end;  // also where the match does not count: what it covers is text then
    if (found->special && !with_special) continue;
    if (found->single_word &&
        (is_word(character(text.substr(0, begin), true).code) || is_word(character(text.substr(end), false).code)))
      continue;
    if (found->strips_left) begin -= space_bytes(text.substr(done, begin - done), true);
    if (found->strips_right) end += space_bytes(text.substr(end), false);
    if (begin > done && !stretch(text.substr(done, begin - done), done == 0)) return false;
    token(*found);
    done = end;
  }
  return done >= text.size() || stretch(text.substr(done), done == 0);
}

AddedTokenizer::AddedTokenizer(TokenizerSpec spec, std::uint32_t rows)
    : spec_(std::move(spec)), rows_(rows), raw_(of_kind(spec_, false)), normalized_(of_kind(spec_, true)) {}

void AddedTokenizer::set_size(std::size_t tokens) {
  vocab_ = static_cast<std::uint32_t>(tokens);
  for (const auto& [id, token] : spec_.added.tokens())
    if (static_cast<std::uint32_t>(id) < rows_) vocab_ = std::max(vocab_, static_cast<std::uint32_t>(id) + 1);
  if (!spec_.add_bos || spec_.bos < 0 || static_cast<std::uint32_t>(spec_.bos) < rows_) return;
  throw_input_error(
      "{}: every text begins with the token {}, but the model has rows for {} tokens (vocab_size in config.json).",
      spec_.file, spec_.bos, rows_);
}

/// As the tokenizers library: first the tokens that are sought in the text as it is, then, in what lies between them
/// and has been normalized, the others.
bool AddedTokenizer::encode(std::string_view text, bool with_special, std::size_t part_bytes,
                            std::vector<std::int32_t>& out, const Done& done) const {
  const auto take = [&](const AddedToken& found) {
    if (static_cast<std::uint32_t>(found.id) >= rows_)
      throw_input_error(
          "The text has the token '{}', to which the files beside {} give the id {}, but the model has rows for {} "
          "tokens (vocab_size in config.json).",
          found.text, spec_.file, found.id, rows_);
    out.push_back(found.id);
  };
  return raw_.cut(
      repair_utf8(text), with_special,
      [&](std::string_view raw, bool at_start) {
        const auto inner = [&](std::string_view part, bool first) {
          return encode_stretch(part, at_start && first, part_bytes, out, done);
        };
        if (spec_.normalize == nullptr) return normalized_.cut(raw, with_special, inner, take);
        return normalized_.cut(spec_.normalize(raw), with_special, inner, take);
      },
      take);
}

std::vector<std::int32_t> AddedTokenizer::encode(std::string_view text, bool add_bos, Specials specials) const {
  constexpr std::size_t kPart = std::size_t{1} << 20;
  std::vector<std::int32_t> out;
  if (add_bos && spec_.add_bos && spec_.bos >= 0) out.push_back(spec_.bos);
  encode(text, specials == Specials::parsed, kPart, out, [](std::size_t) { return true; });
  return out;
}

void AddedTokenizer::encode_parts(std::string_view text, std::size_t part_bytes,
                                  const std::function<bool(std::span<const std::int32_t>)>& take) const {
  part_bytes = std::max<std::size_t>(part_bytes, 1);
  std::vector<std::int32_t> part;
  std::size_t bytes = 0;  // of text in `part`
  const bool whole = encode(text, /*with_special=*/false, part_bytes, part, [&](std::size_t more) {
    bytes += more;
    if (bytes < part_bytes) return true;
    bytes = 0;
    const bool go_on = take(part);
    part.clear();
    return go_on;
  });
  if (whole && !part.empty()) take(part);
}

const AddedToken* AddedTokenizer::added(std::int32_t token) const {
  TANDEM_CHECK(token >= 0, "token {}", token);
  const auto found = spec_.added.tokens().find(token);
  return found == spec_.added.tokens().end() ? nullptr : &found->second;
}

std::string AddedTokenizer::added_text(std::int32_t token) const {
  const AddedToken* const found = added(token);
  return found == nullptr || is_special(*found) ? std::string() : found->text;
}

}  // namespace tandem
