#include "eval/report/links.h"

#include "engine/common/error.h"

namespace tandem::eval {

void refuse_links(const std::filesystem::path& folder) {
  std::error_code refused;  // whoever reads the files says so
  for (auto entry = std::filesystem::directory_iterator(folder, refused);
       !refused && entry != std::filesystem::directory_iterator(); entry.increment(refused)) {
    if (entry->is_symlink(refused))
      throw_input_error("'{}' is a link, and no link in a run's folder is followed. Put the file itself there.",
                        entry->path().string());
  }
}

}  // namespace tandem::eval
