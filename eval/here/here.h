// Each method's decode step on the CPU at hand, as the simulated device predicts it and as the emulated one measures
// it: the same engine, bodies and choices on both, one core as the device and another one as the host; memcpy is the
// link. The machine's hardware profile is measured from kernels, copies and hand-offs: no decode step goes in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/profile.h"
#include "engine/model/model.h"
#include "eval/kernels/bench.h"
#include "eval/latency/latency.h"

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

struct MachineFigures {
  std::vector<KernelTime> one_thread, two_threads;
  double read_gbps = 0;           // plain reads of one thread
  double product_gbps = 0;        // products of one row, by one thread
  std::vector<LinkPoint> copies;  // memcpy by one thread, by bytes of a piece
  HandOffTimes hand_offs;
  double memory_gb = 0, cache_bytes = 0;
};

/// One pass: the best of a few rounds. Takes about twenty seconds; `model`: whose products are measured. `tell` is told
/// what is measured. Interrupted where `interrupted` says so.
MachineFigures measure_figures(const Model& model, const Sides& sides,
                               const std::function<void(const std::string& what)>& tell,
                               const std::function<bool()>& interrupted);

/// The median of each figure over passes, which lie between the measurements that they are to predict: what a machine
/// has to give changes with its neighbours.
MachineFigures medians_of(std::span<const MachineFigures> passes);

HardwareProfile profile_of(const MachineFigures& figures, const std::string& cpu, std::vector<std::string>& warnings);

/// The method that others are compared with: what it reads of the context is the same at every length.
inline constexpr const char* kHereBase = "streaming";

struct HereOptions {
  std::vector<std::string> methods;  // specs; kHereBase is put in front where it is missing
  std::vector<std::uint32_t> contexts = {16384, 32768};
  std::uint32_t rounds = 5, steps = 6;     // of the measurement
  std::filesystem::path prompts;           // folder for prefilled prompts
  std::optional<HardwareProfile> profile;  // of this machine, measured before; none: it is measured now
  std::function<void(std::uint64_t done, std::uint64_t total, const std::string& what)> progress;
  std::function<bool()> interrupted;
};

/// Methods whose kernels the profile has rates for: those that score single tokens (tova, infinigen, asyncspade) run on
/// a CPU at a rate of their own.
std::vector<std::string> here_methods();

/// Random weights at a shape whose KV at long contexts outweighs them: four layers of 32 query and 8 KV heads of 128.
Model here_model();

/// A decode step, or its part beyond kHereBase, in ms.
struct HereTime {
  std::vector<double> rounds;  // measured, a step's mean in each round
  double measured = 0, predicted = 0;

  double error() const;  // relative; above 0: predicted as too slow
};

struct HereRow {
  std::string method;
  std::uint32_t context = 0;
  HereTime step, beyond;  // beyond: less what kHereBase took in the same round
  std::vector<OperationTime> measured_operations, predicted_operations;

  bool is_base() const { return method.substr(0, method.find(':')) == kHereBase; }
};

/// Two methods whose measured steps differ by more than kOrderGap, in the other order than predicted.
struct WrongOrder {
  std::uint32_t context = 0;
  std::string faster, slower;  // as measured
};
inline constexpr double kOrderGap = 0.15;

struct HereValidation {
  Sides sides;
  std::string cpu;                    // "AMD EPYC, avx512_bf16"
  HardwareProfile profile;            // of this machine
  MachineFigures figures;             // what it is made of; empty where it was given
  std::vector<std::string> warnings;  // sentences
  std::string model;                  // its shape, in words
  double weights_share = 0;           // of the measured steps, the part that products take: the median over rows
  std::uint32_t rounds = 0, steps = 0;
  double others_cpus = 0;     // that other processes used while the steps were measured, in the mean
  std::vector<HereRow> rows;  // by context, then method

  std::vector<WrongOrder> wrong_orders() const;
  struct Errors {
    double median = 0, worst = 0;  // of |error|
  };
  /// Errors of steps, or of the parts beyond kHereBase (left out for kHereBase itself).
  Errors errors(HereTime HereRow::*part) const;
};

/// Fills rows of one context from the two runs, which have the same methods in the same order, kHereBase first.
std::vector<HereRow> here_rows(const Latency& measured, const Latency& predicted);

/// Measures all methods at each context, and the machine before, between and after; then predicts them.
HereValidation validate_here(const HereOptions& options);

std::string here_text(const HereValidation& validation, bool markdown);
/// `operations`: what each operation took, measured and predicted.
std::string here_operations_text(const HereValidation& validation);
std::string here_json(const HereValidation& validation, const std::string& command, const std::string& program);

}  // namespace tandem::eval
