// FreeKV's registry entry; methods/freekv/README.md describes the method.
#pragma once

#include "methods/registry.h"

namespace tandem {

MethodInfo freekv_info();

}  // namespace tandem
