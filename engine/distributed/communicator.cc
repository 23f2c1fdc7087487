#include "engine/distributed/communicator.h"

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "engine/common/error.h"

namespace tandem {
namespace {

struct SharedPair {
  std::mutex mutex;
  std::condition_variable changed;
  std::array<std::deque<Message>, 2> inbox;  // of either end
  std::array<bool, 2> gone{};
};

class ThreadEnd final : public Communicator {
 public:
  ThreadEnd(std::shared_ptr<SharedPair> shared, int own, std::string other, std::chrono::milliseconds patience)
      : shared_(std::move(shared)), own_(own), other_(std::move(other)), patience_(patience) {}
  ~ThreadEnd() override {
    const std::lock_guard lock(shared_->mutex);
    shared_->gone[own_] = true;
    shared_->changed.notify_all();
  }
  void send(Message message) override {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->gone[1 - own_]) throw_run_error("A message cannot be sent: {} is gone.", other_);
    shared_->inbox[1 - own_].push_back(std::move(message));
    shared_->changed.notify_all();
  }
  Message receive() override { return take(patience_); }
  Message await() override { return take({}); }
  void set_patience(std::chrono::milliseconds patience) override { patience_ = patience; }

 private:
  Message take(std::chrono::milliseconds patience) {
    std::unique_lock lock(shared_->mutex);
    std::deque<Message>& inbox = shared_->inbox[own_];
    const auto ready = [&] { return !inbox.empty() || shared_->gone[1 - own_]; };
    if (patience.count() == 0) {
      shared_->changed.wait(lock, ready);
    } else if (!shared_->changed.wait_for(lock, patience, ready)) {
      throw_run_error("{} has sent nothing for {:g} seconds; it hangs, or is much slower than this rank.", other_,
                      static_cast<double>(patience.count()) / 1000);
    }
    if (inbox.empty()) throw_run_error("{} is gone: it ended before it answered.", other_);
    Message message = std::move(inbox.front());
    inbox.pop_front();
    return message;
  }

  std::shared_ptr<SharedPair> shared_;
  int own_;
  std::string other_;
  std::chrono::milliseconds patience_;
};

}  // namespace

CommunicatorPair make_thread_pair(std::string first, std::string second, std::chrono::milliseconds patience) {
  auto shared = std::make_shared<SharedPair>();
  return {std::make_unique<ThreadEnd>(shared, 0, std::move(second), patience),
          std::make_unique<ThreadEnd>(shared, 1, std::move(first), patience)};
}

}  // namespace tandem
