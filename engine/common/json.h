// JSON text, parsed and written here alone: a file that does both with each of the library's two kinds of objects takes
// the compiler 9.8 s, one that only reads fields 2.7 s (g++ 12, -O2, CPU time on a 2-core VM, Zen 4).
// nlohmann::json sorts an object's names and finds one fast, ordered_json keeps the order of the text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tandem {

/// Values nest at most this deep: the library copies and prints them with recursion.
inline constexpr int kJsonNesting = 32;

/// Whether brackets in JSON text nest deeper than `most`.
bool nests_deeper(std::string_view json, int most = kJsonNesting);

/// InputError, in a sentence that begins with `where`, for what is no JSON, has a zero byte or anything else behind
/// it, nests deeper than kJsonNesting, or has a name twice in one object (of which the library would keep one).
nlohmann::json parse_json(std::string_view text, const std::string& where);
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where);

/// For callers with a sentence of their own: discarded for what is no JSON, has a zero byte or nests deeper. The last
/// of equal names counts.
nlohmann::json json_or_discarded(std::string_view text);

/// `indent` below 0: one line. What is no UTF-8, such as a file's name, becomes U+FFFD.
std::string json_text(const nlohmann::json& json, int indent = -1);
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

/// A text in quotes, as json_text() writes it; with `ascii`, escapes for what is not.
std::string json_quoted(const std::string& text, bool ascii = false);

/// A value as an error shows it: its first 60 bytes, and no half of a character.
std::string json_excerpt(const nlohmann::json& json);
std::string json_excerpt(const nlohmann::ordered_json& json);

}  // namespace tandem
