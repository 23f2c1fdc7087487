// tandem completion: completion for shells, made from the subcommands and options that the program has.
#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/program.h"
#include "engine/device/profile.h"
#include "engine/model/presets.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

constexpr const char* kCompletionFooter = R"(
Examples:
  source <(tandem completion bash)                                          in this shell
  tandem completion bash >~/.local/share/bash-completion/completions/tandem      in every new one

Completes subcommands, options, and names of methods, hardware profiles and model shapes. `cmake --install` puts the same
into share/bash-completion/completions.)";

/// One line per command of the tree: "    ' eval longbench') words='--tasks --samples' ;;".
void list_commands(const CLI::App& command, const std::string& path, std::vector<std::string>& paths,
                   std::string& cases) {
  std::vector<std::string> words;
  for (const CLI::App* inner : command.get_subcommands({})) {
    words.push_back(inner->get_name());
    list_commands(*inner, path + " " + inner->get_name(), paths, cases);
  }
  for (const CLI::Option* option : command.get_options())
    if (!option->get_lnames().empty()) words.push_back(option->get_name());
  if (!path.empty()) paths.push_back("'" + path + "'");
  cases += fmt::format("    '{}') words='{}' ;;\n", path, fmt::join(words, " "));
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  names.reserve(method_registry().size());
  for (const MethodInfo& method : method_registry()) names.push_back(method.name);
  return names;
}

/// `app`: the whole program.
std::string bash_completion(const CLI::App& app) {
  std::vector<std::string> paths;
  std::string cases;
  list_commands(app, "", paths, cases);
  const std::vector<std::string> methods = method_names(), profiles = profile_names(), presets = preset_names();
  return fmt::format(R"(# Completion of tandem for bash, made by `tandem completion bash`.
_tandem() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} path= words= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$path ${{COMP_WORDS[i]}}" in
      {}) path+=" ${{COMP_WORDS[i]}}" ;;
    esac
  done
  if [ "$word" = = ]; then word=; elif [ "$before" = = ]; then before=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
  case "$path" in
{}  esac
  case "$before" in
    --method | --methods) words='{methods}' ;;
    --hw | --base) words='{}' ;;
    --as) words='{}' ;;
    --device) words='sim emu cuda' ;;
    methods) words+=' {methods}' ;;
    completion) words+=' bash' ;;
    help) words='{}' ;;
    -*) if [[ $word != -* ]]; then words=; fi ;;
  esac
  local list=
  if [[ $word == *,* ]]; then list=${{word%,*}},; fi
  COMPREPLY=($(compgen -P "$list" -W "$words" -- "${{word##*,}}"))
}}
complete -o default -F _tandem tandem
)",
                     fmt::join(paths, " | "), cases, fmt::join(profiles, " "), fmt::join(presets, " "),
                     fmt::join(subcommand_names(app), " "), fmt::arg("methods", fmt::join(methods, " ")));
}

}  // namespace

void add_completion(Command app) {
  Command command = app.subcommand("completion", "Print completion for a shell", kCompletionFooter);
  const auto shell = std::make_shared<std::string>();
  command.required("shell", *shell, "bash");
  command.callback([app, shell] {
    if (*shell != "bash") throw_input_error("There is no completion for '{}': give bash.", *shell);
    fmt::print("{}", bash_completion(app.app()));
  });
}

}  // namespace tandem::cli
