// FLOPs of decoding one token by the formulas that AsyncSpade's appendix B gives for full attention, Quest, TOVA and
// itself (equations 6 to 11). They count what is on a step's way to its token, so nothing for a choice that was made
// ahead; what this engine's operations declare is in timings.jsonl.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/model/config.h"
#include "eval/report/summary.h"

namespace tandem::eval {

/// C_param: attention's projections and the MLP of all layers; embedding and logits are not in it.
double parameter_flops(const ModelConfig& config);
/// The method's entry in the manifest.
const MethodEntry& entry_of(const Manifest& manifest, const MethodSummary& method);
/// C_attn with T tokens of context; nothing for methods without a published formula.
std::optional<double> attention_flops(const ModelConfig& config, const MethodEntry& method, std::uint32_t tokens);

/// A section for a run's report; empty where no method but `full` has a formula.
std::string published_flops_text(const ModelConfig& config, const Summary& summary, bool markdown);
/// The same with accuracy (figure 9) and TPOT, by method and length, for plots; empty where the section is.
std::string published_flops_json(const ModelConfig& config, const Summary& summary);

}  // namespace tandem::eval
