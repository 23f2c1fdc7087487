// Definitions of the functions that a build without CUDA lacks, one line each.
#pragma once

#include "engine/device/cuda/runtime.h"

namespace tandem {

[[maybe_unused]] static void not_built() asm("tandem_not_built");
static void not_built() {
  throw InputError(cuda_missing());
}

/// Function types without default arguments, which GCC keeps in decltype.
template <class Function>
struct Signature;
template <class Result, class... Arguments>
struct Signature<Result(Arguments...)> {
  typedef Result type(Arguments...);
};

}  // namespace tandem

/// Defines the declared function `name`, which is not overloaded, to throw InputError with cuda_missing(). All are
/// aliases of one function: it reads no argument and never returns, so their signatures do not matter.
#define TANDEM_NOT_BUILT(name) /* NOLINTNEXTLINE(bugprone-macro-parentheses) */ \
  Signature<decltype(name)>::type name [[gnu::alias("tandem_not_built")]]
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wattribute-alias"  // which compares the signatures
#endif
