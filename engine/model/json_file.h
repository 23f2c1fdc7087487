// JSON files of a model folder, read without trusting them.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "engine/common/read_file.h"

namespace tandem {

/// A file that holds one JSON object, nested at most kJsonNesting deep. InputError otherwise, and as read_file().
nlohmann::json read_json_object(const std::filesystem::path& file);

}  // namespace tandem
