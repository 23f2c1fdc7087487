// A prefilled prompt as a file:
//   Header, identity, prompt tokens (int32)
//   KV      [layer][block]{one slot as the store keeps it}
//   queries [layer][kept][query head][head_dim] f32     where they are kept
//   sums    [layer][kv_head][room] f32                  where they are kept
//   hash of all bytes before it
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <random>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/mapped_file.h"
#include "engine/common/read_file.h"
#include "engine/model/safetensors.h"
#include "engine/runtime/engine.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct Header {
  char magic[8] = {'T', 'A', 'N', 'D', 'E', 'M', 'P', '1'};
  std::uint64_t identity_bytes = 0, tokens = 0;  // tokens: of the prompt, the last of which is not prefilled
  std::int64_t prefill_ns = 0, sums_ns = 0;
  std::uint64_t kv_bytes = 0, query_bytes = 0, sum_bytes = 0;
};

/// All bytes of the file but the hash at its end.
std::uint64_t bytes_of(const Header& h) {
  return sizeof(Header) + h.identity_bytes + h.tokens * sizeof(std::int32_t) + h.kv_bytes + h.query_bytes + h.sum_bytes;
}

std::uint64_t hashed(const void* data, std::size_t bytes, std::uint64_t seed) {
  return content_hash({static_cast<const std::byte*>(data), bytes}, seed);
}

