// Long work on many bytes or elements by several threads, before there is an engine with a pool of its own.
#pragma once

#include <cstddef>
#include <functional>

namespace tandem {

/// Calls work(from, size) once for every piece of 0 .. total, from as many threads as CPUs and pieces. Looks for ^C
/// between pieces. Rethrows an exception of `work`; pieces that have not begun are then left out.
void in_pieces(std::size_t total, std::size_t piece,
               const std::function<void(std::size_t from, std::size_t size)>& work);

}  // namespace tandem
