// Every method Tandem knows. A method is one folder (or one file of baselines/) and one line in registry.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/runtime/engine.h"
#include "engine/runtime/method.h"
#include "methods/options.h"

namespace tandem {

/// What tables have to say of a method whose option has this value.
struct OptionRemark {
  std::string option, value, text;  // text: a sentence
};

/// An option that says how much of a context a method attends to or keeps: with more of it, it does with no fewer
/// bytes, or a few per cent fewer where larger blocks save an index. What comparisons at equal bytes set
/// (eval/match_bytes). No scale is in bytes: such a budget is given in tokens.
struct BudgetOption {
  enum class Scale : std::uint8_t {
    tokens,  // least, least + step, ...
    share,   // above 0, at most 1
    error,   // above 0, at most 1; the smaller, the more bytes
    listed,  // `values`
  };
  std::string option;
  Scale scale = Scale::tokens;
  std::uint32_t step = 1;                // tokens
  std::uint32_t least = 16;              // tokens; with fewer it chooses nothing beside the newest page
  bool turns_touched = true;             // bytes that a step touches
  bool turns_device = true;              // bytes that are kept on the device
  std::string where = {}, is = {};       // only where option `where` has the value `is`; empty: always
  std::vector<std::string> values = {};  // the only ones that there are, from few bytes to many
};

struct MethodInfo {
  std::string name;
  std::string summary;      // one line
  std::string description;  // what is kept where, new tokens, what the budget counts
  std::string source;       // paper or origin
  // What the budget counts or is a share of, as a word for protocol ids (small letters, digits, '-'); empty: none.
  std::string budget;
  // "key=value,..." where the published defaults would leave nothing out at the embedded tasks' 1K and 2K tokens: what
  // default_comparison() has instead. Empty: the defaults.
  std::string at_short_contexts;
  // The same for the embedded model: options that name what was trained for it, or that keep a default comparison
  // short.
  std::string for_embedded_model;
  // Options in whose place the defaults would be no source's figures where only a shape is simulated. Empty: the
  // defaults.
  std::string for_simulated_shapes;
  std::vector<OptionInfo> options;
  std::vector<BudgetOption> budget_options;  // for each measure, the first that applies; empty: nothing can be set
  std::vector<OptionRemark> remarks;
  std::unique_ptr<Method> (*make)(const MethodSpec&) = nullptr;
};

/// Those of folders outside this tree (cmake/ExtraMethods.cmake), which the registry ends with.
std::vector<MethodInfo> extra_methods();
/// InputError where what a folder's function says is no method of the folder's name that can be made and shown.
MethodInfo checked_method(std::string_view folder, MethodInfo info);

/// `full` is the first.
const std::vector<MethodInfo>& method_registry();
/// Unknown name: InputError with the nearest known one.
const MethodInfo& find_method(std::string_view name);
/// "hybrid-fixed:budget=0.05" -> a configured method; InputError for unknown names, options and impossible values.
std::unique_ptr<Method> make_method(std::string_view spec);

/// What `tandem compare` compares when nothing is asked for: every registered method, `full` first, since the others
/// are compared with it. `embedded`: the model is the embedded one.
std::vector<std::string> default_comparison(bool embedded);

/// Tokens: the longest contexts that MethodInfo::at_short_contexts is meant for.
inline constexpr std::uint32_t kShortContext = 2048;

/// What `tandem simulate`, and `tandem compare --as` in place of the default comparison, predict at contexts of at most
/// so many tokens: with published budgets, or those at short contexts, and with what simulated shapes ask for.
std::vector<std::string> default_prediction(std::uint32_t longest_context);

/// A spec as a shape alone can be simulated with it: MethodInfo::for_simulated_shapes in place of
/// MethodInfo::for_embedded_model. InputError as find_method().
std::string spec_for_shapes(std::string_view spec);

/// What a spec leaves to its defaults though something has been trained for the embedded model, as a sentence that says
/// what to give instead; empty where there is nothing. InputError as find_method().
std::string hint_for_embedded(std::string_view spec);

/// An engine whose prompts are to be decoded with these methods keeps column sums if one needs them (Needs). Of queries
/// it always keeps EngineOptions::keep_queries.
void keep_what_methods_need(EngineOptions& engine, std::span<const std::string> specs, const Model& model);

}  // namespace tandem
