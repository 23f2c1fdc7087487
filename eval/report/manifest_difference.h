// In what two runs' manifests differ, for those who ask whether the runs belong together.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/report/schema.h"

namespace tandem::eval {

struct FieldDifference {
  std::string field, there, here;
};

/// Fields of two protocol ids, "<variant>+<field>:<value>+...", that have other values, by name; "nothing" stands for
/// one that only one of them has. The first part, where it has no name, is the field "variant".
std::vector<FieldDifference> protocol_differences(std::string_view there, std::string_view here);

/// What a protocol's field "budget", "a=x,b=y", says of each method.
std::map<std::string, std::string> budgets_of(std::string_view field);

/// The words of a command as a shell tells them apart, with their quotes.
std::vector<std::string> words_of(const std::string& command);

/// What follows the option's name ("--batch") in a command; none where it is not given.
std::optional<std::string> option_in(const std::string& command, std::string_view option);

/// Samples that were decoded together, but for the last ones of a task.
std::uint32_t batch_of(const Manifest& manifest);

/// Answers to each question, --repeats: the samples of question q are the indices q * repeats to q * repeats + repeats
/// - 1.
std::uint32_t repeats_of(const Manifest& manifest);

}  // namespace tandem::eval
