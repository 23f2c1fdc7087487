// The `tandem` program: the list of subcommands, and what becomes of errors.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <fmt/core.h>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/say.h"
#include "engine/common/error.h"
#include "engine/common/version.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

void add_subcommands(Command app) {
  add_compare(app);
  add_eval(app);
  add_report(app);
  add_merge(app);
  add_gate(app);
  add_generate(app);
  add_bench(app);
  add_methods(app);
  add_profile(app);
  add_fluxion(app);
  add_simulate(app);
  add_validate(app);
  add_plan(app);
  add_reproduce(app);
  add_calibrate(app);
  add_info(app);
}

constexpr const char* kFooter = R"(
Start with `tandem compare --samples 2`: it needs no GPU and no download. Device is the GPU, host the CPU and its memory;
a method's budget is how much of the context it reads or keeps.

Examples:
  tandem compare                                    all methods on the embedded model, two minutes
  tandem compare --methods full,hybrid-fixed:budget=0.05 --lengths 4K --hw fluxion-a100
  tandem eval perplexity --text book.txt            how much a method loses when every token goes through it
  tandem simulate --as qwen3-8b --context 16K,64K --batch 1,16    which method is fast on which hardware
  tandem gate --baseline baseline --run run         whether a run is as good as an earlier one: exit code 0 or 1
  tandem methods hybrid-fixed                       what a method does, and its options
  tandem profile heads                              where the attention of a model's heads goes
  tandem fluxion collect --out data                 training data for Fluxion's predictor
  tandem bench decode --context 8K                  real time of a decode step on this machine, by operation
  tandem bench prefill --tokens 4K                  and of a prefill
  tandem calibrate --probe probe.json --base h200 --out mine.json      this machine as a hardware profile, for --hw

Numbers come from one of two clocks, named in the head of every column: "measured on ..." is this machine's, "simulated
for ..." is virtual time computed from a hardware profile, the same in every run (with the same CPU instruction set).

Exit codes: 0 done, 1 a gate failed, 2 bad usage or input, 3 a run failed.

`tandem <subcommand> --help` explains each subcommand with an example.)";

int give_up(ExitCode code, const std::string& sentence) {
  say("tandem: " + sentence);
  return code;
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

/// The innermost subcommand on the command line, or the program itself.
const CLI::App* chosen(const CLI::App* app) {
  const auto commands = app->get_subcommands();
  return commands.empty() ? app : chosen(commands.front());
}

/// "tandem profile heads".
std::string full_name(const CLI::App& command) {
  return (command.get_parent() == nullptr ? "" : full_name(*command.get_parent()) + " ") + command.get_name();
}

/// What CLI11 found wrong, with a suggestion where a name is near.
int explain_usage(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  const CLI::App& command = *chosen(&app);
  const bool at_top = &command == &app;
  if (at_top && !words.empty() && !words[0].starts_with('-')) {
    const auto names = subcommand_names(app);
    return give_up(kBadInput, fmt::format("There is no subcommand '{}'.{} There are {}.", words[0],
                                          did_you_mean(words[0], names), join_names(names)));
  }
  const std::string help = full_name(command) + " --help";
  const auto inner = subcommand_names(command);
  for (const std::string& word : app.remaining(true)) {
    if (!word.starts_with('-') && !at_top && !inner.empty()) {
      return give_up(kBadInput, fmt::format("{} has no '{}'.{} There is {}.", full_name(command), word,
                                            did_you_mean(word, inner), join_names(inner)));
    }
    if (!word.starts_with('-')) {
      return give_up(kBadInput, fmt::format("'{}' is one word too many; see {}.", word, help));
    }
    const std::string name = word.substr(0, word.find('='));
    std::vector<std::string> options;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& long_name : option->get_lnames()) options.push_back("--" + long_name);
    }
    const std::string suggestion = name.starts_with("--") ? did_you_mean(name, options) : "";
    return give_up(kBadInput, fmt::format("There is no option '{}'{}.{} See {}.", name,
                                          at_top ? "" : " of " + full_name(command), suggestion, help));
  }
  const std::string what = error.what();
  const bool mismatch = dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
  for (const CLI::Option* option : command.get_options()) {
    if (mismatch && option->count() < 2 && what.starts_with(option->get_name() + ":"))
      return give_up(kBadInput, fmt::format("{} has no value; see {}.", option->get_name(), help));
  }
  for (const CLI::Option* option : command.get_options()) {
    if (!mismatch || option->count() < 2) continue;
    return give_up(kBadInput, fmt::format("{} is given {} times: give it once; see {}.", option->get_name(),
                                          option->count(), help));
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    if (!inner.empty())
      return give_up(kBadInput,
                     fmt::format("{} needs a subcommand: {}; see {}.", full_name(command), join_names(inner), help));
    for (const CLI::Option* option : command.get_options())
      if (option->get_required() && option->count() == 0)
        return give_up(kBadInput, fmt::format("{} needs {}; see {}.", full_name(command), option->get_name(), help));
  }
  return give_up(kBadInput, fmt::format("{}; see {}.", what, help));
}

