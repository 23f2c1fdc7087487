#include "engine/common/in_pieces.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "engine/common/interrupt.h"

namespace tandem {

void in_pieces(std::size_t total, std::size_t piece,
               const std::function<void(std::size_t from, std::size_t size)>& work) {
  const std::size_t pieces = (total + piece - 1) / piece,
                    workers = std::clamp<std::size_t>(pieces, 1, std::max(1u, std::thread::hardware_concurrency()));
  std::atomic<std::size_t> next = 0;
  const auto run = [&] {
    for (std::size_t i = next++; i < pieces && !interrupted(); i = next++) {
      try {
        work(i * piece, std::min(piece, total - i * piece));
      } catch (...) {
        next = pieces;
        throw;
      }
    }
  };
  std::vector<std::future<void>> others;  // where a limit on processes is reached they run below
  others.reserve(workers);
  for (std::size_t worker = 1; worker < workers; ++worker) others.push_back(std::async(run));
  run();
  for (std::future<void>& other : others) other.get();
  stop_if_interrupted();
}

}  // namespace tandem
