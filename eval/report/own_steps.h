// Label for latencies of the embedded model, which are launches and not KV.
#pragma once

#include "engine/model/model.h"
#include "eval/report/schema.h"

namespace tandem::eval {

inline constexpr const char* kOwnSteps =
    "The embedded model's own steps are launches and hand-offs, not KV: what a method's budget is worth shows in steps "
    "predicted at a large shape (`compare --as`, `tandem gate`).";

inline bool is_embedded(const Manifest& manifest) {
  return manifest.model == "embedded" || manifest.model == kEmbeddedModel;
}

}  // namespace tandem::eval
