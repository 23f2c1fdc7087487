// tandem advise: which method to run on a machine, at a context and a batch, when answers may lose little.
#include "eval/predict/advise.h"

#include <algorithm>
#include <fmt/core.h>
#include <set>
#include <utility>

#include "cli/commands.h"
#include "cli/machines.h"
#include "cli/output.h"
#include "cli/session.h"
#include "engine/common/interrupt.h"
#include "eval/predict/losses.h"
#include "eval/predict/sweep.h"
#include "eval/report/run_folder.h"
#include "eval/run/decoded.h"
#include "eval/run/option_values.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

constexpr const char* kAdviseFooter = R"(
Examples:
  tandem advise --hw rtx-4090 --host-memory 64 --context 128K --lose 2
  tandem advise --hw h100,gh200 --as qwen3-8b --context 8K,32K --batch 1,16     an answer for each
  tandem advise --hw rtx-4090 --weight-bits 4 --context 32K                     with weights of 4 bits
  tandem advise --hw l40s --context 32K --accuracy runs/mine                    by a run of your own at 32K
  tandem advise --hw h100 --json                                                for programs

Every method is simulated at the shape that --as names, and the fastest is recommended of those that fit and are known to
lose at most --lose points. full, full-offload and full-host lose nothing by construction. What others lose is taken from
the run of --accuracy, a folder of compare or eval, from runs that ship (on the embedded model and on SmolLM2-135M), and
from papers' tables: at the same length, and with the same share of the context. A method is never recommended when its
loss at this length is unknown, or when the run at the nearest length lost more.)";

// A quarter of what `simulate` takes, and steps up to 4 % off; ranges need no more.
constexpr std::uint32_t kSteps = 8;

struct AdviseArguments {
  std::string as = "llama-3.1-8b", hardware, host_memory, contexts = "32K", batches = "1", methods, accuracy;
  std::string workload = "published";
  double lose = 1;
  eval::SweepOptions options;
  bool json = false;
};

/// Methods that fewer bits may bring to the front of an answer: the first two, and those that do not fit.
std::vector<std::string> worth_trying(const eval::Advice& advice) {
  std::vector<std::string> methods;
  methods.reserve(advice.do_not_fit.size() + 2);
  for (const std::size_t i : advice.do_not_fit) methods.push_back(advice.methods[i].point.method);
  for (const auto& place : {advice.first, advice.second})
    if (place) methods.push_back(advice.methods[*place].point.method);
  return methods;
}

/// Methods whose ranges an answer shows, and compares.
std::set<std::string> with_ranges(const eval::Advice& advice, bool json) {
  std::vector<std::size_t> places = advice.with_higher_limit;
  for (const auto& place : {advice.first, advice.second})
    if (place) places.push_back(*place);
  if (json)
    for (const auto* more : {&advice.not_known, &advice.lose_more})
      places.insert(places.end(), more->begin(), more->end());
  std::set<std::string> methods;
  for (const std::size_t i : places) methods.insert(advice.methods[i].point.method);
  return methods;
}

/// A question of one answer.
struct Place {
  HardwareProfile machine;
  std::uint32_t batch = 0, context = 0;
};

class Adviser {
 public:
  Adviser(const AdviseArguments& a, eval::SweepOptions options)
      : options_(std::move(options)),
        lose_(a.lose),
        json_(a.json),
        as_(a.as),
        shape_(load_shape(a.as)),
        workload_(read_workload(a.workload, "")) {
    losses_ = eval::losses_of_methods(eval::shipped_losses(), options_.methods);
    if (!a.accuracy.empty())
      for (eval::Loss& loss : eval::losses_of_run(a.accuracy, options_.methods, shape_))
        losses_.push_back(std::move(loss));
  }

  /// With all methods. Recordings of those that fewer bits may bring to the front are kept.
  eval::ShownAdvice answer(const Place& place) {
    eval::ShownAdvice shown = answer(place, options_.precision, options_.methods);
    const std::vector<std::string> again = worth_trying(shown.advice);
    for (const eval::Judged& judged : shown.advice.methods)
      if (std::find(again.begin(), again.end(), judged.point.method) == again.end()) recordings_.remove(judged.point);
    return shown;
  }

  eval::ShownAdvice answer(const Place& place, const eval::Precision& precision,
                           const std::vector<std::string>& methods) {
    eval::SweepOptions options = options_;
    options.precision = precision;
    options.methods = methods;
    options.hardware = {place.machine};
    options.batches = {place.batch};
    options.contexts = {place.context};
    options.recordings = &recordings_;
    eval::Sweep sweep = eval::simulate_sweep(load_shape(as_), workload_, options);
    if (!sweep.complete()) throw RunError("Interrupted; there is no answer yet.");
    const eval::AdviceLimits limits{shape_.name,
                                    place.context,
                                    lose_,
                                    eval::device_kv_room(shape_, place.machine, precision),
                                    eval::host_kv_room(place.machine),
                                    shape_.config.max_positions};
    // Ranges decide nothing but how certain the order is, and take as long as simulating.
    const std::set<std::string> ranged = with_ranges(eval::recommend(sweep.points, losses_, limits), json_);
    std::vector<eval::SweepPoint*> points;
    for (eval::SweepPoint& point : sweep.points)
      if (ranged.contains(point.method)) points.push_back(&point);
    eval::add_ranges(options, points);
    return {eval::recommend(sweep.points, losses_, limits),
            place.machine,
            place.batch,
            precision,
            shape_.weights.bytes(),
            {}};
  }

 private:
  eval::SweepOptions options_;
  double lose_;
  bool json_;
  std::string as_;
  Model shape_;
  Workload workload_;
  std::vector<eval::Loss> losses_;
  eval::Recordings recordings_;
};

