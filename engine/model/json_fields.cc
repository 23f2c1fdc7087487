#include "engine/model/json_file.h"

#include <nlohmann/json.hpp>
#include <string>

#include "engine/common/error.h"
#include "engine/common/json.h"

namespace tandem {

nlohmann::json read_json_object(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  if (nests_deeper(text)) throw_input_error("{} is nested more than {} deep.", file.string(), kJsonNesting);
  nlohmann::json json = json_or_discarded(text);
  if (!json.is_object()) throw_input_error("{} is not a JSON object, or it is damaged.", file.string());
  return json;
}

}  // namespace tandem
