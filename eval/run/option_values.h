// Values of options as people type them. Functions that take an option's name have it for their sentences, and throw
// InputError.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

/// Context lengths in tokens: "4K,32768" -> {4096, 32768}. K is 1024, M is 1024 K. Each between 1 and 16M, none twice.
std::vector<std::uint32_t> parse_lengths(std::string_view text, std::string_view option);

/// The same where one length is asked for, not a list.
std::uint32_t parse_one_length(std::string_view text, std::string_view option);

/// A whole number in [low, high], digits only.
std::uint64_t parse_count(std::string_view text, std::string_view option, std::uint64_t low, std::uint64_t high);

/// A finite number, "0.05", "-1" or "1e-3", and nothing else.
double parse_real(std::string_view text, std::string_view option);

/// For options that hold numbers already: from `least` to `most`; `unit`: " tokens" behind these in the sentence.
void check_range(const char* option, std::uint64_t value, std::uint64_t least, std::uint64_t most,
                 const char* unit = "");

/// What stands between commas, without spaces around it: "a, b" -> {"a", "b"}; nothing empty, nothing twice.
std::vector<std::string> split_list(const std::string& text, std::string_view option);

/// Bytes: "2G", "1.5GiB", "512M", "4096". K, M, G, T (and KiB, ...) are powers of 1024, KB, MB, ... powers of 1000. At
/// least one byte; a fraction of a byte is cut.
std::uint64_t parse_size(std::string_view text, std::string_view option);

/// The other way, for commands that can be typed again: `text` as a shell reads it back, quoted where it has to be.
std::string shell_word(std::string_view text);

}  // namespace tandem::eval
