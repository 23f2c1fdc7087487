#pragma once

#include "methods/registry.h"

namespace tandem {

MethodInfo racing_info();

}  // namespace tandem
