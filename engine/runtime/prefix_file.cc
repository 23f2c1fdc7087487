#include "engine/runtime/prefix_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <random>
#include <unistd.h>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/read_file.h"
#include "engine/model/safetensors.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct PrefixHeader {
  char magic[8] = {'T', 'A', 'N', 'D', 'E', 'M', 'P', '2'};
  std::uint64_t identity_bytes = 0, tokens = 0, first = 0;
  std::int64_t prefill_ns = 0, sums_ns = 0;
  std::uint64_t kv_bytes = 0, query_bytes = 0, sum_bytes = 0;
};

using EndHash = std::uint64_t;

std::size_t head_bytes(const PrefixFileKey& key) {
  return sizeof(PrefixHeader) + key.identity.size() + key.tokens.size_bytes();
}

EndHash hash_of(std::string_view bytes) {
  return content_hash(std::as_bytes(std::span(bytes.data(), bytes.size() - sizeof(EndHash))));
}

/// The header of a file of so many bytes that begins with `head` and is the key's.
std::optional<PrefixHeader> header_of(std::string_view head, std::uintmax_t bytes, const PrefixFileKey& key) {
  if (head.size() < head_bytes(key)) return std::nullopt;
  PrefixHeader h;
  std::memcpy(static_cast<void*>(&h), head.data(), sizeof h);
  const char *const identity = head.data() + sizeof h, *const tokens = identity + key.identity.size();
  const bool same = std::memcmp(h.magic, PrefixHeader().magic, sizeof h.magic) == 0 &&
                    h.identity_bytes == key.identity.size() && h.tokens == key.tokens.size() && h.first == key.first &&
                    h.kv_bytes == key.kv_bytes && h.query_bytes == key.query_bytes &&
                    (h.sum_bytes == key.sum_bytes || key.sum_bytes == 0) &&
                    std::memcmp(identity, key.identity.data(), key.identity.size()) == 0 &&
                    std::memcmp(tokens, key.tokens.data(), key.tokens.size_bytes()) == 0;
  if (!same || bytes < key.file_bytes() || key.file_bytes() - key.sum_bytes + h.sum_bytes != bytes) return std::nullopt;
  return h;
}

PrefixFileParts parts_of(const PrefixFileKey& key) {
  PrefixFileParts parts;
  parts.kv = head_bytes(key);
  parts.queries = parts.kv + key.kv_bytes;
  parts.sums = parts.queries + key.query_bytes;
  return parts;
}

}  // namespace

std::size_t PrefixFileKey::file_bytes() const {
  return head_bytes(*this) + kv_bytes + query_bytes + sum_bytes + sizeof(EndHash);
}

std::string make_prefix_file(const PrefixFileKey& key, const PrefillTimes& times, PrefixFileParts& parts) {
  PrefixHeader h;
  h.identity_bytes = key.identity.size();
  h.tokens = key.tokens.size();
  h.first = key.first;
  h.prefill_ns = times.prefill_ns;
  h.sums_ns = times.sums_ns;
  h.kv_bytes = key.kv_bytes;
  h.query_bytes = key.query_bytes;
  h.sum_bytes = key.sum_bytes;
  std::string bytes(key.file_bytes(), '\0');
  char* at = bytes.data();
  for (const auto& [data, size] : {std::pair<const void*, std::size_t>{&h, sizeof h},
                                   {key.identity.data(), key.identity.size()},
                                   {key.tokens.data(), key.tokens.size_bytes()}}) {
    std::memcpy(at, data, size);
    at += size;
  }
  parts = parts_of(key);
  parts.times = times;
  return bytes;
}

void seal_prefix_file(std::string& bytes) {
  const EndHash hash = hash_of(bytes);
  std::memcpy(bytes.data() + bytes.size() - sizeof hash, &hash, sizeof hash);
}

std::optional<PrefixFileParts> read_prefix_file(const fs::path& file, const PrefixFileKey& key, std::string& bytes) {
  if (!path_exists(file)) return std::nullopt;
  try {
    bytes = read_file(file, std::numeric_limits<std::size_t>::max());
  } catch (const InputError&) {
    return std::nullopt;
  }
  const std::optional<PrefixHeader> header = header_of(bytes, bytes.size(), key);
  EndHash hash = 0;
  if (header) std::memcpy(&hash, bytes.data() + bytes.size() - sizeof hash, sizeof hash);
  if (!header || hash != hash_of(bytes)) {
    std::error_code ignored;
    if (header) fs::remove(file, ignored);
    return std::nullopt;
  }
  PrefixFileParts parts = parts_of(key);
  parts.times = {header->prefill_ns, header->sums_ns};
  return parts;
}

bool is_prefix_file_of(const fs::path& file, const PrefixFileKey& key) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(file, error);
  if (error || bytes < key.file_bytes()) return false;
  std::string head(head_bytes(key), '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  return in && header_of(head, bytes, key).has_value();
}

void replace_file(const fs::path& file, std::string_view bytes) {
  const auto fail = [&](int error) {
    throw_run_error("The prefilled prompt '{}' cannot be written ({}).", file.string(), std::strerror(error));
  };
  // A process's number is another's, too, in another container or on another machine that shares the folder.
  std::random_device random;
  std::string part;
  int out = -1;
  do {
    part = file.string() + fmt::format(".part{:08x}{:08x}", random(), random());
    out = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (out < 0 && errno == EEXIST);
  int error = out < 0 ? errno : 0;
  while (error == 0 && !bytes.empty()) {
    const ssize_t written = ::write(out, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      error = written < 0 ? errno : ENOSPC;
    else
      bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  if (out >= 0 && close(out) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(part.c_str(), file.c_str()) != 0) error = errno;
  if (error == 0) return;
  std::error_code ignored;
  if (out >= 0) fs::remove(part, ignored);
  fail(error);
}

}  // namespace tandem
