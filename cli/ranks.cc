#include "cli/ranks.h"

#include <fmt/format.h>
#include <optional>
#include <string>

#include "cli/exit_code.h"
#include "cli/say.h"
#include "engine/common/error.h"
#include "engine/distributed/mpi_ranks.h"
#include "engine/kernels/thread_pool.h"
#include "engine/mechanisms/cache_rank/remote_rank.h"

namespace tandem::cli {
namespace {

std::shared_ptr<Communicator>& other() {
  static std::shared_ptr<Communicator> rank;
  return rank;
}

}  // namespace

std::shared_ptr<Communicator> other_rank() {
  return other();
}

int run_as_rank(const std::function<int()>& program) {
  if (launched_ranks() == 1) return program();
  std::unique_ptr<MpiRank> own;
  std::optional<ThreadPool> pool;  // of the rank that is served from here
  try {
    own = join_ranks();
    if (own != nullptr && own->number() == 1) pool.emplace();
  } catch (const InputError& error) {
    say(fmt::format("tandem: {}", error.what()));
    return kBadInput;
  } catch (const RunError& error) {
    say(fmt::format("tandem: {}", error.what()));
    return kRunFailed;
  }
  if (own == nullptr) return program();
  const std::shared_ptr<Communicator> link = own->other();
  if (pool) {
    const std::string failure = serve_cache_rank(*link, *pool);
    if (failure.empty()) return kDone;
    say(fmt::format("tandem: The cache rank ends: {}", failure));
    return kRunFailed;
  }
  other() = link;
  const int code = program();
  other() = nullptr;
  dismiss_cache_rank(*link);
  return code;
}

}  // namespace tandem::cli
