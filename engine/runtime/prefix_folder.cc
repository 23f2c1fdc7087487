// The prefix cache in a folder: one file per block, named by the hash of its tokens and of all before them, and by how
// many these are. Several processes may share the folder: files appear and go in one step, and a file that is gone or
// damaged costs its prefill. A file's time of modification is when it was last used; all blocks of a prompt get the
// same one, so that the oldest files, the deepest first, are removed without a block outliving the one before it.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "engine/common/error.h"
#include "engine/kv/prefix_index.h"
#include "engine/model/safetensors.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/kv_offload.h"
#include "engine/runtime/limits.h"
#include "engine/runtime/prefix_cache.h"
#include "engine/runtime/prefix_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFileEnd = ".prefix";
constexpr std::size_t kHashDigits = 16;

/// Tokens to the end of a block, by its file's name; nullopt for a file of another kind. Files without them are of an
/// older version, which nothing reads.
std::optional<std::uint32_t> tokens_of(std::string_view name) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (!name.ends_with(kFileEnd) || name.size() < kHashDigits + kFileEnd.size() ||
      name.find_first_not_of(kDigits) != kHashDigits)
    return std::nullopt;
  std::string_view middle = name.substr(kHashDigits, name.size() - kHashDigits - kFileEnd.size());
  std::uint32_t tokens = 0;
  if (middle.empty()) return tokens;
  middle.remove_prefix(1);
  const auto [end, error] = std::from_chars(middle.data(), middle.data() + middle.size(), tokens);
  if (name[kHashDigits] != '-' || error != std::errc() || end != middle.data() + middle.size()) return std::nullopt;
  return tokens;
}

/// Calls visit(entry) for all files of the folder that can be looked at.
void for_files(const fs::path& folder, const auto& visit) {
  std::error_code end;
  for (auto entry = fs::directory_iterator(folder, end); !end && entry != fs::directory_iterator();
       entry.increment(end))
    visit(*entry);
}

/// Files being written that nobody has written to for a day: their process was killed.
void remove_left_over(const fs::path& folder) {
  constexpr auto kLong = std::chrono::hours(24);
  for_files(folder, [&](const fs::directory_entry& entry) {
    if (entry.path().filename().native().find(".prefix.part") == std::string::npos) return;
    std::error_code error;
    const auto written = fs::last_write_time(entry.path(), error);
    if (!error && fs::file_time_type::clock::now() - written > kLong) fs::remove(entry.path(), error);
  });
}

/// Waits for a copy between a buffer of the device and host memory, which is read where it is constant (a load) and
/// written otherwise (a save): whole, or `slots` of them as the store keeps them. `op` says what it waits for.
template <class Byte>
void copy_and_wait(Device& device, const DeviceBuffer& buffer, Byte* host, std::size_t bytes, Op op = {},
                   std::span<const std::uint32_t> slots = {}) {
  constexpr bool kLoads = std::is_const_v<Byte>;
  op.name = kLoads ? "load prefix" : "save prefix";
  op.kind = Kind::copy;
  op.cause = Cause::transfer;
  (kLoads ? op.cost.h2d : op.cost.d2h) = bytes;
  if (op.access.empty()) op.access = {kLoads ? buffer.writes() : buffer.reads()};
  op.body = [&](BodyContext& ctx) {
    char* const data = kLoads ? ctx.write<char>(buffer) : const_cast<char*>(ctx.read<char>(buffer));
    const auto piece = [&](std::size_t at, std::size_t host_at, std::size_t n) {
      if constexpr (kLoads)
        std::memcpy(data + at, host + host_at, n);
      else
        std::memcpy(host + host_at, data + at, n);
    };
    if (slots.empty()) return piece(0, 0, bytes);
    const std::size_t slot_bytes = bytes / slots.size();
    for (std::size_t i = 0; i < slots.size(); ++i) piece(slots[i] * slot_bytes, i * slot_bytes, slot_bytes);
  };
  device.host_wait(device.submit(device.lane(kLoads ? LaneKind::h2d : LaneKind::d2h), std::move(op)));
}

