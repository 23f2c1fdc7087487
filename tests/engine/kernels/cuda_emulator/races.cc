#include "tests/engine/kernels/cuda_emulator/races.h"

#include <algorithm>
#include <bit>
#include <fmt/core.h>
#include <utility>

namespace tandem::cuda_emulator {
namespace {

constexpr unsigned kLanes = 32;

}  // namespace

thread_local Races* races = nullptr;

void Races::begin_block(std::uint32_t index, unsigned threads, Bytes shared) {
  block_ = index;
  epoch_ = 0;
  shared_ = shared;
  if (!judges_) return;
  in_shared_.reset();
  times_.assign((threads + kLanes - 1) / kLanes, 0);
  seen_.assign(std::size_t{threads} * kLanes, 0);
}

void Races::warp_barrier(unsigned warp, std::uint32_t lanes) {
  if (!judges_) return;
  const std::uint32_t now = ++times_[warp];  // what was done before it has a lesser time
  std::uint32_t joined[kLanes] = {};
  const auto seen = [&](unsigned lane) { return &seen_[(std::size_t{warp} * kLanes + lane) * kLanes]; };
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    for (unsigned other = 0; other < kLanes; ++other) joined[other] = std::max(joined[other], seen(lane)[other]);
  }
  for (unsigned lane = 0; lane < kLanes; ++lane)
    if (lanes >> lane & 1) joined[lane] = now;
  for (unsigned lane = 0; lane < kLanes; ++lane)
    if (lanes >> lane & 1) std::copy_n(joined, kLanes, seen(lane));
}

bool Races::ordered(const Doers& before) const {
  if (before.block == kNobody) return true;
  if (before.block != block_) return false;
  if (before.epoch < epoch_) return true;
  if (before.warp != thread_ / kLanes) return false;
  const std::uint32_t* const seen = &seen_[std::size_t{thread_} * kLanes];
  for (std::uint32_t lanes = before.lanes & ~(1u << thread_ % kLanes); lanes != 0; lanes &= lanes - 1)
    if (seen[std::countr_zero(lanes)] <= before.time) return false;
  return true;
}

void Races::add(Doers& doers) const {
  const std::uint32_t warp = thread_ / kLanes, lane = 1u << thread_ % kLanes, now = times_[warp];
  if (doers.block == block_ && doers.epoch == epoch_ && doers.warp == warp && doers.time == now) {
    doers.lanes |= lane;  // nothing orders lanes of one time: what is read by a whole warp comes here
    return;
  }
  if (ordered(doers)) {
    doers = {block_, epoch_, now, warp, lane};
    return;
  }
  if (doers.block != block_) {
    doers.block = kSeveral;
  } else if (doers.warp != warp) {
    doers.warp = kSeveral;
  } else {
    doers.lanes |= lane;
    doers.time = std::max(doers.time, now);
  }
}

const Races::Doers* Races::judge(Cell& cell, Kind kind, Kind& other) const {
  const auto unordered = [&](const Doers& doers, Kind of) {
    if (ordered(doers)) return false;
    other = of;
    return true;
  };
  switch (kind) {
    case Kind::constant_read:
      cell.constant = true;
      for (const auto& [doers, of] : {std::pair(&cell.writes, Kind::write), std::pair(&cell.atomics, Kind::atomic)}) {
        if (doers->block == kNobody) continue;
        other = of;
        return doers;
      }
      [[fallthrough]];
    case Kind::read:
      if (unordered(cell.writes, Kind::write)) return &cell.writes;
      if (unordered(cell.atomics, Kind::atomic)) return &cell.atomics;
      add(cell.reads);
      return nullptr;
    case Kind::write:
    case Kind::atomic:
      if (cell.constant) {
        other = Kind::constant_read;
        return &cell.reads;
      }
      if (unordered(cell.writes, Kind::write)) return &cell.writes;
      if (unordered(cell.reads, Kind::read)) return &cell.reads;
      if (kind == Kind::atomic) {
        add(cell.atomics);
        return nullptr;
      }
      if (unordered(cell.atomics, Kind::atomic)) return &cell.atomics;
      cell = {};
      add(cell.writes);
      return nullptr;
  }
  return nullptr;
}

std::string Races::name(const Doers& doers) const {
  if (doers.block == kSeveral) return "several blocks";
  if (doers.block != block_) return fmt::format("block {}", doers.block);
  if (doers.warp == kSeveral) return "threads of several warps";
  const std::uint32_t others = doers.lanes & ~(doers.warp == thread_ / kLanes ? 1u << thread_ % kLanes : 0u);
  const unsigned first = doers.warp * kLanes + static_cast<unsigned>(std::countr_zero(others == 0 ? 1u : others));
  return std::popcount(others) > 1 ? fmt::format("thread {} and others of its warp", first)
                                   : fmt::format("thread {}", others == 0 ? thread_ : first);
}

void Races::look(const void* at, std::size_t bytes, Kind kind, const void* code) {
  if (!judges_) {
    if (within(shared_, at)) return;
    const bool reads = kind == Kind::read || kind == Kind::constant_read;
    outside_.visit(at, bytes, [&](Cell& cell) {
      (reads ? cell.reads : cell.writes).block = block_;
      return true;
    });
    return;
  }
  (within(shared_, at) ? in_shared_ : outside_).visit(at, bytes, [&](Cell& cell) {
    Kind other = Kind::read;
    const Doers* const race = judge(cell, kind, other);
    if (race != nullptr) race_ = std::make_unique<Race>(Race{at, bytes, thread_, kind, other, name(*race), code});
    return race == nullptr;
  });
}

std::vector<Touched> Races::touched() const {
  std::vector<Touched> all;
  outside_.each([&](std::uintptr_t at, std::size_t bytes, const Cell& cell) {
    const bool write = cell.writes.block != kNobody || cell.atomics.block != kNobody;
    if (!write && cell.reads.block == kNobody) return;
    if (!all.empty() && all.back().write == write &&
        reinterpret_cast<std::uintptr_t>(all.back().at) + all.back().bytes == at)
      all.back().bytes += bytes;
    else
      all.push_back({reinterpret_cast<const void*>(at), bytes, write});
  });
  return all;
}

}  // namespace tandem::cuda_emulator
