#include "eval/report/manifest_difference.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace tandem::eval {
namespace {

std::map<std::string, std::string> parts_of(std::string_view id) {
  std::map<std::string, std::string> parts;
  while (!id.empty()) {
    const std::string_view part = id.substr(0, id.find('+'));
    id.remove_prefix(std::min(id.size(), part.size() + 1));
    const std::size_t colon = part.find(':');
    const bool named = colon != std::string_view::npos;
    parts[named ? std::string(part.substr(0, colon)) : "variant"] = part.substr(named ? colon + 1 : 0);
  }
  return parts;
}

}  // namespace

std::vector<FieldDifference> protocol_differences(std::string_view there, std::string_view here) {
  std::map<std::string, std::string> before = parts_of(there), now = parts_of(here);
  std::set<std::string> names;
  for (const auto* parts : {&before, &now})
    for (const auto& [name, value] : *parts) names.insert(name);
  const auto shown = [](const std::string& value) { return value.empty() ? "nothing" : value; };
  std::vector<FieldDifference> differences;
  for (const std::string& name : names)
    if (before[name] != now[name]) differences.push_back({name, shown(before[name]), shown(now[name])});
  return differences;
}

std::map<std::string, std::string> budgets_of(std::string_view field) {
  std::map<std::string, std::string> budgets;
  while (!field.empty()) {
    const std::string_view part = field.substr(0, field.find(','));
    field.remove_prefix(std::min(field.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    if (equals != std::string_view::npos) budgets.emplace(part.substr(0, equals), part.substr(equals + 1));
  }
  return budgets;
}

std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (command[i] == ' ' && !quoted) {
      words.emplace_back();
      continue;
    }
    if (command[i] == '\'') quoted = !quoted;
    words.back() += command[i];
    if (command[i] == '\\' && !quoted && i + 1 < command.size()) words.back() += command[++i];
  }
  return words;
}

std::optional<std::string> option_in(const std::string& command, std::string_view option) {
  const std::vector<std::string> words = words_of(command);
  const auto found = std::ranges::find(words, option);
  if (found == words.end() || found + 1 == words.end()) return std::nullopt;
  return *(found + 1);
}

namespace {

/// Of an option that is 1 where it is not given.
std::uint32_t count_in(const std::string& command, std::string_view option) {
  const std::string text = option_in(command, option).value_or("1");
  std::uint32_t count = 1;
  std::from_chars(text.data(), text.data() + text.size(), count);
  return std::max(count, 1u);
}

}  // namespace

std::uint32_t batch_of(const Manifest& manifest) {
  return count_in(manifest.command, "--batch");
}

std::uint32_t repeats_of(const Manifest& manifest) {
  return count_in(manifest.command, "--repeats");
}

}  // namespace tandem::eval