/// Everything that `work` submitted fails or is done when it ends.
template <class Work>
void settle(Device& device, KvStore& kv, const Work& work) {
  try {
    work();
    device.drain();
  } catch (...) {
    device.drain_after_error();
    kv.all_done();
    throw;
  }
  kv.all_done();
}

class PrefixFolder final : public PrefixCache {
 public:
  PrefixFolder(const EngineOptions& options, Device& device, KvStore& kv, const ModelShape& shape)
      : PrefixCache(options), options_(options), device_(device), kv_(kv), shape_(shape) {
    TANDEM_CHECK(!device.is_gpu(), "prompts of a GPU are not kept in a folder");
    std::error_code refused;
    fs::create_directories(folder(), refused);
    if (refused) throw_input_error("--prefix-cache: '{}' cannot be made ({}).", folder().string(), refused.message());
    remove_left_over(folder());
    // Without column sums: a file says itself whether it has them.
    identity_ = fmt::format("{}, KV {}, chunks {}, queries {}", options.prefix_cache.identity,
                            to_string(options.precision), options.prefill_chunk, options.keep_queries);
  }

  Reused take(std::span<const std::int32_t> tokens, Prefix& prefix) override {
    const std::vector<std::int32_t> ended = with_end(tokens);
    const std::vector<Piece> pieces = cut(ended, prefix);
    const Piece& rest = pieces.back();
    const std::size_t blocks = pieces.size() - 1;
    std::size_t there = 0;
    while (there < blocks && is_prefix_file_of(pieces[there].file, pieces[there].key)) ++there;
    std::string rest_bytes, bytes;
    std::optional<PrefixFileParts> rest_parts;
    if (there == blocks) rest_parts = read_prefix_file(rest.file, rest.key, rest_bytes);
    if (!rest_parts && !reuses_blocks()) there = 0;
    Reused reused;
    settle(device_, kv_, [&] {
      for (std::size_t i = 0; i < there; ++i) {
        if (options_.interrupted && options_.interrupted()) throw Interrupted();
        if (!fits(pieces[i], tokens.size())) break;
        const std::optional<PrefixFileParts> parts = read_prefix_file(pieces[i].file, pieces[i].key, bytes);
        if (!parts) break;
        load(prefix, pieces[i], bytes.data() + parts->kv);
        reused = {pieces[i].own.end, parts->times};
      }
      if (reused.tokens == rest.own.begin && rest_parts && fits(rest, tokens.size())) {
        load(prefix, rest, rest_bytes.data() + rest_parts->kv);
        if (rest.key.query_bytes > 0)
          copy_and_wait<const char>(device_, prefix.queries.values, rest_bytes.data() + rest_parts->queries,
                                    rest.key.query_bytes);
        if (rest.key.sum_bytes > 0)
          copy_and_wait<const char>(device_, prefix.sums.values, rest_bytes.data() + rest_parts->sums,
                                    rest.key.sum_bytes);
        reused = {rest.own.end, rest_parts->times};
      } else if (!reuses_blocks()) {  // a block was damaged, or did not fit
        kv_.truncate(prefix.sequence, 0);
        reused = {};
      }
    });
    if (!options_.column_sums) {  // a run that needed them may have written the file
      reused.times.prefill_ns -= reused.times.sums_ns;
      reused.times.sums_ns = 0;
    }
    mark_used(pieces, reused.tokens);
    return reused;
  }

