#include "methods/registry.h"

#include <algorithm>
#include <fmt/core.h>

#include "engine/common/error.h"
#include "methods/asyncspade/asyncspade.h"
#include "methods/baselines/baselines.h"
#include "methods/fluxion/fluxion.h"
#include "methods/freekv/freekv.h"
#include "methods/hgca/hgca.h"
#include "methods/hisparse/hisparse.h"
#include "methods/scoutattention/scoutattention.h"

namespace tandem {

const std::vector<MethodInfo>& method_registry() {
  static const std::vector<MethodInfo> registry = [] {
    std::vector<MethodInfo> all = {full_info(),      full_offload_info(), full_host_info(),      streaming_info(),
                                   h2o_info(),       quest_info(),        tova_info(),           hybrid_fixed_info(),
                                   gpu_fetch_info(), hgca_info(),         scoutattention_info(), fluxion_info(),
                                   infinigen_info(), asyncspade_info(),   freekv_info(),         hisparse_info()};
    for (MethodInfo& extra : extra_methods()) all.push_back(std::move(extra));
    return all;
  }();
  return registry;
}

MethodInfo checked_method(std::string_view folder, MethodInfo info) {
  if (info.name != folder)
    throw_input_error(
        "TANDEM_METHODS: the method of the folder '{}' is named '{}': MethodInfo::name must be the folder's.", folder,
        info.name);
  if (info.make == nullptr)
    throw_input_error("TANDEM_METHODS: MethodInfo::make of the method '{}' is not set.", folder);
  if (info.summary.empty() || info.description.empty())
    throw_input_error("TANDEM_METHODS: MethodInfo of the method '{}' has no summary or no description.", folder);
  return info;
}

const MethodInfo& find_method(std::string_view name) {
  std::vector<std::string> names;
  for (const MethodInfo& info : method_registry()) {
    if (info.name == name) return info;
    names.push_back(info.name);
  }
  throw_input_error("There is no method '{}'.{} Known methods: {}.", name, did_you_mean(name, names),
                    join_names(names));
}

std::unique_ptr<Method> make_method(std::string_view text) {
  const MethodSpec spec = parse_method_spec(text);
  return find_method(spec.name).make(spec);
}

namespace {

/// Every method, with the first options and then the second.
std::vector<std::string> specs_with(std::string MethodInfo::*first, std::string MethodInfo::*second) {
  std::vector<std::string> specs;
  specs.reserve(method_registry().size());
  for (const MethodInfo& info : method_registry()) {
    std::string text = info.name;
    for (const auto options : {first, second}) {
      if (options == nullptr || (info.*options).empty()) continue;
      text += (text == info.name ? ":" : ",") + info.*options;
    }
    specs.push_back(std::move(text));
  }
  return specs;
}

}  // namespace

std::vector<std::string> default_comparison(bool embedded) {
  return specs_with(&MethodInfo::at_short_contexts, embedded ? &MethodInfo::for_embedded_model : nullptr);
}

std::vector<std::string> default_prediction(std::uint32_t longest_context) {
  return specs_with(longest_context <= kShortContext ? &MethodInfo::at_short_contexts : nullptr,
                    &MethodInfo::for_simulated_shapes);
}

std::string spec_for_shapes(std::string_view text) {
  const MethodSpec spec = parse_method_spec(text);
  const MethodInfo& info = find_method(spec.name);
  std::string out = spec.name;
  for (const auto& [name, value] : spec.options) {
    const std::string option = fmt::format("{}={}", name, value);
    const bool trained = option == info.for_embedded_model && !info.for_simulated_shapes.empty();
    out += (out == spec.name ? ":" : ",") + (trained ? info.for_simulated_shapes : option);
  }
  return out;
}

std::string hint_for_embedded(std::string_view text) {
  const MethodSpec spec = parse_method_spec(text);
  const MethodInfo& info = find_method(spec.name);
  const std::string trained = info.for_embedded_model, option = trained.substr(0, trained.find('='));
  const auto given = [&](const auto& name_and_value) { return name_and_value.first == option; };
  if (trained.empty() || std::any_of(spec.options.begin(), spec.options.end(), given)) return {};
  return fmt::format("'{}' runs with the default of {}; what was trained for the embedded model is '{}:{}'.", text,
                     option, spec.name, trained);
}

void keep_what_methods_need(EngineOptions& engine, std::span<const std::string> specs, const Model& model) {
  engine.host_prompts = !specs.empty();
  for (const std::string& spec : specs) {
    const Needs needs = make_method(spec)->needs(shape_of(model.config));
    engine.column_sums = engine.column_sums || needs.column_sums;
    engine.host_prompts = engine.host_prompts && needs.host_prompts;
  }
}

}  // namespace tandem
