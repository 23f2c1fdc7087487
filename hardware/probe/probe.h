// What the probe produces: figures with their spread, gathered in sections, and the rules every section keeps: warm-up
// first, at least kMinRepeats repeats, a cap on time, and no figure rather than one from too few repeats.
//
// The probe is stand-alone: the C++ library and, for the GPU, the CUDA toolkit. It includes nothing of the engine, so
// that two compilers and one script are enough on a bare machine.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace tandem::probe {

inline constexpr int kSchemaVersion = 1;
inline constexpr int kMinRepeats = 7;
inline constexpr int kMaxRepeats = 31;

/// A section cannot go on; the sentence is recorded in the section and the next section runs.
class ProbeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One figure cannot be measured; it is left out by name, with the sentence, and the next one follows.
class FigureError : public ProbeError {
 public:
  using ProbeError::ProbeError;
};

/// The command line is wrong (exit code 2).
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One key of a figure's conditions or of the machine's passport. Order is kept.
struct Field {
  std::string key;
  std::variant<std::string, std::int64_t, double, bool> value;

  Field(std::string name, std::string text) : key(std::move(name)), value(std::move(text)) {}
  Field(std::string name, const char* text) : key(std::move(name)), value(std::string(text)) {}
  Field(std::string name, bool flag) : key(std::move(name)), value(flag) {}
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Field(std::string name, T number)
      : key(std::move(name)), value(static_cast<std::int64_t>(number)) {}
  template <class T>
  requires(std::is_floating_point_v<T>) Field(std::string name, T number)
      : key(std::move(name)), value(static_cast<double>(number)) {}
};
using Fields = std::vector<Field>;

/// "key=value, key=value", for messages.
std::string describe(const Fields& fields);

/// value is the median; p10 and p90 are percentiles of the same repeats.
struct Figure {
  std::string name;
  std::string unit;
  double value = 0, p10 = 0, p90 = 0;
  int repeats = 0;
  Fields conditions;
};

enum class Status : std::uint8_t {
  ok,       // every figure was measured
  partial,  // figures were left out, named in `skipped`
  failed,   // `error` says why; figures measured before the failure are kept
  absent,   // not possible here; `error` says why
};
const char* to_string(Status status);

struct Section {
  std::string name;
  std::string what;
  Status status = Status::ok;
  std::string error;
  double seconds = 0, cap_seconds = 0;
  std::vector<std::string> checks;   // what was verified before it was timed
  std::vector<std::string> skipped;  // figures left out: for lack of time, or why else
  std::vector<Figure> figures;
};

struct Options {
  std::string out;                    // empty: standard output
  std::string label;                  // machine's name in the passport; empty: the CPU model
  std::vector<std::string> sections;  // empty: all
  bool force = false;                 // `out` may be there
  bool quick = false;                 // fewer points
  bool help = false;
  double seconds = 200;                       // cap on the measuring time of all sections together
  std::size_t memory = std::size_t{1} << 30;  // largest buffer set of one section, in host or device memory
};

struct Report {
  mutable std::mutex mutex;  // figures are added by the measuring thread, read by the watchdog
  std::string started_utc;
  Options options;
  Fields machine, cpu, memory;
  Fields gpu;             // empty where there is none
  std::string gpu_error;  // why there is none
  std::vector<Section> sections;
};

// ---- statistics -----------------------------------------------------------------------------------------------------

/// Percentile in [0, 100] with linear interpolation between order statistics. ProbeError for no values or NaN.
double percentile(std::span<const double> values, double percent);
/// Median, p10, p90 and count of the values. Name, unit and conditions are left empty.
Figure summarize(std::span<const double> values);

// ---- measuring ------------------------------------------------------------------------------------------------------

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Handed to a section; the only way figures get into the report.
class Recorder {
 public:
  Recorder(Report& report, std::size_t section, double cap_seconds);

  const Options& options() const { return report_.options; }
  bool quick() const { return report_.options.quick; }
  double seconds_left() const;

  /// Runs `sample` (returns one repeat's duration in seconds) once as warm-up, then kMinRepeats to kMaxRepeats times.
  /// Nothing, with `label` noted as skipped, when the section's time does not allow kMinRepeats repeats, or where
  /// `sample` throws FigureError.
  std::optional<std::vector<double>> collect(const std::string& label, const std::function<double()>& sample);

  /// collect(), then one figure whose value is `convert(seconds)` of each repeat.
  void figure(const std::string& name, const std::string& unit, const Fields& conditions,
              const std::function<double()>& sample, const std::function<double(double)>& convert);

  /// Adds a figure from samples that the caller converted.
  void add(const std::string& name, const std::string& unit, const Fields& conditions, std::span<const double> values);
  void skip(const std::string& label);
  /// Notes that something was verified. A failed check is a ProbeError instead.
  void checked(const std::string& sentence);

 private:
  std::optional<std::vector<double>> repeats(const std::string& label, const std::function<double()>& sample);

  Report& report_;
  std::size_t section_;
  Clock::time_point deadline_;
};

struct SectionSpec {
  std::string name;
  std::string what;
  double share = 1;  // of Options::seconds, relative to the other sections that run
  bool gpu = false;
};

/// Every section this program knows, GPU sections included whatever the build.
const std::vector<SectionSpec>& section_specs();

/// Runs the chosen sections into `report` (its options are set by the caller). Never throws for a section's failure.
/// `finished` is called after each section.
void run_probe(Report& report, const std::function<void(const Section&)>& finished);

// ---- command line ---------------------------------------------------------------------------------------------------

/// Arguments without the program's name. UsageError with a sentence.
Options parse_options(std::span<const std::string> arguments);
std::string help_text();
/// Bytes from "64M", "1G", "4096". UsageError names `option`.
std::size_t parse_bytes(const std::string& option, const std::string& text);

}  // namespace tandem::probe
