// An experiment of a paper, as a file says it before anything runs: what is simulated, which published cells set the
// free parameters (fitted), and which are compared with the outcome (predicted). hardware/experiments/*.json.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

enum class FreeKind : std::uint8_t {
  real,
  whole,
  pages,    // whole pages of 32 tokens; a method gets tokens
  salient,  // tokens; a method gets the beta at which the workload makes so many of the run's context salient
  // Of the machine, in every run instead of in a method's spec:
  cpu_efficiency,  // share of the host memory's bandwidth that selection and attention reach
  layer_overhead,  // ms that the testbed's framework adds to a layer
};

/// A number that no source gives. It stands in methods as {name} and takes the value at which one published cell is
/// met. Those of the machine are fitted first, in their order, those after them at their low end meanwhile.
struct FreeParameter {
  std::string name, meaning;
  double low = 0, high = 0;  // both above 0; searched between them
  FreeKind kind = FreeKind::real;
  std::uint32_t window = 0;  // salient: newest tokens, which the device keeps and attends, and which do not count
  std::string cell;          // by name; of quantity idle_ratio or idle_ms, rising or falling throughout
  bool of_machine() const { return kind >= FreeKind::cpu_efficiency; }
};

/// A CPU share that its owner would tune: among shares from low to high the one with which `run` takes the least time,
/// on a batch of lengths that none of its seeds draws. Stands in methods as {name}.
struct Calibration {
  std::string name, run;
  double low = 0, high = 0;
  std::uint32_t seed = 0;  // of the batch; not below the run's seeds, which count from 0
};

/// Prompts of different lengths, evenly drawn from a range: `seeds` batches, each simulated. 0 seeds: one length.
struct Mixed {
  std::uint32_t low = 0, high = 0, seeds = 0;
  bool operator==(const Mixed&) const = default;
};

/// Lengths of the batch of a seed, the same on every machine.
std::vector<std::uint32_t> mixed_lengths(const Mixed& mixed, std::uint32_t batch, std::uint32_t seed);

struct ExperimentRun {
  std::string name;
  std::string model;            // shape preset; empty: the experiment's
  std::string method;           // spec, with {parameter}s and {calibration}s
  std::uint32_t context = 0;    // prompt tokens of each sequence
  Mixed mixed = {};             // or of mixed lengths
  std::uint32_t batch = 0;      // sequences
  std::uint32_t steps = 0;      // decode steps; the first is not averaged
  bool as_many_as_fit = false;  // `batch` at most, fewer where device memory ends
  /// Layers are split over so many devices, which take turns: more memory, and the time of one.
  std::uint32_t devices = 1;

  /// Whether the method has this {parameter} or {calibration}.
  bool contains(const std::string& wanted) const { return method.find('{' + wanted + '}') != std::string::npos; }
};

enum class Quantity : std::uint8_t {
  idle_ratio,       // of the device, share of a step
  speed_up,         // tokens/s of a run over those of another; of seeded runs the median over the seeds
  idle_ms,          // of the device, per layer and step
  tpot_ms,          // step over batch
  selection_share,  // of the idle time: selection over selection and attention on the host
  predictor_share,  // of a step: from the estimate of the heads to the choice of tasks, the hand-off between included
};
inline constexpr std::array<const char*, 6> kQuantityNames = {"idle_ratio", "speed_up",        "idle_ms",
                                                              "tpot_ms",    "selection_share", "predictor_share"};

inline bool is_share(Quantity quantity) {
  return quantity == Quantity::idle_ratio || quantity == Quantity::selection_share ||
         quantity == Quantity::predictor_share;
}

struct Cell {
  std::string name, figure;
  Quantity quantity = Quantity::idle_ratio;
  std::string run, over;  // over: of a speed_up
  double published = 0;
  double aim = 0;         // how far a prediction may be off: see by_difference()
  double at_most = 0;     // above 0: what ours must stay below, whatever is published
  double null_model = 0;  // above 0: what a rule says that simulates nothing, for comparison
  bool source = false;    // the workload was made from it, so that it is no prediction
  bool derived = false;   // what is published follows from other cells, so that it is counted apart

  /// Large shares are compared by their difference, everything else by its ratio: an aim in points that is above a
  /// small share could not be missed from below.
  bool by_difference() const {
    return (quantity == Quantity::idle_ratio || quantity == Quantity::selection_share) && published >= aim;
  }
};

/// An order that the paper states: runs, the slowest first by tokens/s, or the most idle first.
struct Order {
  std::string figure, says;
  std::vector<std::string> runs;
  /// Optional, by run: compares speed-ups over these in place of tokens/s.
  std::vector<std::string> over = {};
  bool by_idle = false;  // by the idle share of a step, falling
  bool ours = false;     // about an option that the paper does not have; counted apart
  bool source = false;   // fitted values, or numbers that the workload was made with, decide it; counted apart
};

struct Experiment {
  std::string name, title, source;
  std::string hardware, model, workload;  // profile, shape preset, file of hardware/workloads without ending
  std::vector<std::string> notes;         // what the source leaves open, and what was assumed
  std::vector<FreeParameter> free;        // each to a cell of its own, at most two
  std::vector<Calibration> calibrations;  // optional
  std::vector<ExperimentRun> runs;
  std::vector<Cell> cells;
  std::vector<Order> orders;

  const Cell& cell(std::string_view name) const;
  const ExperimentRun& run(std::string_view name) const;
  bool fitted(const Cell& cell) const;
  std::vector<std::string> figures() const;  // in the order of the cells and orders
};

/// InputError naming `file` and the field for whatever is missing, unknown, contradicting, or not understood.
Experiment parse_experiment(const std::string& text, const std::string& file);

/// A shipped experiment; InputError with the names there are.
Experiment load_experiment(const std::string& name);
std::vector<std::string> experiment_names();

}  // namespace tandem::eval
