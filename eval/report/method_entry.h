// Methods of two runs, one of which may be older than an option that the other names.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "eval/report/schema.h"

namespace tandem::eval {

/// Whether a method of this name has a budget; one that this program does not know may.
bool has_budget(std::string_view name);

/// Options that an entry names.
std::set<std::string> named_options(const MethodEntry& method);

/// The value of a method's option. Of a run that is older than the option: its default, which is what methods did
/// before they had it. Empty where neither knows it.
std::string option_of(const MethodEntry& method, const std::string& option);

/// All but those of `but`.
bool same_options(const MethodEntry& a, const MethodEntry& b, const std::set<std::string>& but = {});

/// The same method with the same options, and files of the same content.
bool same_method(const MethodEntry& a, const MethodEntry& b);

}  // namespace tandem::eval