std::vector<std::string> words_of(int argc, char** argv) {
  return {argv + 1, argv + argc};
}

/// Files 0 to 2 are taken, so that none that is opened becomes standard input or output where the caller closed these.
/// What would be written there is still refused.
void open_standard_files() {
  for (int file = 0; file < 3; ++file) {
    if (fcntl(file, F_GETFD) >= 0 || errno != EBADF) continue;
    if (open("/dev/null", O_RDONLY) < 0) return;  // takes the lowest number that is free
  }
}

/// The command that `tandem help profile heads` asks about; null, and an error said, where there is none.
const CLI::App* asked_about(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (auto word = words.begin() + 1; word != words.end(); ++word) {
    if (*word == "--help" || *word == "-h") continue;
    const auto inner = command->get_subcommands([](const CLI::App*) { return true; });
    const auto found =
        std::find_if(inner.begin(), inner.end(), [&](const CLI::App* one) { return one->get_name() == *word; });
    if (found == inner.end()) {
      const auto names = subcommand_names(*command);
      give_up(kBadInput,
              names.empty()
                  ? fmt::format("{} has no '{}' to explain: give the command alone.", full_name(*command), *word)
                  : fmt::format("{} has no '{}'.{} There {} {}.", full_name(*command), *word,
                                did_you_mean(*word, names), names.size() == 1 ? "is" : "are", join_names(names)));
      return nullptr;
    }
    command = *found;
  }
  return command;
}

/// Processes that each run a part of their own (--shard rank) do not wait for one another.
bool is_ranked_shard(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] == "--shard=rank" || (words[i] == "--shard" && i + 1 < words.size() && words[i + 1] == "rank"))
      return true;
  return false;
}

/// What needs no other rank waits for none.
bool only_asks(const std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "help") return true;
  return std::any_of(words.begin(), words.end(),
                     [](const std::string& word) { return word == "--help" || word == "-h" || word == "--version"; });
}

int run(const std::vector<std::string>& words) {
  CLI::App app{
      "Tandem: accuracy and latency of methods that decode long contexts with most of the KV cache in CPU memory",
      "tandem"};
  app.footer(kFooter);
  app.set_version_flag("--version", fmt::format("tandem {} ({})", version(), git_commit()));
  app.require_subcommand(0, 1);
  format_help(app);
  add_subcommands(Command(app));

  if (words.empty()) {
    fmt::print(stderr, "{}", app.help());
    return kBadInput;
  }
  if (words[0] == "help") {
    const CLI::App* const command = asked_about(app, words);
    if (command == nullptr) return kBadInput;
    const CLI::App* const parent = command->get_parent();
    std::fputs(command->help(parent == nullptr ? "" : full_name(*parent)).c_str(), stdout);
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? kDone
                                                                : give_up(kRunFailed, "The output cannot be written.");
  }
  handle_interrupts();
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes the last one first
    check_stdout();
    if (app.get_subcommands().empty()) {
      return give_up(kBadInput, fmt::format("A subcommand is missing: one of {}.", join_names(subcommand_names(app))));
    }
    return kDone;
  } catch (const CLI::Success& asked_for_help) {
    const int code = app.exit(asked_for_help);
    const bool arrived = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    return arrived ? code : give_up(kRunFailed, "The output cannot be written.");
  } catch (const CLI::ParseError& error) {
    return explain_usage(app, error, words);
  } catch (const GateFailed& error) {
    return give_up(kGateFailed, error.what());
  } catch (const InputError& error) {
    return give_up(kBadInput, error.what());
  } catch (const Interrupted&) {  // who has something to keep has said what became of it
    return give_up(kRunFailed, "Interrupted.");
  } catch (const RunError& error) {
    return give_up(kRunFailed, error.what());
  } catch (const std::system_error& error) {  // fmt's, where the output cannot be written
    return give_up(kRunFailed, fmt::format("The system refuses: {}.", error.what()));
  } catch (const std::bad_alloc&) {
    return give_up(
        kRunFailed,
        "There is not enough memory for this. Shorter contexts, fewer samples or a smaller batch need less.");
  } catch (const std::exception& error) {
    return give_up(
        kRunFailed,
        fmt::format("{}. This is a mistake of the program, or of the method that it names, not of the command: "
                    "please report it with that and the output of `tandem info`.",
                    error.what()));
  }
}

}  // namespace
}  // namespace tandem::cli

int main(int argc, char** argv) {
  tandem::cli::open_standard_files();
  const std::vector<std::string> words = tandem::cli::words_of(argc, argv);
  try {
    tandem::method_registry();             // every help text asks for it
  } catch (const std::exception& error) {  // of a folder of TANDEM_METHODS
    return tandem::cli::give_up(tandem::cli::kBadInput, error.what());
  }
  if (tandem::cli::only_asks(words) || tandem::cli::is_ranked_shard(words)) return tandem::cli::run(words);
  return tandem::cli::run_as_rank([=] { return tandem::cli::run(words); });
}
