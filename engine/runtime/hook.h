// What goes wrong in a method's hook, told with the method's name and the place.
#pragma once

#include <any>
#include <fmt/format.h>
#include <new>
#include <string>
#include <system_error>

#include "engine/common/error.h"
#include "engine/device/hazard.h"
#include "engine/runtime/method.h"

namespace tandem {

/// Rethrows the exception that is being handled. What is a mistake of a method's, or met in its decode, becomes a
/// LogicError (or stays a HazardError) that begins with the method and `place`; errors of input, of the run and of the
/// system stay what they are.
[[noreturn]] inline void rethrow_with_place(const Method& method, const std::string& place) {
  const auto with_place = [&](const char* what) {
    return fmt::format("'{}', {}: {}", method.spelled_out(), place, what);
  };
  try {
    throw;
  } catch (const HazardError& error) {
    throw HazardError(with_place(error.what()));
  } catch (const LogicError& error) {
    throw LogicError(with_place(error.what()));
  } catch (const InputError&) {
    throw;
  } catch (const RunError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::system_error&) {
    throw;
  } catch (const std::bad_any_cast&) {
    throw LogicError(with_place("SequenceState::method holds nothing, or another type than the hook asks for"));
  } catch (const std::exception& error) {
    throw LogicError(with_place(error.what()));
  }
}

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
