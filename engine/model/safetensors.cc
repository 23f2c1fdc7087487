#include "engine/model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/common/cgroup.h"
#include "engine/common/error.h"
#include "engine/common/huge_memory.h"
#include "engine/common/in_pieces.h"
#include "engine/common/interrupt.h"
#include "engine/common/json.h"
#include "engine/common/mapped_file.h"
#include "engine/model/json_fields.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
constexpr std::uint64_t kMaxHeader = 100u << 20;  // the format's own limit

std::uint64_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, std::uint64_t> sizes = {
      {"F64", 8}, {"F32", 4},  {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4},     {"I16", 2},    {"I8", 1},
      {"U8", 1},  {"BOOL", 1}, {"U16", 2}, {"U32", 4},  {"U64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

bool read_sizes(const Json& value, std::vector<std::uint64_t>& out) {
  if (!value.is_array() || value.size() > 8) return false;
  for (const Json& v : value) {
    if (!v.is_number_unsigned()) return false;
    out.push_back(v.get<std::uint64_t>());
  }
  return true;
}

constexpr std::size_t kLine = 64;                     // bytes of a cache line
constexpr std::size_t kPiece = std::size_t{8} << 20;  // of a file: copied, hashed, between two looks for ^C

std::uint64_t hash_piece(std::uint64_t hash, std::span<const std::byte> piece) {
  std::size_t at = 0;
  for (; at + 8 <= piece.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, piece.data() + at, 8);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  for (; at < piece.size(); ++at) hash = (hash ^ std::to_integer<std::uint64_t>(piece[at])) * 0x100000001B3ull;
  return hash;
}

/// content_hash(); ready(from) is called before a piece that begins there, done(its bytes) after it.
std::uint64_t hash_in_pieces(std::span<const std::byte> all, std::uint64_t seed, const auto& ready, const auto& done) {
  std::uint64_t hash = seed ^ all.size();
  for (std::size_t from = 0; from < all.size(); from += kPiece) {
    const std::span<const std::byte> piece = all.subspan(from, std::min(kPiece, all.size() - from));
    ready(from);
    stop_if_interrupted();
    hash = hash_piece(hash, piece);
    done(piece);
  }
  return hash ^ (hash >> 32);
}
constexpr auto kNothing = [](auto) {};

/// Copies a file's bytes and hashes them, each block while the next one is copied. `more` is told of bytes that are
/// there, by one thread at a time.
std::uint64_t copy_and_hash(const MappedFile& file, std::byte* to, std::uint64_t seed,
                            const std::function<void(std::uint64_t)>& more) {
  constexpr std::size_t kBlock = 16 * kPiece;  // work for many threads
  const std::size_t size = file.bytes().size();
  const bool keep = file.is_cached();
  std::mutex mutex;
  const auto copy = [&](std::size_t block) {
    in_pieces(std::min(kBlock, size - block), kPiece, [&](std::size_t from, std::size_t bytes) {
      file.read({to + block + from, bytes}, block + from, keep);
      const std::lock_guard lock(mutex);
      more(bytes);
    });
  };
  std::future<void> next = std::async(copy, 0);
  const auto ready = [&](std::size_t from) {
    if (from % kBlock != 0) return;
    next.get();
    if (from + kBlock < size) next = std::async(copy, from + kBlock);
  };
  return hash_in_pieces({to, size}, seed, ready, kNothing);
}

}  // namespace

std::uint64_t content_hash(std::span<const std::byte> bytes, std::uint64_t seed) {
  return hash_in_pieces(bytes, seed, kNothing, kNothing);
}

std::uint64_t text_hash(std::string_view text, std::uint64_t seed) {
  return content_hash(std::as_bytes(std::span(text)), seed);
}
std::string hash_digits(std::string_view text, std::uint64_t seed) {
  return fmt::format("{:016x}", text_hash(text, seed));
}

std::size_t TensorFiles::add(const std::string& file, std::span<const std::byte> all) {
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, all.data(), 8);
  if (header_bytes > kMaxHeader || header_bytes > all.size() - 8)
    throw_input_error("{}: the header claims {} bytes, the file has {}.", file, header_bytes, all.size());
  const std::string where = file + ": the header";
  const Json header = parse_json({reinterpret_cast<const char*>(all.data()) + 8, header_bytes}, where);
  if (!header.is_object()) throw_input_error("{} is not a JSON object.", where);
  const std::span<const std::byte> body = all.subspan(8 + header_bytes);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> used;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets") ||
        !entry["dtype"].is_string()) {
      throw_input_error("{}: tensor '{}' lacks dtype, shape or data_offsets.", file, name);
    }
    TensorInfo info;
    info.file = file;
    info.dtype = entry["dtype"].get<std::string>();
    const std::uint64_t element = element_bytes(info.dtype);
    if (element == 0)
      throw_input_error("{}: tensor '{}' has the unknown dtype '{}'.", file, name, info.dtype.substr(0, 20));
    std::vector<std::uint64_t> offsets;
    if (!read_sizes(entry["shape"], info.shape) || !read_sizes(entry["data_offsets"], offsets) || offsets.size() != 2)
      throw_input_error("{}: tensor '{}' has a shape or data_offsets that are not lists of whole numbers.", file, name);
    std::uint64_t bytes = element;
    for (const std::uint64_t n : info.shape)
      if (__builtin_mul_overflow(bytes, n, &bytes))
        throw_input_error("{}: the shape of tensor '{}' overflows.", file, name);
    if (offsets[0] > offsets[1] || offsets[1] > body.size())
      throw_input_error("{}: tensor '{}' claims bytes [{}, {}) of {}: the file is cut off or damaged.", file, name,
                        offsets[0], offsets[1], body.size());
    if (offsets[1] - offsets[0] != bytes)
      throw_input_error("{}: tensor '{}' has {} bytes where its shape and dtype need {}.", file, name,
                        offsets[1] - offsets[0], bytes);
    info.bytes = body.subspan(offsets[0], bytes);
    if (bytes > 0) used.emplace_back(offsets[0], offsets[1]);
    if (!tensors_.emplace(name, std::move(info)).second)
      throw_input_error("{}: tensor '{}' is in two files.", file, name);
  }
  std::ranges::sort(used);
  // The format asks for tensors that cover the bytes without a gap: what is left over is damage, or hidden data.
  std::uint64_t covered = 0;
  for (const auto& [begin, end] : used) {
    if (begin < covered) throw_input_error("{}: two tensors overlap at byte {}.", file, begin);
    if (begin > covered) throw_input_error("{}: bytes [{}, {}) belong to no tensor.", file, covered, begin);
    covered = end;
  }
  if (covered != body.size()) throw_input_error("{}: bytes [{}, {}) belong to no tensor.", file, covered, body.size());
  return all.size() - body.size();
}

