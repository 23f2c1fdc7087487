// How results become text: one way, so that no name of a file, which may be any bytes, can keep them from being
// written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tandem::eval {

/// `indent` below 0: one line. What is no UTF-8 becomes U+FFFD.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tandem::eval
