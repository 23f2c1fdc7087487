// tiktoken files: lines of "base64 rank", where a token's rank is its id and its merge's order. Special tokens follow
// the ranks, by the names that files beside it list, or those of Llama 3.1 where there are no such files (as Meta
// published).
#include <ranges>
#include <unordered_map>

#include "engine/common/error.h"
#include "engine/common/read_file.h"
#include "engine/model/bpe_tokenizer.h"
#include "engine/model/safetensors.h"
#include "engine/model/word_splitter.h"

namespace tandem {
namespace {

constexpr std::int32_t kLlama3Specials = 256;

/// Names of Llama 3.1 and later; 3.0 has reserved names in place of 4, 8 and 10.
std::vector<AddedToken> llama3_specials(std::int32_t first) {
  std::vector<AddedToken> tokens;
  int reserved = 0;
  for (std::int32_t i = 0; i < kLlama3Specials; ++i) {
    static const std::unordered_map<std::int32_t, const char*> kPublished = {
        {0, "<|begin_of_text|>"},   {1, "<|end_of_text|>"},   {4, "<|finetune_right_pad_id|>"},
        {6, "<|start_header_id|>"}, {7, "<|end_header_id|>"}, {8, "<|eom_id|>"},
        {9, "<|eot_id|>"},          {10, "<|python_tag|>"}};
    const auto name = kPublished.find(i);
    tokens.push_back(
        {name != kPublished.end() ? name->second : fmt::format("<|reserved_special_token_{}|>", reserved++), first + i,
         true});
  }
  return tokens;
}

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/// False for anything but complete groups of four with padding at the end only.
bool decode_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    const std::size_t padding = i + 4 == text.size() ? (text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2) : 0;
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const int digit = k < 4 - padding ? base64_digit(text[i + k]) : 0;
      if (digit < 0) return false;
      group = group << 6 | static_cast<std::uint32_t>(digit);
    }
    for (std::size_t k = 0; k < 3 - padding; ++k) bytes += static_cast<char>(group >> (16 - 8 * k) & 0xFF);
  }
  return true;
}

/// "base64 rank"; false for anything else.
bool read_line(std::string_view line, std::string& bytes, std::int32_t& rank) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || !decode_base64(line.substr(0, space), bytes)) return false;
  const std::string_view number = line.substr(space + 1);
  if (number.empty() || number.size() > 7 || number.find_first_not_of("0123456789") != std::string_view::npos)
    return false;
  rank = std::stoi(std::string(number));
  return true;
}

std::unordered_map<std::string_view, std::int32_t> ids_of(const std::vector<std::string>& tokens) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (!tokens[id].empty()) ids.emplace(tokens[id], static_cast<std::int32_t>(id));
  return ids;
}

/// tiktoken joins any two neighbours whose bytes together are a token, the lowest rank first: every way to cut a token
/// into two tokens is a merge with the token's rank.
std::vector<Merge> merges_of(const std::vector<std::string>& tokens) {
  const std::unordered_map<std::string_view, std::int32_t> ids = ids_of(tokens);
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view bytes = tokens[id];
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = ids.find(bytes.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(bytes.substr(cut));
      if (right != ids.end()) merges.push_back({left->second, right->second, static_cast<std::int32_t>(id)});
    }
  }
  return merges;
}

/// As transformers has it: what added_tokens_decoder and extra_special_tokens list follows the ranks, with names for
/// the ids between. A folder without such files, which transformers cannot read, gets the names above.
void add_specials(BpeSpec& spec, const TokenizerSettings& settings) {
  const auto first = static_cast<std::int32_t>(spec.tokens.size());
  std::vector<AddedToken> placed = settings.any ? std::vector<AddedToken>() : llama3_specials(first);
  const auto place = [&placed](const std::string& text) { placed.push_back({.text = text}); };
  const std::int32_t end = settings.listed.empty() ? 0 : settings.listed.rbegin()->first + 1;
  for (std::int32_t id = first; id < end; ++id) {
    const auto listed = settings.listed.find(id);
    place(listed != settings.listed.end() ? listed->second.text : fmt::format("<|reserved_token_{}|>", id));
  }
  for (const AddedToken& token : settings.extra.value_or(std::vector<AddedToken>())) place(token.text);
  const std::unordered_map<std::string_view, std::int32_t> ids = ids_of(spec.tokens);
  const KnownVocabulary known{spec.tokens.size(), [&ids](const std::string& text) {
                                std::string bytes;
                                const auto found = bytes_from_printable(text, bytes) ? ids.find(bytes) : ids.end();
                                return found == ids.end() ? -1 : found->second;
                              }};
  spec.added.add(placed, known);
  settings.add_to(spec.added, known);
  spec.bos = spec.added.id_of(settings.any ? settings.bos() : placed.front().text);
}

}  // namespace

bool is_tiktoken(const std::filesystem::path& file) {
  std::error_code refused;
  if (!std::filesystem::is_regular_file(file, refused)) return false;
  const std::string text = read_file(file);
  std::string bytes;
  std::int32_t rank = 0;
  const std::size_t end = text.find('\n');
  return end != std::string::npos && read_line(std::string_view(text).substr(0, end), bytes, rank);
}

BpeSpec read_tiktoken(const std::filesystem::path& folder) {
  BpeSpec spec;
  const std::filesystem::path file = folder / "tokenizer.model";
  spec.file = file.string();
  const std::string text = read_file(file);
  std::size_t number = 0;
  for (const auto part : std::views::split(text, '\n')) {
    const std::string_view line(part.begin(), part.end());
    ++number;
    if (line.empty()) continue;
    std::string bytes;
    std::int32_t rank = 0;
    if (!read_line(line, bytes, rank))
      throw_input_error("{}:{}: a line of a tiktoken file is a token in base64, a space and its rank.", spec.file,
                        number);
    if (spec.tokens.size() <= static_cast<std::size_t>(rank)) spec.tokens.resize(static_cast<std::size_t>(rank) + 1);
    std::string& slot = spec.tokens[static_cast<std::size_t>(rank)];
    if (!slot.empty()) throw_input_error("{}:{}: the rank {} is given to two tokens.", spec.file, number, rank);
    slot = std::move(bytes);
  }
  spec.merges = merges_of(spec.tokens);
  spec.whole_words = true;
  spec.words = {kLlama3Words};
  TokenizerSettings settings = read_tokenizer_settings(folder, std::nullopt);
  settings.name_by_class();
  if (settings.kind != TokenizerClass::llama && settings.kind != TokenizerClass::backend)
    throw_input_error(
        "{} is a tiktoken file, which Qwen2Tokenizer and GPT2Tokenizer do not read: see 'tokenizer_class' "
        "in {}, or 'model_type' in config.json.",
        spec.file, settings.file);
  if (settings.any && settings.listed.empty() && settings.named.empty() &&
      settings.extra.value_or(std::vector<AddedToken>()).empty()) {
    throw_input_error(
        "{} is a tiktoken file, which holds no special tokens, and no file beside it lists any: add them to {} as "
        "added_tokens_decoder.",
        spec.file, settings.file);
  }
  if (settings.extra_has_objects)
    throw_input_error(
        "{}: extra_special_tokens has objects; with a tiktoken file, texts are needed: transformers refuses others.",
        settings.file);
  add_specials(spec, settings);
  spec.add_bos = settings.any ? settings.add_bos.value_or(false) && spec.bos >= 0 : true;
  spec.hash = hash_digits({spec.add_bos ? "\1" : "\0", 1}, text_hash(text));
  if (settings.any) add_to_hash(spec, spec.added.list());
  return spec;
}

}  // namespace tandem
