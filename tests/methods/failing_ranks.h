// Cache ranks of asyncspade:place=peer that die, say nothing, or stop answering.
#pragma once

#include <memory>
#include <thread>
#include <utility>

#include "engine/common/error.h"
#include "engine/distributed/communicator.h"

namespace tandem::testing {

/// A rank that takes `lives` messages and then leaves, or stays silent.
class MortalRank {
 public:
  MortalRank(int lives, bool silent) {
    CommunicatorPair pair = make_thread_pair("The inference rank", "The cache rank", {});
    near = std::move(pair.first);
    thread_ = std::thread([far = std::shared_ptr<Communicator>(std::move(pair.second)), lives, silent]() mutable {
      try {
        // A silent one takes all that comes, until the near end is gone.
        for (int taken = 0; silent || taken < lives; ++taken) far->await();
      } catch (const RunError&) {
        // The near end is gone.
      }
      far.reset();
    });
  }
  ~MortalRank() {
    near.reset();
    thread_.join();
  }
  std::shared_ptr<Communicator> near;

 private:
  std::thread thread_;
};

/// A link to a rank that works, until so many answers have come.
class FailingLink final : public Communicator {
 public:
  FailingLink(std::shared_ptr<Communicator> link, int answers) : link_(std::move(link)), answers_(answers) {}
  void send(Message message) override { link_->send(std::move(message)); }
  Message receive() override {
    Message message = link_->receive();
    if (answers_-- <= 0) throw_run_error("The cache rank is gone.");
    return message;
  }
  Message await() override { return link_->await(); }
  void set_patience(std::chrono::milliseconds patience) override { link_->set_patience(patience); }

 private:
  std::shared_ptr<Communicator> link_;
  int answers_;
};

}  // namespace tandem::testing
