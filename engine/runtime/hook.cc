#include "engine/runtime/hook.h"

#include <any>
#include <fmt/format.h>
#include <new>
#include <system_error>

#include "engine/common/error.h"
#include "engine/device/hazard.h"

namespace tandem {

void rethrow_with_place(const Method& method, const std::string& place) {
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

}  // namespace tandem
