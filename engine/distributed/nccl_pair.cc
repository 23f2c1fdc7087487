#include "engine/distributed/nccl_pair.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <string>
#include <thread>

#include "engine/common/error.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

// What was sent before an end left is on its way for that long at most.
constexpr std::chrono::milliseconds kGrace{100};
// For a first message; connecting takes NCCL seconds at most.
constexpr std::chrono::seconds kConnecting{60};

/// Messages of one direction at one of its ends: a communicator's rank with a stream and room on its GPU. Directions
/// have communicators of their own, since NCCL works off what one communicator is given in order.
class Channel {
 public:
  /// Owns `comm` from here on; nothing can be sent before open().
  Channel(const GpuLibraries& lib, DriverContext context, NcclComm comm, int peer)
      : lib_(lib), context_(context), comm_(comm), peer_(peer) {}
  ~Channel() {
    lib_.context_set(context_);
    if (!aborted_) lib_.comm_destroy(comm_);
    if (stream_ != nullptr) lib_.stream_destroy(stream_);  // first: what is on it may still use the memory
    if (room_ != 0) lib_.free(at_);
  }
  /// RunError where the GPU has no stream or memory to give.
  void open() {
    enter();
    check(lib_.stream_create(&stream_, 1), "make a stream");  // 1: beside the default stream
    reserve(sizeof(std::uint64_t));
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void enter() const { check(lib_.context_set(context_), "enter a GPU's context"); }

  void send(const void* from, std::size_t bytes) {
    reserve(bytes);
    check(lib_.to_device(at_, from, bytes, stream_), "copy a message to a GPU");
    start_send(bytes);
  }
  void receive(void* to, std::size_t bytes) {
    reserve(bytes);
    start_receive(bytes);
    to_ = to;  // a copy to pageable memory waits for what is before it: it is for fetch()
    bytes_ = bytes;
  }
  /// What is on the GPU, or comes there; of no more bytes than there is room for. The first call of a channel waits for
  /// that of the other end unless connect() made both.
  void start_send(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!aborted_) check_nccl(lib_.send(pointer(), bytes, kNcclUint8, peer_, comm_, stream_), "send");
  }
  void start_receive(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!aborted_) check_nccl(lib_.receive(pointer(), bytes, kNcclUint8, peer_, comm_, stream_), "receive");
  }
  /// Brings down what was received, once done().
  void fetch() {
    check(lib_.to_host(to_, at_, bytes_, stream_), "copy a message from a GPU");
    to_ = nullptr;
  }
  bool receives() const { return to_ != nullptr; }
  /// Whether the stream has nothing left to do. RunError where NCCL or the driver reports an error.
  bool done() {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw_run_error("The link between the two GPUs has failed.");
    int error = 0;
    check_nccl(lib_.comm_async_error(comm_, &error), "be asked how it is");
    if (error != kNcclInProgress) check_nccl(error, "go on");
    const int result = lib_.stream_query(stream_);
    if (result != kDriverNotReady) check(result, "send or receive");
    return result == 0;
  }
  /// Ends what NCCL is at; no other use after it but the destructor.
  void abort() {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    lib_.comm_abort(comm_);
  }

 private:
  void* pointer() const { return std::bit_cast<void*>(at_); }
  void reserve(std::size_t bytes) {
    if (bytes <= room_) return;
    if (room_ != 0) check(lib_.free(std::exchange(at_, 0)), "free memory");
    room_ = 0;
    check(lib_.allocate(&at_, bytes), "allocate memory");
    room_ = bytes;
  }
  void check(int result, const char* what) const {
    if (result == 0) return;
    const char* text = nullptr;
    lib_.driver_error(result, &text);
    throw_run_error("A GPU cannot {}: {}.", what, text != nullptr ? text : std::to_string(result));
  }
  void check_nccl(int result, const char* what) const {
    if (result != 0) throw_run_error("NCCL cannot {}: {}.", what, lib_.nccl_error(result));
  }

  const GpuLibraries& lib_;
  DriverContext context_;
  NcclComm comm_;
  int peer_;
  DriverStream stream_ = nullptr;
  DriverPointer at_ = 0;
  std::size_t room_ = 0;
  void* to_ = nullptr;
  std::size_t bytes_ = 0;
  std::mutex mutex_;  // of the communicator, which may be aborted by another thread
  bool aborted_ = false;
};

