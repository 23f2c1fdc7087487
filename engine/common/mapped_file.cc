#include "engine/common/mapped_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "engine/common/error.h"

namespace tandem {

/// A mapping as the signal handler sees it. Places are never freed: the handler may be on its way through them.
struct MappedFile::Place {
  std::atomic<std::uintptr_t> begin{0}, end{0};  // addresses; 0 and 0: free
  std::atomic<bool> lost{false};                 // bytes were read that were not there
  Place* next = nullptr;
  // Not the handler's:
  std::string name;
  int descriptor = -1;
  struct stat status {};  // when it was opened

  static inline std::atomic<Place*> first{nullptr};
  static inline std::atomic<int> lost_ones{0};
  static inline std::mutex mutex;  // held by whoever takes a place, gives it back or names it

  static void on_missing_byte(int signal, siginfo_t* info, void* context);
};

namespace {

struct sigaction handled_before {};
std::uintptr_t page_bytes = 4096;

void handle_missing_bytes(void (*handler)(int, siginfo_t*, void*)) {
  page_bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &handled_before);
}

}  // namespace

void MappedFile::Place::on_missing_byte(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Place* place = first.load(std::memory_order_acquire); place != nullptr; place = place->next) {
    const std::uintptr_t end = place->end.load();
    if (at < place->begin.load() || at >= end) continue;
    // All behind it is gone, too: a file is cut at its end.
    const std::uintptr_t page = at / page_bytes * page_bytes;
    char* const start = static_cast<char*>(info->si_addr) - (at - page);
    void* const zeros =
        mmap(start, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (zeros == MAP_FAILED) break;
    if (!place->lost.exchange(true)) lost_ones.fetch_add(1);
    errno = error;
    return;
  }
  if ((handled_before.sa_flags & SA_SIGINFO) != 0) return handled_before.sa_sigaction(signal, info, context);
  sigaction(signal, &handled_before, nullptr);  // the access is tried again, and ends the program as it would have
}

MappedFile::MappedFile(const std::filesystem::path& file) {
  // O_NONBLOCK: opening a pipe would otherwise wait for a writer.
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw_input_error("{} cannot be opened: {}.", file.string(), std::strerror(errno));
  struct stat status {};
  const bool regular = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = nullptr;
  int error = 0;
  if (regular && size > 0) {
    data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    error = data == MAP_FAILED ? errno : 0;
  }
  if (!regular || error != 0) close(descriptor);
  if (!regular) throw_input_error("{} is not a regular file.", file.string());
  if (error != 0) throw_input_error("{} cannot be mapped: {}.", file.string(), std::strerror(error));
  bytes_ = {static_cast<const std::byte*>(data), size};

  static std::once_flag handled;
  std::call_once(handled, handle_missing_bytes, Place::on_missing_byte);
  const std::lock_guard lock(Place::mutex);
  for (place_ = Place::first; place_ != nullptr && place_->descriptor >= 0;) place_ = place_->next;
  const bool is_new = place_ == nullptr;
  if (is_new) place_ = new Place;
  place_->name = file.string();
  place_->descriptor = descriptor;
  place_->status = status;
  place_->lost = false;
  place_->begin = reinterpret_cast<std::uintptr_t>(data);
  place_->end = reinterpret_cast<std::uintptr_t>(data) + size;
  if (is_new) {
    place_->next = Place::first;
    Place::first.store(place_, std::memory_order_release);
  }
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& file) {
  return std::shared_ptr<const MappedFile>(new MappedFile(file));
}

MappedFile::~MappedFile() {
  const std::lock_guard lock(Place::mutex);
  place_->end = 0;
  place_->begin = 0;
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (place_->lost.exchange(false)) Place::lost_ones.fetch_sub(1);
  close(place_->descriptor);
  place_->descriptor = -1;
}

bool MappedFile::unchanged() const {
  struct stat now {};
  const struct stat& then = place_->status;
  const auto same = [](const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; };
  return fstat(place_->descriptor, &now) == 0 && now.st_size == then.st_size && same(now.st_mtim, then.st_mtim) &&
         !place_->lost;
}

void MappedFile::read(std::span<std::byte> out, std::size_t at, bool keep_cached) const {
  for (std::size_t done = 0; done < out.size();) {
    const ssize_t count =
        pread(place_->descriptor, out.data() + done, out.size() - done, static_cast<off_t>(at + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      throw_run_error("{} cannot be read from byte {} on: {}.", place_->name, at + done,
                      count == 0 ? "it became shorter" : std::strerror(errno));
    done += static_cast<std::size_t>(count);
  }
  if (!keep_cached)
    posix_fadvise(place_->descriptor, static_cast<off_t>(at), static_cast<off_t>(out.size()), POSIX_FADV_DONTNEED);
}

void MappedFile::let_go(std::span<const std::byte> part) const {
  const auto begin = static_cast<std::size_t>(part.data() - bytes_.data()) / page_bytes * page_bytes;
  const auto end = static_cast<std::size_t>(part.data() + part.size() - bytes_.data()) / page_bytes * page_bytes;
  if (end > begin) madvise(const_cast<std::byte*>(bytes_.data()) + begin, end - begin, MADV_DONTNEED);
}

bool MappedFile::is_cached() const {
  std::vector<unsigned char> pages((bytes_.size() + page_bytes - 1) / page_bytes);
  if (pages.empty() || mincore(const_cast<std::byte*>(bytes_.data()), bytes_.size(), pages.data()) != 0) return true;
  const auto cached = std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
  return static_cast<std::size_t>(cached) > pages.size() / 2;
}

void MappedFile::check_all() {
  if (Place::lost_ones.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(Place::mutex);
  for (const Place* place = Place::first; place != nullptr; place = place->next)
    if (place->lost)
      throw_run_error(
          "{} became shorter while it was used, so what was computed last does not count. Restore the file.",
          place->name);
}

}  // namespace tandem
