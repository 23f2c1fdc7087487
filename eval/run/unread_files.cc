#include "eval/run/unread_files.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "engine/common/interrupt.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNamed = 5;

}  // namespace

std::vector<fs::path> unread_files(const std::vector<fs::path>& folders, const std::set<fs::path>& read) {
  std::set<fs::path> unread;
  for (const fs::path& folder : folders) {
    std::error_code refused, unknown;
    for (fs::directory_iterator at(folder, refused); !refused && at != fs::directory_iterator();
         at.increment(refused)) {
      stop_if_interrupted();
      const fs::path& path = at->path();
      // A link that leads nowhere is data that is left out, too.
      if (path.extension() == ".jsonl" && !at->is_directory(unknown) && !read.contains(path)) unread.insert(path);
    }
  }
  return {unread.begin(), unread.end()};
}

std::string unread_note(std::string_view option, const fs::path& folder, const std::vector<fs::path>& files,
                        std::string_view rule) {
  if (files.empty()) return "";
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(files.size(), kNamed); ++i) {
    names.push_back(files[i].lexically_relative(folder).string());
    if (!files[i].has_filename()) names.back() += " (cannot be opened)";
  }
  const std::string more = files.size() > kNamed ? fmt::format(" and {} more", files.size() - kNamed) : "";
  return fmt::format("{}: not read from '{}': {}{}; {}.", option, folder.string(), fmt::join(names, ", "), more, rule);
}

}  // namespace tandem::eval
