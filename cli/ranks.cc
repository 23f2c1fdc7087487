#include "cli/ranks.h"

#include <string>

#include "cli/commands.h"
#include "engine/distributed/mpi_ranks.h"
#include "engine/kernels/thread_pool.h"
#include "engine/mechanisms/cache_rank/remote_rank.h"

namespace tandem::cli {
namespace {

std::shared_ptr<Communicator> peer_rank;

}  // namespace

std::shared_ptr<Communicator> other_rank() {
  return peer_rank;
}

int run_as_rank(const std::function<int()>& program) {
  if (launched_ranks() == 1) return program();
  const std::unique_ptr<MpiRank> own = join_ranks();
  if (own == nullptr) return program();
  const std::shared_ptr<Communicator> link = own->other();
  if (own->number() == 1) {
    ThreadPool pool;  // of the rank that is served from here
    const std::string failure = serve_cache_rank(*link, pool);
    if (failure.empty()) return kDone;
    say("tandem: The cache rank ends: " + failure);  // before the link's end, which ends the process
    return kRunFailed;
  }
  peer_rank = link;
  const int code = program();
  peer_rank = nullptr;
  dismiss_cache_rank(*link);
  return code;
}

}  // namespace tandem::cli