TensorFiles TensorFiles::open(const std::vector<fs::path>& paths, const WeightPlace& place) {
  TensorFiles files;
  std::vector<std::shared_ptr<const MappedFile>> mapped;
  std::uint64_t bytes = 0, done = 0;
  for (const fs::path& path : paths) {
    const std::span<const std::byte> all = mapped.emplace_back(MappedFile::open(path))->bytes();
    if (all.size() < 8)
      throw_input_error("{} has {} bytes; a safetensors file has at least 8.", path.string(), all.size());
    refuse_lfs_pointer({reinterpret_cast<const char*>(all.data()), all.size()}, path);
    bytes += all.size();
  }
  const std::uint64_t room = available_memory();
  if (place.in == WeightPlace::In::memory && bytes > room)
    throw_input_error(
        "The weights in {} take {:.1f} GB, and this machine has {:.1f} GB of free memory: let them stay in their files "
        "(--weights map).",
        paths.front().parent_path().string(), double(bytes) * 1e-9, double(room) * 1e-9);
  files.copied_ = place.in == WeightPlace::In::memory || (place.in == WeightPlace::In::either && bytes <= room / 2);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    std::span<const std::byte> all = mapped[i]->bytes();
    const std::size_t header = files.add(paths[i].string(), all);  // a damaged file is not worth a copy
    if (files.copied_) {
      // So that the tensors begin a cache line.
      const std::size_t shift = (kLine - header % kLine) % kLine;
      const std::shared_ptr<std::byte> memory = huge_memory(all.size() + shift, "the weights");
      std::byte* const copied = memory.get() + shift;
      files.hash_ = copy_and_hash(*mapped[i], copied, files.hash_, [&](std::uint64_t more) {
        done += more;
        if (place.progress) place.progress(done, bytes);
      });
      for (auto& [name, tensor] : files.tensors_)
        if (tensor.file == paths[i].string() && !tensor.bytes.empty())
          tensor.bytes = {copied + (tensor.bytes.data() - all.data()), tensor.bytes.size()};
      files.storage_->push_back(memory);
    } else {
      files.hash_ = hash_in_pieces(all, files.hash_, kNothing, [&](auto piece) {
        if (place.in == WeightPlace::In::passing) mapped[i]->let_go(piece);
      });
      files.storage_->push_back(mapped[i]);
    }
    MappedFile::check_all();
    if (!mapped[i]->unchanged())  // its header may be of other bytes than its tensors
      throw_run_error("'{}' was written into while it was read: begin again once it is whole.", paths[i].string());
  }
  return files;
}

TensorFiles TensorFiles::open_file(const fs::path& file, const WeightPlace& place) {
  TensorFiles files = open({file}, place);
  files.source_ = file.string();
  return files;
}

TensorFiles TensorFiles::open_folder(const fs::path& folder, const WeightPlace& place) {
  const fs::path single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (path_exists(single)) return open_file(single, place);
  if (!path_exists(index))
    throw_input_error("{} has neither model.safetensors nor model.safetensors.index.json.", folder.string());
  const Json json = read_json_object(index);
  if (!json.contains("weight_map") || !json["weight_map"].is_object())
    throw_input_error("{}: field 'weight_map' is missing or not an object.", index.string());
  std::set<fs::path> shards;
  for (const auto& [name, shard] : json["weight_map"].items()) {
    if (!shard.is_string()) throw_input_error("{}: the file of tensor '{}' is not a text.", index.string(), name);
    const std::string text = shard.get<std::string>();
    if (text.empty() || fs::path(text).filename() != text || text == "..")
      throw_input_error("{}: the file of tensor '{}' is '{}', which is not a plain file name.", index.string(), name,
                        text);
    shards.insert(folder / text);
  }
  TensorFiles files = open({shards.begin(), shards.end()}, place);
  files.source_ = index.string();
  return files;
}

}  // namespace tandem
