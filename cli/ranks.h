// The program as one of the processes that mpirun started, or alone.
#pragma once

#include <functional>
#include <memory>

namespace tandem {
class Communicator;
}

namespace tandem::cli {

/// Runs `program` and returns its exit code. Of two processes only the first one runs it; the second one is its cache
/// rank until the first is done.
int run_as_rank(const std::function<int()>& program);

/// The cache rank that the program has, for EngineOptions::peer; nullptr: it runs alone.
std::shared_ptr<Communicator> other_rank();

}  // namespace tandem::cli
