#include "eval/report/manifest_difference.h"

#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>
#include <map>

#include "engine/common/error.h"
#include "eval/ruler_tasks/protocol.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

constexpr const char* kNothing = "nothing";

using Values = std::map<std::string, std::string>;

/// Values of "a=x,b=y" by name; a part without a name is called "variant".
Values values_in(std::string_view text, char end, char equals) {
  Values values;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(end));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t at = part.find(equals);
    const bool named = at != std::string_view::npos;
    values[named ? std::string(part.substr(0, at)) : "variant"] = part.substr(named ? at + 1 : 0);
  }
  return values;
}

std::vector<FieldDifference> differences(Values there, Values here) {
  Values names = there;
  names.insert(here.begin(), here.end());
  const auto shown = [](const std::string& value) { return value.empty() ? kNothing : value; };
  std::vector<FieldDifference> differences;
  for (const auto& [name, value] : names)
    if (there[name] != here[name]) differences.push_back({name, shown(there[name]), shown(here[name])});
  return differences;
}

/// As a shell tells them apart, with their quotes.
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

/// Without the room for KV: slots are given out lowest first, however many there are, so that samples and virtual times
/// do not depend on it, and a run that ended for want of room goes on with more. Without the threads: where times
/// depend on them, the clock says how many they are, also where all of a machine were taken unasked.
std::vector<std::string> what_makes_samples(const std::string& command) {
  std::vector<std::string> words = words_of(command), kept;
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] == "--device-kv" || words[i] == "--host-kv" || words[i] == "--threads")
      ++i;
    else
      kept.push_back(std::move(words[i]));
  return kept;
}

/// Of an option that is 1 where it is not given.
std::uint32_t count_in(const std::string& command, std::string_view option) {
  const std::string text = option_in(command, option).value_or("1");
  std::uint32_t count = 1;
  std::from_chars(text.data(), text.data() + text.size(), count);
  return std::max(count, 1u);
}

/// Checks inputs that the command only names: files may have changed, and the machine may be another.
void check_same_inputs(const std::string& run, const Manifest& there, const Manifest& mine) {
  if (there.weights_hash != mine.weights_hash)
    throw_input_error(
        "{} was begun with other weights of '{}', so it cannot be resumed with these ({} there, {} here).", run,
        mine.model, there.weights_hash, mine.weights_hash);
  const bool named = !there.config_hash.empty() && !mine.config_hash.empty();  // of merged runs either may be older
  if (named && there.config_hash != mine.config_hash)
    throw_input_error(
        "{} was begun with another config.json of '{}', so it cannot be resumed with this one ({} there, {} here).",
        run, mine.model, there.config_hash, mine.config_hash);
  std::vector<std::string> protocol;
  for (const FieldDifference& d : protocol_differences(there.protocol_id, mine.protocol_id))
    protocol.push_back(fmt::format("{}: {} there, {} here", d.field, d.there, d.here));
  if (there.protocol_id != mine.protocol_id)
    throw_input_error("{} was begun under another protocol, so it cannot be resumed under this one ({}).", run,
                      fmt::join(protocol, "; "));
  if (there.isa != mine.isa)
    throw_input_error(
        "{} was begun with {}, so it cannot be resumed with the instruction set {}, which rounds differently{}.", run,
        there.isa.empty() ? "an unknown instruction set" : "the instruction set " + there.isa, mine.isa,
        there.isa.empty() ? "" : fmt::format(": set TANDEM_ISA={} where this CPU has it", there.isa));
  const bool compared = there.schema_version >= 14 && mine.schema_version >= 14 && !mine.openblas.empty();
  if (compared && there.openblas != mine.openblas)
    throw_input_error(
        "{} was begun with {}, so it cannot be resumed with OpenBLAS {}, which rounds InfiniGen's eigenvectors "
        "differently: OPENBLAS_CORETYPE names the kernels.",
        run, there.openblas.empty() ? "no OpenBLAS" : "OpenBLAS " + there.openblas, mine.openblas);
  if (there.clock != mine.clock)
    throw_input_error("The times in {} are {}; here they would be {}, so that it cannot be resumed.", run, there.clock,
                      mine.clock);
  const int version = std::min(there.schema_version, mine.schema_version);
  if (version < 5) return;
  // The command need not name them: with another default, the rest of the run would be another computation.
  if (version >= 8 && (there.precision != mine.precision || there.prefill_chunk != mine.prefill_chunk))
    throw_input_error(
        "{} was begun with precision {} and prefill chunks of {} tokens; here they would be {} and {}, so that it "
        "cannot be resumed.",
        run, there.precision, there.prefill_chunk, mine.precision, mine.prefill_chunk);
  if (there.hardware_hash != mine.hardware_hash)
    throw_input_error("The hardware profile '{}' has changed since {} was begun, so that it cannot be resumed.",
                      mine.hardware_profile, run);
  for (const MethodEntry& method : mine.methods) {
    const auto is_there = [&](const MethodEntry& e) { return e.label == method.label && same_method(e, method); };
    if (std::ranges::any_of(there.methods, is_there)) continue;
    throw_input_error(
        "Method '{}' is another one than when {} was begun, by its defaults or by a file that it reads, so that the "
        "run cannot be resumed.",
        method.label, run);
  }
}

}  // namespace

