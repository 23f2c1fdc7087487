// tandem methods: what can be compared, and every option with its default.
#include <fmt/core.h>
#include <string>

#include "cli/commands.h"
#include "cli/output.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

void list_methods() {
  for (const MethodInfo& info : method_registry()) print("  {:<14} {}\n", info.name, hanging(info.summary, 17));
  print("\ntandem methods <name> explains one and lists its options.\n");
}

std::string option_row(const std::string& name, const std::string& takes, const std::string& standard,
                       const std::string& help) {
  constexpr std::size_t kHelp = 45;  // column
  std::string row = fmt::format("  {:<12} {:<20} {}", name, takes, standard);
  if (help.empty()) return row;
  if (row.size() < kHelp) {
    row.resize(kHelp, ' ');
  } else {
    row = fmt::format("  {:<12} {}\n{}", name, hanging(takes + " " + standard, 15), std::string(kHelp, ' '));
  }
  return row + hanging(help, kHelp);
}

void explain_method(const std::string& name) {
  const MethodInfo& info = find_method(name);
  print("{}: {}\n\n  {}\n\n  source: {}\n", info.name, hanging(info.summary, info.name.size() + 2),
        hanging(info.description, 2), hanging(info.source, 10));
  if (info.options.empty()) {
    print("  options: none\n");
    return;
  }
  print("\n{}\n", option_row("option", "takes", "default", ""));
  for (const OptionInfo& option : info.options)
    print("{}\n", option_row(option.name, option.type, option.default_value, option.help));
  std::string example = info.name + ":";
  example += info.options[0].name + "=" + info.options[0].default_value;
  print("\n  for example: tandem compare --methods full,{}\n", example);
}

}  // namespace

void add_methods(Command app) {
  Command command = app.subcommand("methods", "List the methods, or explain one with its options",
                                   "Example: tandem methods hybrid-fixed");
  auto name = std::make_shared<std::string>();
  command.option("name", *name, "Method to explain");
  command.callback([name] { name->empty() ? list_methods() : explain_method(*name); });
}

}  // namespace tandem::cli
