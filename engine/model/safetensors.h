// Safetensors files, mapped or copied into memory. Format: u64 length of a JSON header, the header {name: {dtype,
// shape, data_offsets}}, the tensors' bytes without gaps. Nothing in a file is trusted: every length, shape and offset
// is checked before use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/model/weight_place.h"

namespace tandem {

struct TensorInfo {
  std::string dtype;  // as stored: "F32", "BF16", ...
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> bytes;  // into the mapping or the copy
  std::string file;
};

/// All tensors of model.safetensors, or of the shards that model.safetensors.index.json names.
class TensorFiles {
 public:
  /// InputError naming file, tensor and what is wrong, and where a copy has no room.
  static TensorFiles open_folder(const std::filesystem::path& folder, const WeightPlace& place = {});
  static TensorFiles open_file(const std::filesystem::path& file, const WeightPlace& place = {});

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  std::uint64_t hash() const { return hash_; }           // over the files' bytes
  const std::string& source() const { return source_; }  // the file, or the index of the shards; for messages
  /// Keeps the bytes alive.
  std::shared_ptr<const void> storage() const { return storage_; }
  bool copied() const { return copied_; }

 private:
  static TensorFiles open(const std::vector<std::filesystem::path>& files, const WeightPlace& place);
  /// The tensors of a file by its header; their bytes lie in `all`.
  void add(const std::string& file, std::span<const std::byte> all);
  std::map<std::string, TensorInfo> tensors_;
  std::shared_ptr<std::vector<std::shared_ptr<const void>>> storage_ =
      std::make_shared<std::vector<std::shared_ptr<const void>>>();
  bool copied_ = false;
  std::string source_;
  std::uint64_t hash_ = 0xcbf29ce484222325ull;
};

/// 64-bit hash of bytes, eight at a time; for telling files apart, not against an adversary.
std::uint64_t content_hash(std::span<const std::byte> bytes, std::uint64_t seed = 0xcbf29ce484222325ull);

/// The same of bytes that come one part after the other.
class ContentHash {
 public:
  explicit ContentHash(std::size_t all_bytes, std::uint64_t seed = 0xcbf29ce484222325ull) : hash_(seed ^ all_bytes) {}
  /// Every part but the last is a multiple of 8 bytes.
  void add(std::span<const std::byte> part);
  std::uint64_t value() const { return hash_ ^ (hash_ >> 32); }

 private:
  std::uint64_t hash_;
};

}  // namespace tandem
