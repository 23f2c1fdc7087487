// The baselines' registry entries; each is described in methods/baselines/README.md.
#pragma once

#include "methods/registry.h"

namespace tandem {

MethodInfo full_info();
MethodInfo streaming_info();
MethodInfo hybrid_fixed_info();
MethodInfo h2o_info();
MethodInfo quest_info();
MethodInfo tova_info();
MethodInfo gpu_fetch_info();
MethodInfo infinigen_info();
MethodInfo full_offload_info();
MethodInfo full_host_info();

}  // namespace tandem
