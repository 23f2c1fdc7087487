// Each method's decode step on the CPU at hand, as the simulated device predicts it and as the emulated one measures
// it: the same engine, bodies and choices on both, one core as the device and another one as the host.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "eval/here/machine.h"
#include "eval/latency/latency.h"

namespace tandem::eval {

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

struct HereRow {
  std::string method;
  std::uint32_t context = 0;
  std::vector<double> round_ms;  // measured, a step's mean in each round
  double measured_ms = 0, predicted_ms = 0;
  std::vector<double> beyond_ms;  // by round, less what kHereBase took in the same round
  double measured_beyond_ms = 0, predicted_beyond_ms = 0;
  std::vector<OperationTime> measured_operations, predicted_operations;

  bool is_base() const;
  double error() const;         // of the step; above 0: predicted as too slow
  double beyond_error() const;  // of the part beyond kHereBase
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
  /// Median and largest |error| of the rows, or of the parts beyond kHereBase.
  struct Errors {
    double median = 0, worst = 0;
  };
  Errors errors() const;
  Errors beyond_errors() const;
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
