#pragma once

#include "methods/registry.h"

namespace tandem {

MethodInfo tail_info();

}  // namespace tandem
