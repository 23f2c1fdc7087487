// ScoutAttention's registry entry; methods/scoutattention/README.md describes the method.
#pragma once

#include "methods/registry.h"

namespace tandem {

MethodInfo scoutattention_info();

}  // namespace tandem
