// Where the bytes of a model's weights lie: in its files, or in a copy of them.
#pragma once

#include <cstdint>
#include <functional>

namespace tandem {

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

}  // namespace tandem
