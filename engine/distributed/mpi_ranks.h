// Two processes that mpirun started together: the first runs the program, the second is its cache rank.
#pragma once

#include <cstdlib>
#include <memory>

#include "engine/distributed/communicator.h"

namespace tandem {

/// Processes that mpirun started together, by this one's environment (which may be inherited); 1 where it says nothing,
/// so that a program that runs alone never touches MPI.
inline int launched_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* value = std::getenv(name)) return static_cast<int>(std::strtol(value, nullptr, 10));
  return 1;
}

/// One of the two processes. Joining and leaving are collective; at most one object in a process's life. Where the link
/// has failed its end ends both processes with exit code 3: all must be said and kept by then.
class MpiRank {
 public:
  virtual ~MpiRank() = default;
  virtual int number() const = 0;  // 0 or 1
  virtual std::shared_ptr<Communicator> other() = 0;
};

/// nullptr where MPI knows no other process, whatever the environment says. InputError where this build has no MPI, or
/// mpirun started more than two.
std::unique_ptr<MpiRank> join_ranks();

}  // namespace tandem
