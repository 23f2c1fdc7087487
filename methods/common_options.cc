#include "methods/common_options.h"

#include <utility>

namespace tandem {

void add_union_option(OptionSet& set, std::string& value) {
  set.choice("union", value, {"masked", "attended"},
             "whether a head attends only the blocks it chose, or all that its group chose");
}

void add_digest_option(OptionSet& set, std::string& value) {
  set.choice("digest", value, {"bounds", "mean"},
             "what a block is scored by: its keys' smallest and largest numbers, which no score exceeds (Quest), or "
             "their mean (MoBA), half as many bytes");
}

DigestKind digest_kind_of(const std::string& value) {
  return value == "mean" ? DigestKind::mean : DigestKind::bounds;
}

void add_device_option(OptionSet& set, double& value, const std::string& help) {
  set.ratio("device", value, 0, 1, "share of all KV that stays on the device; the rest is in host memory " + help);
}

void add_look_ahead_option(OptionSet& set, std::uint32_t& value) {
  set.count("look_ahead", value, "layers", "layers whose KV is on its way while a layer computes");
}

void add_evict_option(OptionSet& set, std::string& value, std::vector<std::string> policies) {
  const bool topk = policies.size() > 3;
  set.choice("evict", value, std::move(policies),
             topk ? "who leaves first: the oldest, the least recently used, the same within the layer that needs room, "
                    "or the one that fewest heads chose lately"
                  : "who leaves first: the oldest, the least recently used, or the one with the least attention");
}

Eviction eviction_of(const std::string& value) {
  if (value == "fixed") return Eviction::fixed;
  if (value == "lru") return Eviction::lru;
  return value == "lru-topk" ? Eviction::lru_topk : Eviction::attention;
}

}  // namespace tandem
