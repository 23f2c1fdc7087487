// Options that several methods have: one name, one meaning, one help.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/kernels/digest.h"
#include "engine/runtime/kv_offload.h"
#include "methods/options.h"

namespace tandem {

/// union: "masked" or "attended".
void add_union_option(OptionSet& set, std::string& value);

/// digest: "bounds" (Quest) or "mean" (MoBA), of the blocks that a method scores.
void add_digest_option(OptionSet& set, std::string& value);
DigestKind digest_kind_of(const std::string& value);

/// device: share of all KV that stays on the device (engine/mechanisms/device_budget).
void add_device_option(OptionSet& set, double& value, const std::string& help);
void add_look_ahead_option(OptionSet& set, std::uint32_t& value);
/// evict: who leaves first, under one of these policies.
void add_evict_option(OptionSet& set, std::string& value, std::vector<std::string> policies);
Eviction eviction_of(const std::string& value);

}  // namespace tandem
