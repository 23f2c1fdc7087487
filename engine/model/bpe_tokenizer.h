// Byte-level byte pair encoding, whatever files it was read from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/model/byte_pairs.h"
#include "engine/model/tokenizer_settings.h"

namespace tandem {

struct BpeSpec : TokenizerSpec {
  std::vector<std::string> tokens;  // bytes by id; empty: no such id, or no byte-level text
  std::vector<Merge> merges;        // by rank
  bool whole_words = false;         // see BytePairs
  bool drop_unknown = false;        // see BytePairs
  std::vector<std::string> words;   // expressions of WordSplitter
};

/// `rows`: of the model's embedding.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeSpec spec, std::uint32_t rows);

/// Readers of one kind of file each, with the tokens that files beside it add. InputError: damaged or not supported.
std::unique_ptr<Tokenizer> load_tokenizer_json(const std::filesystem::path& folder, std::uint32_t rows);
BpeSpec read_vocab_merges(const std::filesystem::path& folder);  // vocab.json, merges.txt, tokenizer_config.json
BpeSpec read_tiktoken(const std::filesystem::path& folder);      // tokenizer.model of Llama 3
/// Whether a tokenizer.model begins as a tiktoken file does ("base64 rank").
bool is_tiktoken(const std::filesystem::path& file);

/// The bytes of a token of a byte-level vocabulary: GPT-2's files write each byte as a printable character. False where
/// a character of `text` stands for no byte.
bool bytes_from_printable(std::string_view text, std::string& bytes);

/// A vocabulary (text to id) and merges ("a b" pairs) as Hugging Face files have them, into `spec`.
void set_vocabulary(BpeSpec& spec, const Vocabulary& vocabulary, const Merges& merges);

/// What the tokenizer's class (Qwen2Tokenizer or GPT2Tokenizer) decides: how text is normalized and cut into words, and
/// the special tokens it names itself. InputError for another class, which needs a tokenizer.json that says so.
void apply_class(BpeSpec& spec, TokenizerSettings& settings);

/// `vocabulary` as tokens are added to it; refers to its texts.
KnownVocabulary known_vocabulary(const Vocabulary& vocabulary);

/// Tokens that decide ids and stand in no file that spec.hash was made of. None: the hash stays.
void add_to_hash(BpeSpec& spec, std::span<const AddedToken> tokens);

}  // namespace tandem
