// A block of the prefix cache as a file:
//   header, identity, tokens from the prompt's first to the block's last (int32), behind a prompt's rest a mark
//   KV      [layer][block's page]{one slot as the store keeps it}
//   queries [layer][kept][query head][head_dim] f32     of a prompt's rest, where they are kept
//   sums    [layer][kv_head][prompt's tokens] f32       likewise
//   hash of all bytes before it
// A file counts only if identity and all tokens are the same, not because of its name, which is a hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/runtime/prefix_cache.h"

namespace tandem {

/// Expectations of a block's file.
struct PrefixFileKey {
  std::string_view identity;  // what a prefill depends on beside its tokens
  std::span<const std::int32_t>
      tokens;               // from the prompt's first to the block's last, PrefixCache::with_end() of a rest
  std::uint32_t first = 0;  // of them, the block's first
  std::size_t kv_bytes = 0, query_bytes = 0;
  std::size_t sum_bytes = 0;  // 0: none are needed, and those that are there are no hindrance

  /// Bytes of the file that make_prefix_file() makes room for.
  std::size_t file_bytes() const;
};

/// Places of a file's parts in its bytes.
struct PrefixFileParts {
  PrefillTimes times;
  std::size_t kv = 0, queries = 0, sums = 0;
};

/// The bytes of a file with zeros as its parts. They are to be filled, then sealed.
std::string make_prefix_file(const PrefixFileKey& key, const PrefillTimes& times, PrefixFileParts& parts);
/// Writes the hash at the end.
void seal_prefix_file(std::string& bytes);

/// Reads a file and checks its hash. nullopt where it is missing or not the key's. A damaged one is removed.
std::optional<PrefixFileParts> read_prefix_file(const std::filesystem::path& file, const PrefixFileKey& key,
                                                std::string& bytes);
/// Whether the file's head and its size say that it is the key's.
bool is_prefix_file_of(const std::filesystem::path& file, const PrefixFileKey& key);

/// Writes a file beside it and puts it in its place in one step. RunError where it cannot be written.
void replace_file(const std::filesystem::path& file, std::string_view bytes);

}  // namespace tandem
