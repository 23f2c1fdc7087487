// HGCA's registry entry; methods/hgca/README.md describes the method.
#pragma once

#include "methods/registry.h"

namespace tandem {

MethodInfo hgca_info();

}  // namespace tandem
