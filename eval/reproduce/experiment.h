// An experiment of a paper, as a file says it before anything runs: what is simulated, which published cells set the
// free parameters (fitted), and which are compared with the outcome (predicted). hardware/experiments/*.json.
#pragma once

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
};

/// A number that no source gives. It stands in methods as {name} and takes the value at which one published cell is
/// met.
struct FreeParameter {
  std::string name, meaning;
  double low = 0, high = 0;  // both above 0; searched between them
  FreeKind kind = FreeKind::real;
  std::uint32_t window = 0;  // salient: newest tokens, which the device keeps and attends, and which do not count
  std::string cell;          // by name; of quantity idle_ratio, rising or falling throughout
};

struct ExperimentRun {
  std::string name;
  std::string method;           // spec, with {parameter}s
  std::uint32_t context = 0;    // prompt tokens of each sequence
  std::uint32_t batch = 0;      // sequences
  std::uint32_t steps = 0;      // decode steps; the first is not averaged
  bool as_many_as_fit = false;  // `batch` at most, fewer where device memory ends
};

enum class Quantity : std::uint8_t {
  idle_ratio,  // of the device, share of a step
  speed_up,    // tokens/s of a run over those of another
};

struct Cell {
  std::string name, figure;
  Quantity quantity = Quantity::idle_ratio;
  std::string run, over;  // over: of a speed_up
  double published = 0;
  double aim = 0;  // how far a prediction may be off: of an idle ratio absolute, of a speed-up relative
};

/// What the paper says of an order: runs, the slowest first, by tokens/s.
struct Order {
  std::string figure, says;
  std::vector<std::string> runs;
};

struct Experiment {
  std::string name, title, source;
  std::string hardware, model, workload;  // profile, shape preset, file of hardware/workloads without ending
  std::vector<std::string> notes;         // what the source leaves open, and what was assumed
  std::vector<FreeParameter> free;        // each to a cell of its own, at most two
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