/// The methods with the options that the run gave them, where it has them.
std::vector<std::string> with_those_of_run(const std::vector<std::string>& methods, const std::string& run) {
  const eval::RunFolder folder = eval::RunFolder::open(run);
  std::vector<std::string> out;
  for (const std::string& method : methods) {
    const std::size_t before = out.size();
    for (const eval::MethodEntry& measured : folder.manifest().methods) {
      if (measured.name != parse_method_spec(method).name) continue;
      const std::string spec = spec_for_shapes(measured.label);
      if (std::find(out.begin(), out.end(), spec) == out.end()) out.push_back(spec);
    }
    if (out.size() == before) out.push_back(method);
  }
  return out;
}

eval::SweepOptions options_of(const AdviseArguments& a) {
  eval::SweepOptions o = a.options;
  o.hardware = load_profiles(a.hardware, "--hw");
  set_host_memory(o.hardware, a.host_memory);
  for (const HardwareProfile& machine : o.hardware)
    if (machine.host.memory_gb == 0)
      throw_input_error(
          "--hw: the profile '{}' does not say how much host memory its machine has, so that nothing says which "
          "methods fit: "
          "give --host-memory, in GB.",
          machine.name);
  eval::check_precision(o.precision);
  o.contexts = eval::parse_lengths(a.contexts, "--context");
  for (const std::uint32_t context : o.contexts) expect(context >= 2, "--context", context, "at least 2 tokens");
  o.batches = parse_batches(a.batches, 1024);
  const std::uint32_t longest = *std::max_element(o.contexts.begin(), o.contexts.end());
  o.methods = a.methods.empty() ? default_prediction(longest) : split_method_list(a.methods);
  if (a.methods.empty() && !a.accuracy.empty()) o.methods = with_those_of_run(o.methods, a.accuracy);
  eval::method_entries(o.methods);  // refuses one that is listed twice
  expect(a.lose >= 0 && a.lose <= 100, "--lose", a.lose, "points from 0 to 100");
  check_threads(o.threads);
  o.steps = kSteps;
  o.checked = false;
  o.interrupted = interrupted;
  return o;
}

/// Weights or KV of fewer bits, one at a time; none where one of the machines is a CPU that plays the device.
std::vector<std::pair<std::string, eval::Precision>> fewer_bits(const eval::SweepOptions& options) {
  std::vector<std::pair<std::string, eval::Precision>> out;
  const auto plays = [](const HardwareProfile& machine) { return machine.device.cpu_threads != 0; };
  if (std::any_of(options.hardware.begin(), options.hardware.end(), plays)) return out;
  const eval::Precision& given = options.precision;
  for (const std::uint32_t bits : {8u, 4u}) {
    if (bits < given.weight_bits)
      out.emplace_back(fmt::format("--weight-bits {}", bits), eval::Precision{bits, given.kv_bits});
    if (bits < given.kv_bits)
      out.emplace_back(fmt::format("--kv-bits {}", bits), eval::Precision{given.weight_bits, bits});
  }
  return out;
}

void advise(const AdviseArguments& a) {
  const eval::SweepOptions options = options_of(a);
  Adviser adviser(a, options);
  std::vector<Place> places;
  for (const HardwareProfile& machine : options.hardware)
    for (const std::uint32_t batch : options.batches)
      for (const std::uint32_t context : options.contexts) places.push_back({machine, batch, context});
  std::vector<eval::ShownAdvice> answers;
  std::vector<std::string> methods;  // worth trying with fewer bits, for some answer
  for (const Place& place : places) {
    answers.push_back(adviser.answer(place));
    for (std::string& method : worth_trying(answers.back().advice))
      if (std::find(methods.begin(), methods.end(), method) == methods.end()) methods.push_back(std::move(method));
  }
  for (const auto& [option, precision] : fewer_bits(options)) {
    if (methods.empty()) break;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const eval::ShownAdvice other = adviser.answer(places[i], precision, methods);
      const eval::Judged* best = other.advice.at(other.advice.first);
      answers[i].what_ifs.push_back({option, best == nullptr ? std::nullopt : std::optional(*best), precision});
    }
  }
  if (a.json) {
    print("{}", eval::advice_json(answers));
  } else {
    for (std::size_t i = 0; i < answers.size(); ++i) print("{}{}", i == 0 ? "" : "\n", eval::advice_text(answers[i]));
  }
  check_stdout();
}

}  // namespace

void add_advise(Command app) {
  Command command = app.subcommand(
      "advise", "Which method to run on a machine: the fastest that fits and is known to lose little", kAdviseFooter);
  auto a = std::make_shared<AdviseArguments>();
  command.required("--hw", a->hardware, "Machines, with commas: names of profiles, or JSON files");
  command.option("--host-memory", a->host_memory, kHostMemoryHelp);
  command.option("--as", a->as, "The model's shape: a preset of `tandem info`, or a model folder");
  command.option("--context", a->contexts, "Prompt tokens of each sequence, with commas: 8K,32K");
  command.option("--batch", a->batches, "Sequences decoded together, with commas");
  command.option("--lose", a->lose, "Points of a score of 100 that a method may lose beside full attention");
  command.option("--accuracy", a->accuracy,
                 "A finished run of compare or eval of your own: where it has a method, its options and its loss go "
                 "before others");
  command.option("--methods", a->methods, "Methods with their options; none: all, with those of `tandem simulate`");
  add_precision(command, a->options.precision);
  command.option("--workload", a->workload,
                 "What heads choose: published, or a file: target.json of a run of compare --as");
  command.option("--threads", a->options.threads, "Simulations at a time; 0: as many as this process may use");
  command.flag("--json", a->json, "Print the answers as JSON");
  command.callback([a] { advise(*a); });
}

}  // namespace tandem::cli
