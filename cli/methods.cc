// tandem methods: what can be compared, and every option with its default.
#include <fmt/core.h>

#include "cli/commands.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

/// Text in lines of at most `width` characters, each after `indent` spaces.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string out, line;
  const auto flush = [&] {
    if (!line.empty()) out += std::string(indent, ' ') + line + "\n";
    line.clear();
  };
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t space = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, space - at);
    if (!line.empty() && indent + line.size() + 1 + word.size() > width) flush();
    line += (line.empty() ? "" : " ") + word;
    at = space + 1;
  }
  flush();
  return out;
}

void list_methods() {
  for (const MethodInfo& info : method_registry()) fmt::print("  {:<14} {}\n", info.name, info.summary);
  fmt::print("\ntandem methods <name> explains one and lists its options.\n");
}

void explain_method(const std::string& name) {
  const MethodInfo& info = find_method(name);
  fmt::print("{}: {}\n\n{}\n  source: {}\n", info.name, info.summary, wrapped(info.description, 2, 98), info.source);
  if (info.options.empty()) {
    fmt::print("  options: none\n");
    return;
  }
  fmt::print("\n  {:<12} {:<20} {:<8}\n", "option", "takes", "default");
  for (const OptionInfo& option : info.options) {
    fmt::print("  {:<12} {:<20} {:<8} {}\n", option.name, option.type, option.default_value, option.help);
  }
  std::string example = info.name + ":";
  example += info.options[0].name + "=" + info.options[0].default_value;
  fmt::print("\n  for example: tandem compare --methods full,{}\n", example);
}

}  // namespace

void add_methods(CLI::App& app) {
  auto* command = app.add_subcommand("methods", "List the methods, or explain one with its options");
  auto name = std::make_shared<std::string>();
  command->add_option("name", *name, "Method to explain");
  command->footer("Example: tandem methods hybrid-fixed");
  command->callback([name] {
    if (name->empty()) {
      list_methods();
    } else {
      explain_method(*name);
    }
  });
}

}  // namespace tandem::cli
