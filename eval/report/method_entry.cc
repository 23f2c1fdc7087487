#include "eval/report/method_entry.h"

#include <algorithm>

#include "methods/registry.h"

namespace tandem::eval {

bool has_budget(std::string_view name) {
  const auto& known = method_registry();
  const auto info = std::ranges::find(known, name, &MethodInfo::name);
  return info == known.end() || !info->budget.empty();
}

std::set<std::string> named_options(const MethodEntry& method) {
  std::set<std::string> names;
  for (const auto& option : method.options) names.insert(option.first);
  return names;
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

bool same_options(const MethodEntry& a, const MethodEntry& b, const std::set<std::string>& but) {
  std::set<std::string> names = named_options(a);
  names.merge(named_options(b));
  return std::ranges::all_of(
      names, [&](const std::string& name) { return but.contains(name) || option_of(a, name) == option_of(b, name); });
}

bool same_method(const MethodEntry& a, const MethodEntry& b) {
  return a.name == b.name && a.content == b.content && same_options(a, b);
}

}  // namespace tandem::eval
