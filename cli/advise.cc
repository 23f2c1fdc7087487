// tandem advise: which method to run on a machine, at a context and a batch, when answers may lose little.
#include "eval/predict/advise.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>
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

/// Methods that fewer bits may bring to the front of some answer: the first two, and those that do not fit.
std::vector<std::string> worth_trying(const std::vector<eval::ShownAdvice>& answers) {
  std::vector<std::string> methods;
  for (const eval::ShownAdvice& shown : answers) {
    const eval::Advice& advice = shown.advice;
    std::vector<std::size_t> places = advice.do_not_fit;
    for (const auto& place : {advice.first, advice.second})
      if (place) places.push_back(*place);
    for (const std::size_t i : places)
      if (std::find(methods.begin(), methods.end(), advice.methods[i].point.method) == methods.end())
        methods.push_back(advice.methods[i].point.method);
  }
  return methods;
}

class Adviser {
 public:
  Adviser(const AdviseArguments& a, eval::SweepOptions options)
      : options_(std::move(options)), lose_(a.lose), as_(a.as), workload_(read_workload(a.workload, "")) {
    const Model shape = load_shape(as_);
    losses_ = eval::losses_of_methods(eval::shipped_losses(), options_.methods);
    if (!a.accuracy.empty())
      for (eval::Loss& loss : eval::losses_of_run(a.accuracy, options_.methods, shape))
        losses_.push_back(std::move(loss));
  }

  /// By machine, batch and context.
  std::vector<eval::ShownAdvice> answers(const eval::Precision& precision, const std::vector<std::string>& methods) {
    eval::SweepOptions options = options_;
    options.precision = precision;
    options.methods = methods;
    const eval::Sweep sweep = eval::simulate_sweep(load_shape(as_), workload_, options);
    if (!sweep.complete()) throw RunError("Interrupted; there is no answer yet.");
    const Model shape = load_shape(as_);
    std::vector<eval::ShownAdvice> out;
    for (const HardwareProfile& machine : options.hardware) {
      for (const std::uint32_t batch : options.batches) {
        for (const std::uint32_t context : options.contexts) {
          std::vector<eval::SweepPoint> points;
          std::copy_if(sweep.points.begin(), sweep.points.end(), std::back_inserter(points),
                       [&](const eval::SweepPoint& p) {
                         return p.hardware == machine.name && p.batch == batch && p.context == context;
                       });
          const eval::AdviceLimits limits{shape.name,
                                          context,
                                          lose_,
                                          eval::device_kv_room(shape, machine, precision),
                                          eval::host_kv_room(machine),
                                          shape.config.max_positions};
          out.push_back(
              {eval::recommend(points, losses_, limits), machine, batch, precision, shape.weights.bytes(), {}});
        }
      }
    }
    return out;
  }

 private:
  eval::SweepOptions options_;
  double lose_;
  std::string as_;
  Workload workload_;
  std::vector<eval::Loss> losses_;
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
  std::vector<eval::ShownAdvice> answers = adviser.answers(options.precision, options.methods);
  const std::vector<std::string> methods = worth_trying(answers);
  for (const auto& [option, precision] : fewer_bits(options)) {
    if (methods.empty()) break;
    const std::vector<eval::ShownAdvice> others = adviser.answers(precision, methods);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const eval::Judged* best = others[i].advice.at(others[i].advice.first);
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