  void publish(std::span<const std::int32_t> tokens, Prefix& prefix, std::uint32_t reused,
               std::span<const PrefillTimes> chunks) override {
    if (!writes_) return;
    if (options_.prefix_cache.check) options_.prefix_cache.check();
    const std::vector<std::int32_t> ended = with_end(tokens);
    const std::vector<Piece> pieces = cut(ended, prefix);
    try {
      std::vector<const Piece*> missing;
      missing.reserve(pieces.size());
      std::size_t bytes = 0;
      for (const Piece& piece : pieces) {
        if (piece.own.end <= reused || is_prefix_file_of(piece.file, piece.key)) continue;
        missing.push_back(&piece);
        bytes += piece.key.file_bytes();
      }
      std::size_t room = make_room(bytes, pieces);
      for (const Piece* piece : missing) {
        if (piece->key.file_bytes() > room) break;
        room -= piece->key.file_bytes();
        save(prefix, *piece, times_at(piece->own.end, reused, chunks));
      }
      mark_used(pieces, static_cast<std::uint32_t>(tokens.size()));
    } catch (const Interrupted&) {
      throw;
    } catch (const RunError& error) {  // a full disk, for example, which is no reason to end a run
      writes_ = false;
      if (options_.prefix_cache.warn)
        options_.prefix_cache.warn(fmt::format("{} The run goes on without keeping prompts.", error.what()));
    }
  }

 private:
  /// A block, or the rest of a prompt, and its file.
  struct Piece {
    Range own;          // its tokens
    PrefixFileKey key;  // with all before them
    fs::path file;
  };

  const fs::path& folder() const { return options_.prefix_cache.folder; }

  /// Whether to load a piece. If prompts may leave the device, one without room there is prefilled instead.
  bool fits(const Piece& piece, std::size_t tokens) {
    const std::size_t slots = piece.key.kv_bytes / kv_.shape().slot_bytes() +
                              options_.max_batch * fork_slots(kv_.shape(), static_cast<std::uint32_t>(tokens));
    return !options_.host_prompts || slots <= kv_.free_slots(Tier::device);
  }

  /// All blocks of a prompt (with_end()), then its rest. They refer to `ended`.
  std::vector<Piece> cut(std::span<const std::int32_t> ended, const Prefix& prefix) const {
    const std::span<const std::int32_t> tokens = ended.first(ended.size() - 1);
    const std::uint32_t blocks = blocks_of(tokens);
    std::vector<Piece> pieces(blocks + 1);
    std::uint64_t hash = text_hash(identity_);
    for (std::uint32_t i = 0; i <= blocks; ++i) {
      const bool is_rest = i == blocks;
      Piece& piece = pieces[i];
      piece.own.begin = i * block_tokens();
      piece.own.end = is_rest ? static_cast<std::uint32_t>(tokens.size()) : piece.own.begin + block_tokens();
      piece.key.identity = identity_;
      piece.key.tokens = is_rest ? ended : ended.first(piece.own.end);
      piece.key.first = piece.own.begin;
      piece.key.kv_bytes =
          std::size_t{shape_.layers} * blocks_for(piece.own.end - piece.own.begin) * kv_.shape().slot_bytes();
      if (is_rest) {
        piece.key.query_bytes = prefix.queries.values.bytes();
        piece.key.sum_bytes = prefix.sums.values.bytes();
      }
      hash = chain_hash(hash, piece.key.tokens.subspan(piece.own.begin));
      piece.file = folder() / fmt::format("{:016x}-{}{}", hash, piece.own.end, kFileEnd);
    }
    return pieces;
  }

  /// Calls copy(layer, slots) for the pages of a piece, in each layer.
  void for_layers(const Prefix& prefix, const Piece& piece, bool writes, const auto& copy) {
    const Range blocks{piece.own.begin / kPageTokens, blocks_for(piece.own.end)};
    for (std::uint32_t layer = 0; layer < shape_.layers && blocks.begin < blocks.end; ++layer) {
      Op op;
      std::vector<std::uint32_t> slots;
      kv_.append_slots(prefix.sequence, layer, blocks, Tier::device, slots);
      kv_.append_access(prefix.sequence, layer, blocks, Tier::device, Range{0, shape_.kv_heads}, writes, op.access);
      op.cost.pieces = static_cast<std::uint32_t>(slots.size());
      copy(layer, slots, std::move(op));
    }
  }

