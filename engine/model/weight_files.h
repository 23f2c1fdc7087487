// Notices that the files of a model's weights, which are mapped, change while a run reads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "engine/common/error.h"
#include "engine/model/model.h"

namespace tandem {

/// Names the file. What was computed since the weights were loaded may be wrong.
class WeightsChanged : public RunError {
 public:
  using RunError::RunError;
};

class WeightFiles {
 public:
  /// Of a model that was just loaded. One without a folder has no files.
  explicit WeightFiles(const Model& model);

  /// Throws WeightsChanged where a file is another one (device, inode), has another size or is gone. Where only its
  /// times differ, its bytes decide.
  void check();
  void check_bytes();  // reads all bytes again, too

 private:
  struct Stamp {
    std::uint64_t device = 0, inode = 0, bytes = 0;
    std::int64_t written_ns = 0, changed_ns = 0;  // since 1970
    bool operator==(const Stamp&) const = default;
  };
  static Stamp stamp_of(const std::filesystem::path& file);
  bool times_are_as_they_were();

  std::filesystem::path folder_;
  std::string hash_;  // Model::weights_hash
  std::map<std::filesystem::path, Stamp> stamps_;
};

}  // namespace tandem