struct SharedRings {
  explicit SharedRings(const GpuLibraries& libraries) : lib(libraries) {}
  ~SharedRings() {
    for (auto& own : out) own.reset();
    for (auto& own : in) own.reset();
    for (const int device : retained) lib.context_release(device);
  }
  SharedRings(const SharedRings&) = delete;
  SharedRings& operator=(const SharedRings&) = delete;

  /// Ends both directions. What to say about it: `reason`, with another's that came first.
  std::string abort(const std::string& reason) {
    std::string said = reason;
    {
      const std::lock_guard lock(mutex);
      if (first_reason.empty())
        first_reason = reason;
      else
        said = "The link between the two GPUs has failed before: " + first_reason;
    }
    for (int i = 0; i < 2; ++i) {
      out[i]->abort();
      in[i]->abort();
    }
    return said;
  }

  GpuLibraries lib;
  std::vector<int> retained;
  std::array<std::unique_ptr<Channel>, 2> out, in;  // by end
  std::array<std::atomic<bool>, 2> gone{};
  std::mutex mutex;
  std::string first_reason;
};

/// Sends one message each way. NCCL sets up a connection inside the first call that needs it, where it waits for the
/// other end's: without a time limit, and nobody could abort what holds the channel meanwhile.
void connect(SharedRings& shared) {
  const auto check = [&](int result) {
    if (result != 0) throw_run_error("NCCL cannot connect the two GPUs: {}.", shared.lib.nccl_error(result));
  };
  const Clock::time_point begin = Clock::now();
  for (int from = 0; from < 2; ++from) {
    Channel &out = *shared.out[from], &in = *shared.in[1 - from];
    check(shared.lib.group_start());
    try {
      out.start_send(sizeof(std::uint64_t));
      in.start_receive(sizeof(std::uint64_t));
    } catch (const RunError&) {
      shared.lib.group_end();  // or what follows on this thread would wait for it
      throw;
    }
    check(shared.lib.group_end());
    while (!out.done() || !in.done()) {
      if (Clock::now() - begin > kConnecting)
        throw_run_error("NCCL has carried no message between the two GPUs in {} seconds.", kConnecting.count());
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

class NcclEnd final : public Communicator {
 public:
  NcclEnd(std::shared_ptr<SharedRings> shared, int own, std::string other, std::chrono::milliseconds patience)
      : shared_(std::move(shared)), own_(own), other_(std::move(other)), patience_(patience) {}
  ~NcclEnd() override { shared_->gone[own_] = true; }
  NcclEnd(const NcclEnd&) = delete;
  NcclEnd& operator=(const NcclEnd&) = delete;

  void send(Message message) override {
    if (shared_->gone[1 - own_]) throw_run_error("A message cannot be sent: {} is gone.", other_);
    Channel& out = *shared_->out[own_];
    const std::uint64_t bytes = message.size();
    guarded([&] {
      out.enter();
      out.send(&bytes, sizeof bytes);
      finish(out, patience_);
      if (bytes == 0) return;
      out.send(message.data(), bytes);
      finish(out, patience_);
    });
  }
  Message receive() override { return take(patience_); }
  Message await() override { return take({}); }
  void set_patience(std::chrono::milliseconds patience) override { patience_ = patience; }

 private:
  /// A message that may begin within `begins`, 0: at any time.
  Message take(std::chrono::milliseconds begins) {
    Channel& in = *shared_->in[own_];
    std::uint64_t bytes = 0;
    Message message;
    guarded([&] {
      in.enter();
      in.receive(&bytes, sizeof bytes);
      finish(in, begins);
      message.resize(bytes);
      if (bytes == 0) return;
      in.receive(message.data(), bytes);
      finish(in, patience_);
    });
    return message;
  }
  /// After an error nothing is in order any more: both directions end, and the other end is told so when it waits.
  template <class Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (const RunError& error) {
      throw_run_error("{}", shared_->abort(error.what()));
    }
  }

  void finish(Channel& channel, std::chrono::milliseconds patience) const {
    wait(channel, patience);
    if (!channel.receives()) return;
    channel.fetch();
    wait(channel, patience);
  }
  /// Sleeps longer and longer between looks, so that a rank that waits leaves its core to others.
  void wait(Channel& channel, std::chrono::milliseconds patience) const {
    const Clock::time_point begin = Clock::now();
    Clock::time_point left{};
    std::chrono::microseconds pause{5};
    while (!channel.done()) {
      const Clock::time_point now = Clock::now();
      if (shared_->gone[1 - own_]) {
        if (left == Clock::time_point{}) left = now;
        if (now - left > kGrace) throw_run_error("{} is gone: it ended before it answered.", other_);
      }
      if (patience.count() > 0 && now - begin > patience) {
        throw_run_error("{} has sent or taken nothing for {:g} seconds; it hangs, or is much slower than this rank.",
                        other_, static_cast<double>(patience.count()) / 1000);
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::microseconds(500));
    }
  }

  std::shared_ptr<SharedRings> shared_;
  int own_;
  std::string other_;
  std::chrono::milliseconds patience_;
};

}  // namespace

CommunicatorPair make_nccl_pair(const GpuLibraries& libraries, const NcclPlaces& places, std::string first,
                                std::string second, std::chrono::milliseconds patience) {
  const auto check = [&libraries](int result, const char* what) {
    if (result == 0) return;
    const char* text = nullptr;
    libraries.driver_error(result, &text);
    throw_run_error("The GPUs cannot {}: {}.", what, text != nullptr ? text : std::to_string(result));
  };
  int count = 0;
  if (libraries.init(0) != 0 || libraries.device_count(&count) != 0) count = 0;
  const int needed = std::max(places.first, places.second) + 1;
  if (count < needed || places.first == places.second || std::min(places.first, places.second) < 0) {
    throw_input_error("Messages over NCCL go between two GPUs, here number {} and {}, and this machine has {}.",
                      places.first, places.second, count);
  }
  auto shared = std::make_shared<SharedRings>(libraries);
  const std::array<int, 2> ordinals = {places.first, places.second};
  std::array<DriverContext, 2> contexts{};
  for (std::size_t i = 0; i < 2; ++i) {
    int device = 0;
    check(libraries.device_get(&device, ordinals[i]), "be opened");
    check(libraries.context_retain(&contexts[i], device), "be opened");
    shared->retained.push_back(device);
  }
  for (int from = 0; from < 2; ++from) {  // a communicator for each direction
    std::array<NcclComm, 2> ranks{};
    if (const int result = libraries.comm_init_all(ranks.data(), 2, ordinals.data()); result != 0)
      throw_run_error("NCCL cannot connect the two GPUs: {}.", libraries.nccl_error(result));
    shared->out[from] = std::make_unique<Channel>(shared->lib, contexts[from], ranks[from], 1 - from);
    shared->in[1 - from] = std::make_unique<Channel>(shared->lib, contexts[1 - from], ranks[1 - from], from);
    shared->out[from]->open();
    shared->in[1 - from]->open();
  }
  try {
    connect(*shared);
  } catch (const RunError& error) {
    throw_run_error("{}", shared->abort(error.what()));
  }
  return {std::make_unique<NcclEnd>(shared, 0, std::move(second), patience),
          std::make_unique<NcclEnd>(shared, 1, std::move(first), patience)};
}

}  // namespace tandem
