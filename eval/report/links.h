// Links in a run's folder.
#pragma once

#include <filesystem>

namespace tandem::eval {

/// InputError where an entry of the folder is a link: a stranger's could have any file of this machine read, and shown
/// as the run's. The folder's own name may be one.
void refuse_links(const std::filesystem::path& folder);

}  // namespace tandem::eval