/// Writes beside the file and puts it in its place when it is whole.
class Writer {
 public:
  explicit Writer(const fs::path& file) : file_(file) {
    // A process's number is another's, too, in another container or on another machine that shares the folder.
    std::random_device random;
    do {
      part_ = file_.string() + fmt::format(".part{:08x}{:08x}", random(), random());
      out_ = open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (out_ < 0 && errno == EEXIST);
    if (out_ < 0) fail(errno);
  }
  ~Writer() {
    if (out_ >= 0) close(out_);
    std::error_code ignored;
    if (!part_.empty()) fs::remove(part_, ignored);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void write(const void* data, std::size_t bytes) {
    if (bytes == 0) return;
    hash_ = hashed(data, bytes, hash_);
    put(static_cast<const char*>(data), bytes);
  }
  void finish() {
    put(reinterpret_cast<const char*>(&hash_), sizeof hash_);
    if (close(std::exchange(out_, -1)) != 0) fail(errno);
    if (std::rename(part_.c_str(), file_.c_str()) != 0) fail(errno);
    part_.clear();
  }

 private:
  void put(const char* data, std::size_t bytes) {
    while (bytes > 0) {
      const ssize_t written = ::write(out_, data, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail(written < 0 ? errno : ENOSPC);
      data += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }
  [[noreturn]] void fail(int error) const {
    throw_run_error("The prefilled prompt '{}' cannot be written ({}).", file_.string(), std::strerror(error));
  }

  const fs::path file_;
  fs::path part_;
  int out_ = -1;
  std::uint64_t hash_ = 0;
};

/// A file's bytes, read in the order that a Writer wrote them.
class Reader {
 public:
  explicit Reader(const fs::path& file) {
    if (!path_exists(file)) return;
    try {
      mapped_ = MappedFile::open(file);
    } catch (const InputError&) {
      return;
    }
    data_ = reinterpret_cast<const char*>(mapped_->bytes().data());
    bytes_ = mapped_->bytes().size();
  }

  std::size_t bytes() const { return bytes_; }
  /// Whether what was read is what the file had when it was opened.
  bool unchanged() const { return mapped_->unchanged(); }
  /// nullptr where there are no so many more.
  const char* next(std::size_t bytes) {
    if (bytes > bytes_ - at_) return nullptr;
    const char* here = data_ + at_;
    hash_ = bytes == 0 ? hash_ : hashed(here, bytes, hash_);
    at_ += bytes;
    return here;
  }
  bool ends_with_hash() const {
    std::uint64_t hash = 0;
    if (bytes_ - at_ != sizeof hash) return false;
    std::memcpy(&hash, data_ + at_, sizeof hash);
    return hash == hash_;
  }

 private:
  std::shared_ptr<const MappedFile> mapped_;  // null where there is no file that can be read
  const char* data_ = nullptr;
  std::size_t bytes_ = 0, at_ = 0;
  std::uint64_t hash_ = 0;
};

/// The parts of a file that is whole and of this identity and prompt.
struct Parts {
  Header header;
  const char *kv = nullptr, *queries = nullptr, *sums = nullptr;
};

std::optional<Parts> read_parts(Reader& in, std::string_view identity, std::span<const std::int32_t> prompt) {
  Parts parts;
  const char* header = in.next(sizeof(Header));
  if (header == nullptr) return std::nullopt;
  std::memcpy(static_cast<void*>(&parts.header), header, sizeof(Header));
  const Header& h = parts.header;
  if (std::memcmp(h.magic, Header().magic, sizeof h.magic) != 0 || h.identity_bytes != identity.size() ||
      h.tokens != prompt.size())
    return std::nullopt;
  const auto same = [&](const void* data, std::size_t bytes) {
    const char* there = in.next(bytes);
    return there != nullptr && std::memcmp(there, data, bytes) == 0;
  };
  if (!same(identity.data(), identity.size()) || !same(prompt.data(), prompt.size_bytes())) return std::nullopt;
  // Sizes that no file has would wrap around.
  for (const std::uint64_t bytes : {h.kv_bytes, h.query_bytes, h.sum_bytes})
    if (bytes > in.bytes()) return std::nullopt;
  if (bytes_of(h) + sizeof(std::uint64_t) != in.bytes()) return std::nullopt;
  return parts;
}

/// The large parts, each hashed as it was written.
bool read_contents(Reader& in, std::uint32_t layers, Parts& parts) {
  const auto layered = [&](std::uint64_t bytes, const char*& first) {
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      const char* here = in.next(bytes / layers);
      if (here == nullptr) return false;
      if (layer == 0) first = here;
    }
    return true;
  };
  const Header& h = parts.header;
  if (!layered(h.kv_bytes, parts.kv)) return false;
  parts.queries = in.next(h.query_bytes);
  parts.sums = in.next(h.sum_bytes);
  return parts.queries != nullptr && parts.sums != nullptr && in.ends_with_hash();
}

/// Waits for a copy between a buffer of the device and host memory, which is read where it is constant (a load) and
/// written otherwise (a save): whole, or `slots` of them as the store keeps them. `op` says what it waits for.
template <class Byte>
void copy(Device& device, const DeviceBuffer& buffer, Byte* host, std::size_t bytes, Op op = {},
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

/// The same of a layer's pages, `host` [block][slot's bytes].
template <class Byte>
void copy_pages(Device& device, const KvStore& kv, SequenceId sequence, std::uint32_t layer, Range blocks, Byte* host,
                std::vector<Event> after = {}) {
  std::vector<std::uint32_t> slots;
  kv.append_slots(sequence, layer, blocks, Tier::device, slots);
  Op op;
  op.cost.pieces = static_cast<std::uint32_t>(slots.size());
  op.after = std::move(after);
  kv.append_access(sequence, layer, blocks, Tier::device, Range{0, kv.shape().kv_heads}, std::is_const_v<Byte>,
                   op.access);
  copy(device, kv.device_buffer(), host, slots.size() * kv.shape().slot_bytes(), std::move(op), slots);
}

}  // namespace

void Engine::save(const Prefix& prefix, const fs::path& file, std::string_view identity) {
  const ModelShape s = shape();
  const std::uint32_t tokens = kv_->tokens(prefix.sequence);
  const Range blocks{0, blocks_for(tokens)};
  const std::size_t slot_bytes = kv_->shape().slot_bytes();
  Header header;
  header.identity_bytes = identity.size();
  header.tokens = prefix.prompt.size();
  header.prefill_ns = prefix.prefill_ns;
  header.sums_ns = prefix.sums_ns;
  header.kv_bytes = std::uint64_t{s.layers} * blocks.end * slot_bytes;
  header.query_bytes = std::uint64_t{s.layers} * prefix.queries.kept * s.q_heads * s.head_dim * sizeof(float);
  header.sum_bytes = std::uint64_t{s.layers} * s.kv_heads * prefix.sums.room * sizeof(float);
  Writer out(file);
  out.write(&header, sizeof header);
  out.write(identity.data(), identity.size());
  out.write(prefix.prompt.data(), prefix.prompt.size() * sizeof(std::int32_t));
  try {
    std::vector<char> layer_pages(blocks.end * slot_bytes);
    for (std::uint32_t layer = 0; layer < s.layers && !layer_pages.empty(); ++layer) {
      copy_pages(device_, *kv_, prefix.sequence, layer, blocks, layer_pages.data());
      out.write(layer_pages.data(), layer_pages.size());
    }
    for (const auto& [buffer, bytes] :
         {std::pair{&prefix.queries.values, header.query_bytes}, std::pair{&prefix.sums.values, header.sum_bytes}}) {
      std::vector<char> values(bytes);
      if (bytes > 0) copy(device_, *buffer, values.data(), bytes);
      out.write(values.data(), values.size());
    }
    device_.drain();
  } catch (...) {  // of a full disk, after which the run goes on: these copies are not of what comes next
    device_.drain_after_error();
    kv_->all_done();
    throw;
  }
  kv_->all_done();
  out.finish();
}

std::unique_ptr<Prefix> Engine::load(std::span<const std::int32_t> prompt, const fs::path& file,
                                     std::string_view identity) {
  check_prompt(prompt);
  const ModelShape s = shape();
  const auto tokens = static_cast<std::uint32_t>(prompt.size() - 1);
  const Range blocks{0, blocks_for(tokens)};
  const std::size_t slot_bytes = kv_->shape().slot_bytes();
  Reader in(file);
  std::optional<Parts> parts = read_parts(in, identity, prompt);
  if (!parts || parts->header.kv_bytes != std::uint64_t{s.layers} * blocks.end * slot_bytes) return nullptr;
  device_.drain();
  kv_->all_done();
  auto prefix = std::make_unique<Prefix>();
  prefix->queries = room_for_queries({}, 0, tokens);
  prefix->sums = room_for_sums({}, 0, tokens);
  const std::size_t query_bytes = std::size_t{s.layers} * prefix->queries.kept * s.q_heads * s.head_dim * sizeof(float),
                    sum_bytes = std::size_t{s.layers} * s.kv_heads * prefix->sums.room * sizeof(float);
  // It may have been kept for methods that needed more or less of it. Sums that nobody needs here are no hindrance:
  // nothing else of a prefill depends on them, and their time is known.
  const bool without_sums = prefix->sums.room == 0;
  if (parts->header.query_bytes != query_bytes) return nullptr;
  if (!without_sums && parts->header.sum_bytes != sum_bytes) return nullptr;
  if (!read_contents(in, s.layers, *parts)) return nullptr;
  prefix->sequence = kv_->create();
  try {
    // In the same steps as a prefill's, so that slots lie as they would, and with them pieces that cross a link.
    std::vector<Event> after;
    for (std::uint32_t first = 0; first < tokens; first += options_.prefill_chunk)
      kv_->grow(prefix->sequence, std::min(options_.prefill_chunk, tokens - first), after);
    for (std::uint32_t layer = 0; layer < s.layers && tokens > 0; ++layer) {
      if (options_.interrupted && options_.interrupted()) throw Interrupted();
      const char* from = parts->kv + std::size_t{layer} * blocks.end * slot_bytes;
      copy_pages(device_, *kv_, prefix->sequence, layer, blocks, from, after);
    }
    if (query_bytes > 0) copy(device_, prefix->queries.values, parts->queries, query_bytes);
    if (sum_bytes > 0) copy(device_, prefix->sums.values, parts->sums, sum_bytes);
    device_.drain();
  } catch (...) {
    device_.drain_after_error();
    kv_->all_done();
    release(*prefix);
    throw;
  }
  kv_->all_done();
  if (!in.unchanged()) {  // between the hash and the copies
    release(*prefix);
    return nullptr;
  }
  prefix->prompt.assign(prompt.begin(), prompt.end());
  prefix->prefill_ns = parts->header.prefill_ns - (without_sums ? parts->header.sums_ns : 0);
  prefix->sums_ns = without_sums ? 0 : parts->header.sums_ns;
  return prefix;
}

}  // namespace tandem
