#include "engine/model/json_fields.h"

namespace tandem {

nlohmann::json json_object_of(std::string_view text, const std::filesystem::path& file) {
  if (nests_deeper(text)) throw_input_error("{} is nested more than {} deep.", file.string(), kJsonNesting);
  nlohmann::json json = json_or_discarded(text);
  if (!json.is_object()) throw_input_error("{} is not a JSON object, or it is damaged.", file.string());
  return json;
}

nlohmann::json read_json_object(const std::filesystem::path& file) {
  return json_object_of(read_file(file), file);
}

}  // namespace tandem
