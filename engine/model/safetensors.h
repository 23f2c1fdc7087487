// Safetensors files, mapped or copied into memory: u64 length of a JSON header, the header {name: {dtype, shape,
// data_offsets}}, the tensors' bytes without gaps. Every length, shape and offset is checked before use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tandem {

/// Where the bytes of a model's weights lie.
struct WeightPlace {
  enum class In : std::uint8_t {
    file,     // mapped: no memory of the process's own, in pages of 4 KiB, read when they are first used
    memory,   // copied, in huge pages
    either,   // copied where that takes no more than half of the free memory
    passing,  // mapped, and let go piece by piece: for the hash alone
  } in = In::file;
  /// Called while they are copied, by one thread at a time, with the bytes that are done and all of them.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress;
};

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
  std::shared_ptr<const void> storage() const { return storage_; }  // keeps the bytes alive
  bool copied() const { return copied_; }

 private:
  static TensorFiles open(const std::vector<std::filesystem::path>& files, const WeightPlace& place);
  /// The tensors of a file by its header, which ends where this says; their bytes lie in `all`.
  std::size_t add(const std::string& file, std::span<const std::byte> all);
  std::map<std::string, TensorInfo> tensors_;
  std::shared_ptr<std::vector<std::shared_ptr<const void>>> storage_ =
      std::make_shared<std::vector<std::shared_ptr<const void>>>();
  bool copied_ = false;
  std::string source_;
  std::uint64_t hash_ = 0xcbf29ce484222325ull;
};

/// 64-bit hash of bytes, eight at a time; for telling files apart, not against an adversary.
inline constexpr std::uint64_t kHashSeed = 0xcbf29ce484222325ull;
std::uint64_t content_hash(std::span<const std::byte> bytes, std::uint64_t seed = kHashSeed);
/// The same of text, as a number and in 16 hexadecimal digits.
std::uint64_t text_hash(std::string_view text, std::uint64_t seed = kHashSeed);
std::string hash_digits(std::string_view text, std::uint64_t seed = kHashSeed);

}  // namespace tandem
