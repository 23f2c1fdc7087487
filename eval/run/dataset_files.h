// Helpers of datasets that are read from published files, one file for each task.
#pragma once

#include <cstdint>
#include <fmt/ranges.h>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/chat.h"
#include "eval/ruler/random.h"

namespace tandem::eval {

/// The hash of files by task: 16 hexadecimal digits.
template <class File>
std::string files_hash(const std::map<std::string, File>& files) {
  std::uint64_t hash = 0;
  for (const auto& [task, file] : files) hash = mix64(hash ^ fnv1a64(task) ^ mix64(file.hash));
  return fmt::format("{:016x}", hash);
}

/// As protocol ids say it: "none", a chat format, or "folder-<hash>".
inline std::string template_name(const std::optional<ChatWriter>& of) {
  return of ? of->name() : "none";
}

/// " --tasks qasper,trec --samples 20"; `samples`: 0 for all.
inline std::string task_arguments(const std::vector<std::string>& tasks, std::uint32_t samples) {
  const std::string some = samples == 0 ? "" : fmt::format(" --samples {}", samples);
  return fmt::format(" --tasks {}{}", fmt::join(tasks, ","), some);
}

/// How many samples of a file are run: `asked`, 0 for all, of those that are `there`.
inline std::uint32_t first_samples(std::uint32_t asked, std::size_t there) {
  const auto all = static_cast<std::uint32_t>(there);
  return asked == 0 || all < asked ? all : asked;
}

}  // namespace tandem::eval
