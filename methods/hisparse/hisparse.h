// HiSparse's registry entry; methods/hisparse/README.md describes the method.
#pragma once

#include "methods/registry.h"

namespace tandem {

MethodInfo hisparse_info();

}  // namespace tandem
