// The list of subcommands, and what becomes of errors.
#include "cli/program.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <fmt/core.h>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/task_names.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

constexpr const char* kFooter = R"(
Start with `tandem compare --samples 2`: it needs no GPU and no download. Device is the GPU, host the CPU and its memory;
a method's budget is how much of the context it reads or keeps.

Examples:
  tandem compare                                    all methods on the embedded model, two minutes on two cores
  tandem compare --methods full,hybrid-fixed:budget=0.05 --lengths 4K --hw fluxion-a100
  tandem eval perplexity --text book.txt            how much a method loses when every token goes through it
  tandem advise --hw rtx-4090 --context 32K --lose 2    which method to run on a machine
  tandem simulate --as qwen3-8b --context 16K,64K --batch 1,16    which method is fast on which hardware
  tandem gate --baseline baseline --run run         whether a run is as good as an earlier one: exit code 0 or 1
  tandem methods hybrid-fixed                       what a method does, and its options
  tandem profile heads                              where the attention of a model's heads goes
  tandem fluxion collect --out data                 training data for Fluxion's predictor
  tandem bench decode --context 8K                  real time of a decode step on this machine, by operation
  tandem bench prefill --tokens 4K                  and of a prefill
  tandem calibrate --probe probe.json --base h200 --out mine.json      this machine as a hardware profile, for --hw

--method and --methods, --length and --lengths, --context and --contexts are the same option everywhere.

Numbers come from one of two clocks, named with every table: "measured on ..." is this machine's, "simulated
for ..." is virtual time computed from a hardware profile, the same in every run (with the same CPU instruction set).

Exit codes: 0 done, 1 a gate failed, 2 bad usage or input, 3 a run failed.

`tandem <subcommand> --help` explains each subcommand with an example.)";

/// The innermost subcommand on the command line, or the program itself.
const CLI::App* chosen(const CLI::App* app) {
  const auto commands = app->get_subcommands();
  return commands.empty() ? app : chosen(commands.front());
}

/// "tandem profile heads".
std::string full_name(const CLI::App& command) {
  return (command.get_parent() == nullptr ? "" : full_name(*command.get_parent()) + " ") + command.get_name();
}

/// "tandem fluxion has no 'colect'. Did you mean 'collect'? There is collect."
std::string no_such(const CLI::App& command, const std::string& word) {
  const auto names = subcommand_names(command);
  if (names.empty()) return fmt::format("{} has no '{}' to explain: give the command alone.", full_name(command), word);
  return fmt::format("{} has no '{}'.{} There {} {}.", full_name(command), word, did_you_mean(word, names),
                     names.size() == 1 ? "is" : "are", join_names(names));
}

/// The sentence for an error that CLI11 found, with a suggestion where a name is near.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  const CLI::App& command = *chosen(&app);
  const bool at_top = &command == &app;
  const auto inner = subcommand_names(command);
  if (at_top && !words[0].starts_with('-'))
    return fmt::format("There is no subcommand '{}'.{} There are {}.", words[0], did_you_mean(words[0], inner),
                       join_names(inner));
  const std::string see = fmt::format("see {} --help.", full_name(command));
  for (const std::string& word : app.remaining(true)) {
    if (!word.starts_with('-') && !at_top && !inner.empty()) return no_such(command, word);
    if (!word.starts_with('-')) return fmt::format("'{}' is one word too many; {}", word, see);
    const std::string name = word.substr(0, word.find('='));
    std::vector<std::string> options;
    for (const CLI::Option* option : command.get_options())
      if (!option->get_lnames().empty()) options.push_back(option->get_name());
    return fmt::format("There is no option '{}'{}.{} S{}", name, at_top ? "" : " of " + full_name(command),
                       name.starts_with("--") ? did_you_mean(name, options) : "", see.substr(1));
  }
  const std::string what = error.what();
  const auto options = command.get_options();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    for (const CLI::Option* option : options)
      if (option->count() < 2 && what.starts_with(option->get_name() + ":"))
        return fmt::format("{} has no value; {}", option->get_name(), see);
    for (const CLI::Option* option : options)
      if (option->count() >= 2)
        return fmt::format("{} is given {} times: give it once; {}", option->get_name(), option->count(), see);
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    if (!inner.empty()) return fmt::format("{} needs a subcommand: {}; {}", full_name(command), join_names(inner), see);
    for (const CLI::Option* option : options)
      if (option->get_required() && option->count() == 0)
        return fmt::format("{} needs {}; {}", full_name(command), option->get_name(), see);
  }
  return fmt::format("{}; {}", what, see);
}

