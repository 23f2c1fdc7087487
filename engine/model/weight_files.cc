#include "engine/model/weight_files.h"

#include <sys/stat.h>
#include <utility>

#include "engine/model/safetensors.h"

namespace tandem {

namespace fs = std::filesystem;

WeightFiles::Stamp WeightFiles::stamp_of(const fs::path& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0)
    throw WeightsChanged(fmt::format("The weights in {} were removed while they were used.", file.string()));
  const auto ns = [](const timespec& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; };
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size), ns(status.st_mtim),
          ns(status.st_ctim)};
}

WeightFiles::WeightFiles(const Model& model) : folder_(model.folder), hash_(model.weights_hash) {
  if (model.synthetic || folder_.empty()) return;
  std::error_code refused;
  for (const auto& entry : fs::directory_iterator(folder_, refused)) {
    const std::string name = entry.path().filename().string();
    if ((name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) && entry.is_regular_file(refused))
      stamps_.emplace(entry.path(), stamp_of(entry.path()));
  }
}

/// Throws for all that can be told without reading.
bool WeightFiles::times_are_as_they_were() {
  bool same = true;
  for (auto& [file, stamp] : stamps_) {
    const Stamp before = std::exchange(stamp, stamp_of(file));
    same = same && stamp == before;
    if (stamp.device != before.device || stamp.inode != before.inode || stamp.bytes != before.bytes)
      throw WeightsChanged(
          fmt::format("The weights in {} were replaced, or changed their size, while they were used.", file.string()));
  }
  return same;
}

void WeightFiles::check() {
  if (!times_are_as_they_were()) check_bytes();
}

void WeightFiles::check_bytes() {
  times_are_as_they_were();
  if (stamps_.empty()) return;
  std::string hash;
  try {
    hash = fmt::format("{:016x}", TensorFiles::open_folder(folder_, {WeightPlace::In::passing, {}}).hash());
  } catch (const InputError&) {  // a header that was written over
  }
  if (hash != hash_)
    throw WeightsChanged(
        fmt::format("The weights in {} were written over while they were used.", stamps_.begin()->first.string()));
}

}  // namespace tandem
