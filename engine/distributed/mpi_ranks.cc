#include "engine/distributed/mpi_ranks.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mpi.h>
#include <thread>

#include "engine/common/error.h"

namespace tandem {
namespace {

constexpr int kTag = 1;
constexpr std::chrono::milliseconds kPatience{60'000};  // of a rank that is not told otherwise
constexpr std::size_t kPiece = std::size_t{1} << 30;    // MPI counts in int

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw_run_error("MPI cannot {}: {}.", what, std::string_view(text, static_cast<std::size_t>(length)));
}

/// Sleeps longer and longer between looks, which leaves the core to others; RunError when the time is over.
class Patience {
 public:
  explicit Patience(std::chrono::milliseconds all) : all_(all), end_(std::chrono::steady_clock::now() + all) {}
  void wait() {
    if (all_.count() > 0 && std::chrono::steady_clock::now() > end_)
      throw_run_error("The other rank has neither sent nor taken anything for {:g} seconds; it hangs, or is gone.",
                      static_cast<double>(all_.count()) / 1000);
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, std::chrono::microseconds(500));
  }

 private:
  std::chrono::milliseconds all_;  // 0: for ever
  std::chrono::steady_clock::time_point end_;
  std::chrono::microseconds pause_{5};
};

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(int other) : other_(other) {}
  void send(Message message) override {
    check_link();
    out_bytes_ = message.size();
    try {
      put(&out_bytes_, sizeof(out_bytes_));
      for (std::size_t at = 0; at < message.size(); at += kPiece)
        put(message.data() + at, std::min(kPiece, message.size() - at));
    } catch (...) {
      unsent_ = std::move(message);  // MPI may still read from it
      throw;
    }
  }
  bool failed() const { return failed_; }
  void set_patience(std::chrono::milliseconds patience) override { patience_ = patience; }
  Message receive() override { return take(patience_); }
  Message await() override { return take({}); }

 private:
  /// A message that may begin within `begins`, 0: at any time.
  Message take(std::chrono::milliseconds begins) {
    check_link();
    std::uint64_t bytes = 0;
    get(&bytes, sizeof(bytes), begins);
    Message message(bytes);
    for (std::size_t at = 0; at < bytes; at += kPiece)
      get(message.data() + at, std::min<std::size_t>(kPiece, bytes - at), patience_);
    return message;
  }
  void put(const void* data, std::size_t bytes) const {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, other_, kTag, MPI_COMM_WORLD, &request), "send");
    finish(request, patience_, /*receives=*/false);
  }
  void get(void* data, std::size_t bytes, std::chrono::milliseconds patience) const {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, other_, kTag, MPI_COMM_WORLD, &request), "receive");
    finish(request, patience, /*receives=*/true);
  }
  void finish(MPI_Request request, std::chrono::milliseconds all, bool receives) const {
    Patience patience(all);
    try {
      for (int done = 0; done == 0;) {
        check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "see a message through");
        if (done == 0) patience.wait();
      }
    } catch (...) {
      failed_ = true;
      if (receives && request != MPI_REQUEST_NULL) {  // so that a late message is not written into memory that is gone
        MPI_Cancel(&request);
        MPI_Request_free(&request);
      }
      throw;
    }
  }
  /// What failed once is not waited for again: not to say goodbye, and not by another lane.
  void check_link() const {
    if (failed_) throw_run_error("The link to the other rank has failed before.");
  }
  int other_;
  std::chrono::milliseconds patience_ = kPatience;
  std::uint64_t out_bytes_ = 0;
  Message unsent_;
  mutable std::atomic<bool> failed_{false};
};

class OpenMpiRank final : public MpiRank {
 public:
  OpenMpiRank() {
    int granted = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &granted), "start");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &number_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    if (ranks_ == 1 || (ranks_ == 2 && granted >= MPI_THREAD_MULTIPLE)) return;
    MPI_Finalize();
    if (ranks_ != 2)
      throw_input_error("mpirun started {} processes; tandem runs as two, the second is the cache rank: mpirun -n 2.",
                        ranks_);
    throw_input_error("This MPI does not let several threads send messages (MPI_THREAD_MULTIPLE).");
  }
  ~OpenMpiRank() override {
    // Leaving is collective: with a rank that hangs or is gone it would never end.
    if (link_ != nullptr && link_->failed()) {
      std::fflush(nullptr);
      MPI_Abort(MPI_COMM_WORLD, kFailed);
    }
    MPI_Finalize();
  }
  OpenMpiRank(const OpenMpiRank&) = delete;
  OpenMpiRank& operator=(const OpenMpiRank&) = delete;
  int number() const override { return number_; }
  int ranks() const { return ranks_; }
  std::shared_ptr<Communicator> other() override {
    if (link_ == nullptr) link_ = std::make_shared<MpiCommunicator>(1 - number_);
    return link_;
  }

 private:
  static constexpr int kFailed = 3;  // the program's exit code of a run that failed
  int number_ = 0, ranks_ = 0;
  std::shared_ptr<MpiCommunicator> link_;
};

}  // namespace

std::unique_ptr<MpiRank> join_ranks() {
  auto rank = std::make_unique<OpenMpiRank>();
  if (rank->ranks() == 1) return nullptr;
  return rank;
}

}  // namespace tandem
