#include "engine/common/error.h"
#include "engine/distributed/mpi_ranks.h"

namespace tandem {

std::unique_ptr<MpiRank> join_ranks() {
  throw_input_error(
      "mpirun started {} processes, and this build has no MPI: run scripts/install_packages.sh --mpi, configure and "
      "build again, or start the program without mpirun. If mpirun did not start it, its environment is inherited: "
      "unset OMPI_COMM_WORLD_SIZE and PMI_SIZE.",
      launched_ranks());
}

}  // namespace tandem
