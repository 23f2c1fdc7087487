#include "engine/common/in_pieces.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/common/interrupt.h"

namespace tandem {

void in_pieces(std::size_t total, std::size_t piece,
               const std::function<void(std::size_t from, std::size_t size)>& work) {
  const std::size_t pieces = (total + piece - 1) / piece,
                    workers = std::clamp<std::size_t>(pieces, 1, std::max(1u, std::thread::hardware_concurrency()));
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto run = [&] {
    for (std::size_t i = next++; i < pieces && !interrupted(); i = next++) {
      try {
        work(i * piece, std::min(piece, total - i * piece));
      } catch (...) {
        next = pieces;
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(workers);
  try {
    for (std::size_t worker = 1; worker < workers; ++worker) threads.emplace_back(run);
  } catch (const std::system_error&) {
    // A limit on processes: those that began do it all.
  }
  run();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  stop_if_interrupted();
}

}  // namespace tandem
