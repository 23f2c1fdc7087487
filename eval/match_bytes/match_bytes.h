// Methods at equal bytes: what each one's budget has to be, so that all touch equally many bytes of a context in a
// decode step, or keep equally many on the device. A budget counts something else in every method (MethodInfo::budget),
// so that rows with the same number are no comparison of equals; bytes count indices and statistics too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/report/summary.h"
#include "eval/run/run_dataset.h"
#include "methods/registry.h"

namespace tandem::eval {

enum class Measure : std::uint8_t {
  touched,  // Cost::context per decoded token, mean over the samples' steps
  device,   // KV and all that is kept about it on the device, at its peak, of the largest sample
};
const char* to_string(Measure measure);  // "touched-bytes", "device-bytes"

/// What is asked for: shares of what kReference comes to, each above 0 and at most 1, none twice.
struct EqualBytes {
  Measure measure = Measure::touched;
  std::vector<double> shares;
  bool operator==(const EqualBytes&) const = default;
};
inline constexpr const char* kReference = "full";

/// "touched-bytes=0.05,0.1" or "device-bytes=25%"; InputError that begins with `option` for anything else.
EqualBytes parse_equal_bytes(std::string_view text, std::string_view option);
/// As it can be typed again.
std::string to_text(const EqualBytes& asked);

enum class Fit : std::uint8_t {
  set,       // as close as the option's steps come
  least,     // its least sensible value still comes to more
  most,      // its largest value still comes to less
  as_given,  // no option of it changes this measure, or not as it was given
  refused,   // it cannot run: EqualMethod::value says why
};

struct EqualMethod {
  std::string given;  // spec, as it was asked for
  std::string spec;   // as it is run
  std::string option, value;
  std::optional<double> bytes = {};  // found on the prompts that it was set with; none where it is refused
  Fit fit = Fit::as_given;
  bool operator==(const EqualMethod&) const = default;
};

struct EqualShare {
  double share = 0;
  std::vector<EqualMethod> methods;  // those with such an option, in the order given
  bool operator==(const EqualShare&) const = default;
};

struct Equal {
  EqualBytes asked;
  std::vector<std::string> given;  // all methods, in their order
  double reference_bytes = 0;      // what kReference comes to
  std::vector<EqualMethod> as_given;
  std::vector<EqualShare> shares;

  /// Methods as they are run, each once: the first given, those without such an option, then those of the shares.
  std::vector<std::string> specs() const;
  bool operator==(const Equal&) const = default;
};

/// The option that turns this measure, as `spec` configures the method; nullopt: none. InputError for a bad spec.
std::optional<BudgetOption> budget_option(std::string_view spec, Measure measure);

/// `spec` with the option set to this value, whatever it had there; without a value: without the option.
std::string with_option(std::string_view spec, std::string_view option, std::string_view value);

/// What a spec comes to, in bytes of the measure; or why it cannot run.
struct Bytes {
  double bytes = 0;
  std::string refused = {};
};
using BytesOf = std::function<Bytes(const std::string& spec)>;

/// Sets every method that has an option for it, by bisection. `most_tokens`: the largest useful budget in tokens. Asks
/// for each spec once. InputError for methods that are listed twice or differ only in what is set, or without
/// kReference.
Equal find_equal(const EqualBytes& asked, const std::vector<std::string>& methods, std::uint32_t most_tokens,
                 const BytesOf& bytes_of);

/// Times that find_equal() asks for a spec's bytes, at most.
std::uint64_t most_questions(const EqualBytes& asked, const std::vector<std::string>& methods,
                             std::uint32_t most_tokens);

/// equal.json of a run's folder. read_equal(): nullopt where the file is missing, damaged, or of another question.
inline constexpr const char* kEqualFile = "equal.json";
std::string equal_json(const Equal& equal);
std::optional<Equal> read_equal(const std::filesystem::path& folder, const EqualBytes& asked,
                                const std::vector<std::string>& methods);

/// The section with the run's methods by share: their bytes, accuracy, and difference to the first method.
std::string equal_text(const Equal& equal, const Summary& summary, bool markdown);

/// The same of what was found alone, with the values that were set. `how`: sentences on where the bytes are from.
std::string equal_found_text(const Equal& equal, const std::string& how, bool markdown);

/// Measures the bytes of methods on a run's own prompts, with an engine that decodes as the run will.
class BytesOfPrompts {
 public:
  /// Prefills the samples' prompts: as many as take half of the device's KV budget, at least one; `options` as the run
  /// has them. Model, device and pool must outlive this. Throws what prefilling does.
  BytesOfPrompts(std::span<const DatasetSample> samples, const DatasetRunOptions& options, const Model& model,
                 Device& device, ThreadPool& pool);
  ~BytesOfPrompts();

  std::size_t prompts() const { return requests_.size(); }
  /// Decodes all prompts with the method, in batches as the run does.
  double operator()(const std::string& spec, Measure measure);

 private:
  const std::uint32_t batch_;
  Engine engine_;
  std::vector<std::unique_ptr<Prefix>> prefixes_;
  std::vector<DecodeRequest> requests_;
};

}  // namespace tandem::eval