/// Files 0 to 2 are taken, so that none that is opened becomes standard input or output where the caller closed these.
/// Writing there still fails.
void open_standard_files() {
  for (int file = 0; file < 3; ++file) {
    if (fcntl(file, F_GETFD) >= 0 || errno != EBADF) continue;
    if (open("/dev/null", O_RDONLY) < 0) return;  // takes the lowest number that is free
  }
}

/// Prints the help of the command that `tandem help profile heads` asks about.
void explain(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (auto word = words.begin() + 1; word != words.end(); ++word) {
    if (*word == "--help" || *word == "-h") continue;
    const auto inner = command->get_subcommands([&](const CLI::App* one) { return one->get_name() == *word; });
    if (inner.empty()) throw InputError(no_such(*command, *word));
    command = inner.front();
  }
  const CLI::App* const parent = command->get_parent();
  std::fputs(command->help(parent == nullptr ? "" : full_name(*parent)).c_str(), stdout);
}

/// Whether other processes may have a part in the command: not where it only asks, nor where each of them runs a part
/// of its own (--shard rank).
bool takes_ranks(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--help" || word == "-h" || word == "--version") return false;
    if (word == "--shard=rank" || (i > 0 && words[i - 1] == "--shard" && word == "rank")) return false;
  }
  return words.empty() || words[0] != "help";
}

int run(const std::vector<std::string>& given) {
  const std::vector<std::string> words = with_own_task_names(given);
  const std::unique_ptr<CLI::App> made = make_app();
  CLI::App& app = *made;
  if (words.empty()) {
    fmt::print(stderr, "{}", app.help());
    return kBadInput;
  }
  int code = kDone;
  if (words[0] == "help") {
    explain(app, words);
  } else {
    handle_interrupts();
    try {
      app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes the last one first
      if (app.get_subcommands().empty())
        throw_input_error("A subcommand is missing: one of {}.", join_names(subcommand_names(app)));
    } catch (const CLI::Success& asked_for_help) {
      code = app.exit(asked_for_help);
    } catch (const CLI::ParseError& error) {
      throw InputError(usage_error(app, error, words));
    }
  }
  check_stdout();
  return code;
}

/// Does `work`, whose errors become a sentence and an exit code.
int exit_code_of(const std::function<int()>& work) {
  const auto give_up = [](ExitCode code, const std::string& sentence) {
    say("tandem: " + sentence);
    return code;
  };
  try {
    return work();
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

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::unique_ptr<CLI::App> make_app() {
  auto app = std::make_unique<CLI::App>(
      "Tandem: accuracy and latency of methods that decode long contexts with most of the KV cache in CPU memory",
      "tandem");
  app->footer(kFooter);
  app->set_version_flag("--version", program_text());
  app->require_subcommand(0, 1);
  format_help(*app);
  for (const auto add : {add_compare, add_eval, add_report, add_merge, add_gate, add_generate, add_bench, add_methods,
                         add_profile, add_fluxion, add_advise, add_simulate, add_validate, add_plan, add_reproduce,
                         add_calibrate, add_info, add_completion})
    add(Command(*app));
  return app;
}

int run_program(const std::vector<std::string>& words) {
  open_standard_files();
  return exit_code_of([&] {
    method_registry();  // every help text asks for it; throws for a wrong folder of TANDEM_METHODS
    const auto program = [&] { return exit_code_of([&] { return run(words); }); };
    return takes_ranks(words) ? run_as_rank(program) : program();
  });
}

}  // namespace tandem::cli
