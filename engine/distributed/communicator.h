// Messages between two ranks: threads of one process, or processes (mpi_ranks.h). Each message arrives whole and
// in order. An end that is destroyed, or whose process is gone, or that stays silent, is an error at the other end.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace tandem {

using Message = std::vector<std::byte>;

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Between threads it does not wait for the other end; between processes it may wait until that takes the message.
  /// RunError where the other end is gone, or takes nothing before the time is over.
  virtual void send(Message message) = 0;
  /// A message that is due. RunError where the other end is gone, or sends nothing before the time is over.
  virtual Message receive() = 0;
  /// The next message, whenever it begins: what an end that serves does between two. RunError where the other end is
  /// gone, or does not finish in time what it began.
  virtual Message await() = 0;
  /// From now on this end waits for so long, but in await(); 0: for ever. Not while it is sending or receiving.
  virtual void set_patience(std::chrono::milliseconds patience) = 0;
};

struct CommunicatorPair {
  std::unique_ptr<Communicator> first, second;
};

/// Two ends in one process, named for error sentences ("the cache rank"), with the same `patience`.
CommunicatorPair make_thread_pair(std::string first, std::string second, std::chrono::milliseconds patience);

}  // namespace tandem
