#include "tests/engine/kernels/cuda_emulator/stream_order.h"

#include <algorithm>
#include <dlfcn.h>
#include <fmt/core.h>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "tests/engine/kernels/cuda_emulator/emulator.h"
#include "tests/engine/kernels/cuda_emulator/shadow.h"

namespace tandem::cuda_emulator {
namespace {

/// A work of a stream that touched some bytes.
struct Toucher {
  std::uint64_t work = 0;  // counted from 1
  std::uint32_t stream = 0;
  const void* kernel = nullptr;
};
struct Cell {
  Toucher writer;                // work 0: nobody
  std::vector<Toucher> readers;  // since, the last one of each stream
};

struct Process {
  std::mutex mutex;
  Clock host;
  /// By count: what was known when it was raised to each value, in that order.
  std::map<const char*, std::vector<std::pair<std::uint32_t, Clock>>> counts;
  std::map<const char*, std::size_t> allocated;  // bytes from there on
  Shadow<Cell> shadow;
  std::vector<std::uint64_t> works;  // by stream number: begun so far
  std::set<std::uint32_t> ended;     // numbers of streams that are no more
};
Process& process() {
  static Process one;
  return one;
}

thread_local StreamOrder* working = nullptr;

std::string name(const void* kernel) {
  return kernel == nullptr ? "A copy or product" : fmt::format("A kernel{}", place_of_code(kernel));
}

[[noreturn]] void report(const Touched& touched, const void* kernel, const Toucher& other, bool other_writes) {
  throw Error(fmt::format(
      "{} of stream {} {} {} bytes at {}, and nothing orders that with a work of stream {} by which some of them were "
      "{}: {}.",
      name(kernel), working->number(), touched.write ? "writes" : "reads", touched.bytes, touched.at, other.stream,
      other_writes ? "written" : "read", name(other.kernel)));
}

}  // namespace

void Clock::join(const Clock& other) {
  if (works_.size() < other.works_.size()) works_.resize(other.works_.size());
  for (std::size_t i = 0; i < other.works_.size(); ++i) works_[i] = std::max(works_[i], other.works_[i]);
}

void Clock::set(std::uint32_t stream, std::uint64_t done) {
  if (works_.size() <= stream) works_.resize(stream + 1);
  works_[stream] = done;
}

StreamOrder::StreamOrder() {
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  // Of an ended stream the number is free when the host knows of all its works, so that no later one passes for them.
  const auto free = std::find_if(all.ended.begin(), all.ended.end(),
                                 [&](std::uint32_t number) { return all.host[number] == all.works[number]; });
  if (free == all.ended.end()) {
    number_ = static_cast<std::uint32_t>(all.works.size());
    all.works.push_back(0);
  } else {
    number_ = *free;
    all.ended.erase(free);
  }
  clock_ = all.host;
}

StreamOrder::~StreamOrder() {
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  all.ended.insert(number_);
}

void StreamOrder::begin_work(const Clock& host_then) {
  working = this;
  clock_.join(host_then);
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  clock_.set(number_, ++all.works[number_]);
}

void StreamOrder::end_work() {
  working = nullptr;
}

Clock known_here() {
  if (working != nullptr) return working->clock();
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  return all.host;
}

void learn_here(const Clock& clock) {
  if (working != nullptr) return working->join(clock);
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  all.host.join(clock);
}

void count_raised(const std::uint32_t* count, std::uint32_t value) {
  Clock known = known_here();
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  auto& history = all.counts[reinterpret_cast<const char*>(count)];
  if (!history.empty()) known.join(history.back().second);  // who sees this value has seen those before
  history.emplace_back(value, std::move(known));
}

void count_seen(const std::uint32_t* count, std::uint32_t value) {
  Clock known;
  {
    Process& all = process();
    const std::lock_guard lock(all.mutex);
    const auto& history = all.counts[reinterpret_cast<const char*>(count)];
    const auto raised = std::lower_bound(
        history.begin(), history.end(), value,
        [](const auto& one, std::uint32_t asked) { return static_cast<std::int32_t>(one.first - asked) < 0; });
    if (raised == history.end()) return;
    known = raised->second;
  }
  learn_here(known);
}

void touch(std::span<const Touched> touched, const void* kernel) {
  if (working == nullptr) return;
  const Clock& clock = working->clock();
  const Toucher self{clock[working->number()], working->number(), kernel};
  const auto ordered = [&](const Toucher& other) { return other.work <= clock[other.stream]; };
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  for (const Touched& one : touched) {
    const auto behind = all.allocated.upper_bound(static_cast<const char*>(one.at));
    if (behind == all.allocated.begin()) continue;
    const auto& [begin, bytes] = *std::prev(behind);
    if (static_cast<const char*>(one.at) >= begin + bytes) continue;
    all.shadow.visit(one.at, one.bytes, [&](Cell& cell) {
      if (!ordered(cell.writer)) report(one, kernel, cell.writer, true);
      if (one.write) {
        for (const Toucher& reader : cell.readers)
          if (!ordered(reader)) report(one, kernel, reader, false);
        cell.writer = self;
        cell.readers.clear();
      } else {
        const auto own = std::find_if(cell.readers.begin(), cell.readers.end(),
                                      [&](const Toucher& reader) { return reader.stream == self.stream; });
        if (own == cell.readers.end()) {
          cell.readers.push_back(self);
        } else {
          *own = self;
        }
      }
      return true;
    });
  }
}

void begin_touches(const void* at, std::size_t bytes) {
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  all.allocated[static_cast<const char*>(at)] = bytes;
}

void end_touches(const void* at) {
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  const auto begin = static_cast<const char*>(at);
  const auto one = all.allocated.find(begin);
  if (one == all.allocated.end()) return;
  all.shadow.reset(at, one->second);
  all.counts.erase(all.counts.lower_bound(begin), all.counts.lower_bound(begin + one->second));
  all.allocated.erase(one);
}

std::string place_of_code(const void* code) {
  Dl_info object{};
  if (dladdr(code, &object) == 0) return "";
  return fmt::format(" (addr2line -ife {} {:#x})", object.dli_fname,
                     static_cast<const char*>(code) - static_cast<const char*>(object.dli_fbase));
}

}  // namespace tandem::cuda_emulator