std::vector<FieldDifference> protocol_differences(std::string_view there, std::string_view here) {
  return differences(values_in(there, '+', ':'), values_in(here, '+', ':'));
}

std::vector<FieldDifference> budget_differences(const FieldDifference& budgets) {
  std::vector<FieldDifference> all = differences(values_in(budgets.there, ',', '='), values_in(budgets.here, ',', '='));
  std::erase_if(all, [](const FieldDifference& d) { return d.there == kNothing || d.here == kNothing; });
  return all;
}

bool has_budget(std::string_view name) {
  const auto& known = method_registry();
  const auto info = std::ranges::find(known, name, &MethodInfo::name);
  return info == known.end() || !info->budget.empty();
}

std::string option_of(const MethodEntry& method, const std::string& option) {
  for (const auto& [name, value] : method.options)
    if (name == option) return value;
  for (const MethodInfo& known : method_registry()) {
    if (known.name != method.name) continue;
    for (const OptionInfo& info : known.options)
      if (info.name == option) return info.default_value;
  }
  return "";
}

std::vector<FieldDifference> option_differences(const MethodEntry& a, const MethodEntry& b) {
  std::set<std::string> names;
  for (const MethodEntry* method : {&a, &b})
    for (const auto& option : method->options) names.insert(option.first);
  std::vector<FieldDifference> all;
  for (const std::string& name : names)
    if (option_of(a, name) != option_of(b, name)) all.push_back({name, option_of(a, name), option_of(b, name)});
  return all;
}

bool same_options(const MethodEntry& a, const MethodEntry& b, const std::set<std::string>& but) {
  return std::ranges::all_of(option_differences(a, b), [&](const FieldDifference& d) { return but.contains(d.field); });
}

bool same_method(const MethodEntry& a, const MethodEntry& b) {
  return a.name == b.name && a.content == b.content && same_options(a, b);
}

std::optional<std::string> option_in(const std::string& command, std::string_view option) {
  const std::vector<std::string> words = words_of(command);
  const auto found = std::ranges::find(words, option);
  if (found == words.end() || found + 1 == words.end()) return std::nullopt;
  return *(found + 1);
}

std::uint32_t batch_of(const Manifest& manifest) {
  return count_in(manifest.command, "--batch");
}

std::uint32_t repeats_of(const Manifest& manifest) {
  return count_in(manifest.command, "--repeats");
}

void check_resumable(const std::filesystem::path& path, const Manifest& there, const Manifest& mine) {
  const std::string run = path.string();
  const bool same_samples = there.tasks == mine.tasks && there.lengths == mine.lengths;
  if (const std::string difference = ruler_data_difference(there.protocol_id, mine.protocol_id);
      same_samples && !difference.empty())
    throw_input_error("{} was begun with other data, so it cannot be resumed with these ({}).", run, difference);
  if (what_makes_samples(there.command) != what_makes_samples(mine.command))
    throw_input_error("{} was made by another command, so it cannot be resumed:\n  there: {}\n  here:  {}", run,
                      there.command, mine.command);
  check_same_inputs(run, there, mine);
}

}  // namespace tandem::eval
