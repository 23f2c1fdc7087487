// Where the files that ship with Tandem are: hardware profiles, the embedded model, wording.
#pragma once

#include <filesystem>
#include <string_view>

namespace tandem {

/// Path of a shipped file, for example data_path("hardware/profiles"). Looks under $TANDEM_HOME, then beside the
/// program (../share/tandem, for a relocated copy), then in the source tree. Throws InputError naming all three.
std::filesystem::path data_path(std::string_view relative);

/// Where the program was built from; it may be gone.
std::filesystem::path source_folder();

}  // namespace tandem
