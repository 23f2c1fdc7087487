// Byte-level byte pair encoding, whatever files it was read from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/byte_pairs.h"
#include "engine/model/tokenizer.h"

namespace tandem {

struct AddedToken {
  std::string text;
  std::int32_t id = 0;
  bool special = true;  // false: matched in every text (Qwen's <tool_call>)
};

/// All that decides a tokenizer's ids.
struct BpeSpec {
  std::string file;                 // for errors
  std::vector<std::string> tokens;  // bytes by id; empty: no such id, or an added token
  std::vector<Merge> merges;        // by rank
  bool whole_words = false;         // see BytePairs
  std::vector<AddedToken> added;
  std::vector<std::string> words;  // expressions of WordSplitter
  bool composed = false;           // text is normalized to NFC first
  std::int32_t bos = -1;
  bool add_bos = false;
  std::string hash;
};

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeSpec spec);

/// Readers of one kind of file each; InputError for anything damaged or not supported.
BpeSpec read_tokenizer_json(const std::filesystem::path& folder);  // tokenizer.json
BpeSpec read_vocab_merges(const std::filesystem::path& folder);    // vocab.json, merges.txt, tokenizer_config.json
BpeSpec read_tiktoken(const std::filesystem::path& folder);        // tokenizer.model of Llama 3
/// Whether a tokenizer.model begins as a tiktoken file does ("base64 rank").
bool is_tiktoken(const std::filesystem::path& file);

/// The bytes that a token of a byte-level vocabulary stands for: GPT-2's files write each byte as a printable
/// character. False where `text` has a character that stands for no byte.
bool bytes_from_printable(std::string_view text, std::string& bytes);

/// A vocabulary (text to id) and merges ("a b" pairs) as Hugging Face files have them, into `spec`.
void set_vocabulary(BpeSpec& spec, const std::vector<std::pair<std::string, std::int32_t>>& vocabulary,
                    const std::vector<std::pair<std::string, std::string>>& merges);

}  // namespace tandem
