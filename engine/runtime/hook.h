// What goes wrong in a method's hook, told with the method's name and the place.
#pragma once

#include <string>

#include "engine/runtime/method.h"

namespace tandem {

/// Rethrows the exception that is being handled. What is a mistake of a method's, or met in its decode, becomes a
/// LogicError (or stays a HazardError) that begins with the method and `place`; errors of input, of the run and of the
/// system stay what they are.
[[noreturn]] void rethrow_with_place(const Method& method, const std::string& place);

/// What `call` returns, which runs a hook. `place` gives "step 3, layer 0", and is asked only where something goes
/// wrong.
template <class Place, class Call>
decltype(auto) in_hook(const Method& method, const Place& place, const Call& call) {
  try {
    return call();
  } catch (...) {
    rethrow_with_place(method, place());
  }
}

}  // namespace tandem
