// Compares what two runs' manifests say: whether the runs belong together, and whether one can go on.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
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

/// Splits a difference in "budget" ("quest=tokens,h2o=share") into the methods whose budgets count other things.
std::vector<FieldDifference> budget_differences(const FieldDifference& budgets);

/// Whether a method of this name has a budget; one that this program does not know may.
bool has_budget(std::string_view name);

/// An option's value: the default in runs that are older than the option, empty where neither knows it.
std::string option_of(const MethodEntry& method, const std::string& option);

/// Options whose values, as option_of() has them, differ.
std::vector<FieldDifference> option_differences(const MethodEntry& a, const MethodEntry& b);
/// No difference except in those of `but`.
bool same_options(const MethodEntry& a, const MethodEntry& b, const std::set<std::string>& but = {});

/// The same method with the same options, and files of the same content.
bool same_method(const MethodEntry& a, const MethodEntry& b);

/// What follows the option's name ("--batch") in a command; none where it is not given.
std::optional<std::string> option_in(const std::string& command, std::string_view option);

/// Samples that were decoded together, but for the last ones of a task.
std::uint32_t batch_of(const Manifest& manifest);

/// Answers to each question (--repeats): question q has as many indices, from q * repeats on.
std::uint32_t repeats_of(const Manifest& manifest);

/// InputError, naming what differs, where the run in `path` was made by another command, with other weights or data,
/// under another protocol, or with another instruction set, clock, hardware profile or method than `mine`. Room for KV
/// (--device-kv, --host-kv) changes no byte of a sample; the clock has the number of threads where it matters.
void check_resumable(const std::filesystem::path& path, const Manifest& there, const Manifest& mine);

}  // namespace tandem::eval
