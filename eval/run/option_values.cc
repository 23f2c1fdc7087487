#include "eval/run/option_values.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/trimmed.h"

namespace tandem::eval {
namespace {

constexpr std::uint64_t kLongestContext = std::uint64_t{16} << 20;

/// The number at the front and the rest; nothing where there is none, or it is no finite plain decimal.
template <class Number>
std::optional<std::pair<Number, std::string_view>> leading_number(std::string_view text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  Number value{};
  std::from_chars_result result{};
  if constexpr (std::is_floating_point_v<Number>) {
    result = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  } else {
    result = std::from_chars(text.data(), text.data() + text.size(), value);
  }
  if (result.ec != std::errc{}) return std::nullopt;
  return std::pair{value, text.substr(static_cast<std::size_t>(result.ptr - text.data()))};
}

std::uint32_t parse_length(std::string_view text, std::string_view option) {
  const auto number = leading_number<std::uint64_t>(text);
  std::uint64_t unit = 0;
  if (number) {
    const std::string_view suffix = number->second;
    if (suffix.empty()) unit = 1;
    if (suffix == "K" || suffix == "k") unit = 1024;
    if (suffix == "M" || suffix == "m") unit = 1024 * 1024;
  }
  if (!number || unit == 0) {
    throw_input_error("{}: '{}' is not a length. Write tokens, for example 4096 or 4K; several with commas: 4K,32K.",
                      option, text);
  }
  if (number->first == 0 || number->first > kLongestContext / unit) {
    throw_input_error("{}: the length '{}' is outside 1 to 16M tokens.", option, text);
  }
  return static_cast<std::uint32_t>(number->first * unit);
}

}  // namespace

std::vector<std::uint32_t> parse_lengths(std::string_view text, std::string_view option) {
  std::vector<std::uint32_t> lengths;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = trimmed(text.substr(at, comma - at));
    const std::uint32_t length = parse_length(item, option);
    if (std::find(lengths.begin(), lengths.end(), length) != lengths.end()) {
      throw_input_error("{}: the length {} ('{}') is given twice.", option, length, item);
    }
    lengths.push_back(length);
    at = comma + 1;
  }
  return lengths;
}

std::uint32_t parse_one_length(std::string_view text, std::string_view option) {
  const std::vector<std::uint32_t> lengths = parse_lengths(text, option);
  if (lengths.size() != 1) throw_input_error("{} is '{}': give one length.", option, text);
  return lengths.front();
}

double parse_real(std::string_view text, std::string_view option) {
  double value = 0;
  const std::from_chars_result result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc{} || result.ptr != text.data() + text.size() || !std::isfinite(value))
    throw_input_error("{} is '{}': give a number, for example 0.05.", option, text);
  return value;
}

void check_range(const char* option, std::uint64_t value, std::uint64_t least, std::uint64_t most, const char* unit) {
  if (value < least || value > most) throw_input_error("{} is {}: give {} to {}{}.", option, value, least, most, unit);
}

std::uint64_t parse_count(std::string_view text, std::string_view option, std::uint64_t low, std::uint64_t high) {
  const std::string_view item = trimmed(text);
  const auto number = leading_number<std::uint64_t>(item);
  if (!number || !number->second.empty() || number->first < low || number->first > high) {
    throw_input_error("{}: '{}' is not a whole number from {} to {}.", option, text, low, high);
  }
  return number->first;
}

std::vector<std::string> split_list(const std::string& text, std::string_view option) {
  std::vector<std::string> items;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    std::string item(trimmed(std::string_view(text).substr(at, comma - at)));
    if (item.empty()) throw_input_error("{} is '{}': there is nothing between two commas or at an end.", option, text);
    if (std::find(items.begin(), items.end(), item) != items.end())
      throw_input_error("{}: '{}' is given twice.", option, item);
    items.push_back(std::move(item));
    at = comma + 1;
  }
  return items;
}

std::uint64_t parse_size(std::string_view text, std::string_view option) {
  const std::string_view item = trimmed(text);
  const auto number = leading_number<double>(item);
  double unit = 0;
  if (number) {
    std::string suffix(trimmed(number->second));
    std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
    if (suffix.empty() || suffix == "B") unit = 1;
    for (std::size_t power = 1; power <= 4; ++power) {
      const std::string letter(1, "KMGT"[power - 1]);
      if (suffix == letter || suffix == letter + "IB") unit = std::pow(1024.0, power);
      if (suffix == letter + "B") unit = std::pow(1000.0, power);
    }
  }
  if (!number || unit == 0) {
    throw_input_error("{}: '{}' is not a size. Write bytes with a unit, for example 2G, 512M or 1.5GB.", option, text);
  }
  const double bytes = number->first * unit;
  if (bytes < 1 || bytes > 9.0e18)
    throw_input_error("{}: the size '{}' is outside 1 byte to 9e18 bytes.", option, text);
  return static_cast<std::uint64_t>(bytes);
}

std::string shell_word(std::string_view text) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_@%+=:,./-").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

}  // namespace tandem::eval