  void load(const Prefix& prefix, const Piece& piece, const char* kv) {
    // In the same steps as a prefill's, so that slots lie as they would, and with them pieces that cross a link.
    std::vector<Event> after;
    for (std::uint32_t at = piece.own.begin; at < piece.own.end; at += options_.prefill_chunk)
      kv_.grow(prefix.sequence, std::min(options_.prefill_chunk, piece.own.end - at), after);
    const std::size_t layer_bytes = piece.key.kv_bytes / shape_.layers;
    for_layers(prefix, piece, true, [&](std::uint32_t layer, std::span<const std::uint32_t> slots, Op op) {
      op.after = after;
      copy_and_wait(device_, kv_.device_buffer(), kv + layer * layer_bytes, layer_bytes, std::move(op), slots);
    });
  }

  void save(const Prefix& prefix, const Piece& piece, const PrefillTimes& times) {
    PrefixFileParts parts;
    std::string bytes = make_prefix_file(piece.key, times, parts);
    const std::size_t layer_bytes = piece.key.kv_bytes / shape_.layers;
    settle(device_, kv_, [&] {
      for_layers(prefix, piece, false, [&](std::uint32_t layer, std::span<const std::uint32_t> slots, Op op) {
        copy_and_wait(device_, kv_.device_buffer(), bytes.data() + parts.kv + layer * layer_bytes, layer_bytes,
                      std::move(op), slots);
      });
      if (piece.key.query_bytes > 0)
        copy_and_wait(device_, prefix.queries.values, bytes.data() + parts.queries, piece.key.query_bytes);
      if (piece.key.sum_bytes > 0)
        copy_and_wait(device_, prefix.sums.values, bytes.data() + parts.sums, piece.key.sum_bytes);
    });
    seal_prefix_file(bytes);
    replace_file(piece.file, bytes);
  }

  /// Files of the pieces up to a token were used now.
  static void mark_used(const std::vector<Piece>& pieces, std::uint32_t tokens) {
    const auto now = fs::file_time_type::clock::now();
    std::error_code ignored;  // another process may have removed one
    for (const Piece& piece : pieces)
      if (piece.own.end <= tokens) fs::last_write_time(piece.file, now, ignored);
  }

  /// Removes the files that were used least recently, but none of `pieces`, until there is room for `bytes` more or
  /// none is left. Returns the room.
  std::size_t make_room(std::size_t bytes, const std::vector<Piece>& pieces) const {
    struct File {
      fs::file_time_type used;
      std::uint32_t tokens;
      std::uintmax_t bytes;
      fs::path path;
    };
    std::set<fs::path> own;
    for (const Piece& piece : pieces) own.insert(piece.file);
    std::vector<File> files;
    std::uintmax_t held = 0;
    for_files(folder(), [&](const fs::directory_entry& entry) {
      const std::optional<std::uint32_t> tokens = tokens_of(entry.path().filename().native());
      if (!tokens) return;
      std::error_code error;
      const std::uintmax_t size = entry.file_size(error);
      const auto used = error ? fs::file_time_type() : entry.last_write_time(error);
      if (error) return;
      held += size;
      if (!own.contains(entry.path())) files.push_back({used, *tokens, size, entry.path()});
    });
    std::ranges::sort(files, [](const File& a, const File& b) {
      return std::tuple(a.used, b.tokens, a.path) < std::tuple(b.used, a.tokens, b.path);
    });
    const std::size_t budget = options_.prefix_cache.bytes;
    for (const File& file : files) {
      if (held <= budget && bytes <= budget - held) break;
      std::error_code error;
      fs::remove(file.path, error);
      if (!error) held -= file.bytes;
    }
    return held <= budget ? budget - held : 0;
  }

  const EngineOptions& options_;  // the engine's
  Device& device_;
  KvStore& kv_;
  const ModelShape& shape_;  // likewise
  std::string identity_;
  bool writes_ = true;  // no file could not be written yet
};

}  // namespace

std::unique_ptr<PrefixCache> make_prefix_folder(const EngineOptions& options, Device& device, KvStore& kv,
                                                const ModelShape& shape) {
  return std::make_unique<PrefixFolder>(options, device, kv, shape);
}

}  // namespace tandem
