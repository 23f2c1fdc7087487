// AsyncSpade's registry entry; methods/asyncspade/README.md says what it does.
#pragma once

#include "methods/registry.h"

namespace tandem {

MethodInfo asyncspade_info();

}  // namespace tandem
