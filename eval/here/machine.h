// A CPU as a machine: one core plays the device, another one the host, memcpy is the link. Measures its hardware
// profile from kernels, copies and hand-offs, medians of a few rounds; no decode step goes in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/profile.h"
#include "engine/model/model.h"
#include "eval/kernels/bench.h"
#include "hardware/calibration/measurements.h"

namespace tandem::eval {

/// The CPU that plays the device, and the one of the host's worker, all copies and the control thread.
struct Sides {
  int device = 0, host = 0;
};

/// Two CPUs of two cores. InputError where the process may use one core only.
Sides two_cores();

/// An `emu` device whose lanes stay on their side. Its kernels want a pool of one thread.
std::unique_ptr<Device> device_on(const Sides& sides);

/// Medians of the device interface's own times.
struct HandOffTimes {
  Nanos submit = 0;          // of Device::submit, to a lane that is at work
  Nanos across = 0;          // from the device's compute lane to a copy lane, or back: another core wakes up
  Nanos device_to_host = 0;  // from a copy lane to the host's worker: the same core
  Nanos host_to_device = 0;  // back
};
/// A chain device, d2h, host, h2d, device of operations that keep their core busy.
HandOffTimes measure_hand_offs(Device& device, std::uint32_t rounds);

struct MachineProgress {
  std::function<void(const std::string& what)> tell;
  std::function<bool()> interrupted;
};

struct MachineFigures {
  std::vector<KernelTime> one_thread, two_threads;
  double read_gbps = 0;           // plain reads of one thread
  double product_gbps = 0;        // products of one row, by one thread
  std::vector<LinkPoint> copies;  // memcpy by one thread, by bytes of a piece
  HandOffTimes hand_offs;
  double memory_gb = 0, cache_bytes = 0;
};

/// One pass: the best of a few rounds. Takes about twenty seconds; `model`: whose products are measured. Interrupted
/// where `progress` says so.
MachineFigures measure_figures(const Model& model, const Sides& sides, const MachineProgress& progress);

/// The median of each figure over passes, which lie between the measurements that they are to predict: what a machine
/// has to give changes with its neighbours.
MachineFigures medians_of(std::span<const MachineFigures> passes);

HardwareProfile profile_of(const MachineFigures& figures, const std::string& cpu, std::vector<std::string>& warnings);

}  // namespace tandem::eval
