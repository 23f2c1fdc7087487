#include <algorithm>

#include "engine/common/error.h"
#include "eval/gate/runs.h"
#include "eval/report/manifest_difference.h"
#include "eval/ruler_tasks/protocol.h"

namespace tandem::eval {
namespace {

/// The runs' folders, for sentences.
struct Pair {
  std::string baseline, run;

  [[noreturn]] void refuse(std::string_view field, std::string_view there, std::string_view here) const {
    throw_input_error(
        "'{}' cannot be judged by '{}': {} is '{}' in the run and '{}' in the baseline. Make one of them anew, with "
        "what the other has.",
        run, baseline, field, here, there);
  }
  void same(std::string_view field, std::string_view there, std::string_view here) const {
    if (there != here) refuse(field, there, here);
  }
};

void check_clock(const Pair& pair, const Manifest& baseline, const Manifest& run, bool any_machine) {
  const bool simulated = is_simulated(baseline.clock);
  if (baseline.clock.empty() || run.clock.empty() || simulated != is_simulated(run.clock)) {
    pair.same("the clock", baseline.clock, run.clock);
  } else if (simulated && !baseline.hardware_hash.empty() && !run.hardware_hash.empty()) {
    const auto shown = [](const Manifest& m) { return fmt::format("{} ({})", m.hardware_profile, m.hardware_hash); };
    if (baseline.hardware_hash != run.hardware_hash) pair.refuse("the hardware profile", shown(baseline), shown(run));
  } else if (simulated) {
    pair.same("the hardware profile", baseline.hardware_profile, run.hardware_profile);
  } else if (!any_machine) {
    const auto shown = [](const Machine& m) {
      return fmt::format("{}, {} cores{}{}", m.cpu_model, m.cores, m.device.empty() ? "" : ", ", m.device);
    };
    pair.same("the machine (--any-machine compares all the same)", shown(baseline.machine), shown(run.machine));
    pair.same("the clock (--any-machine compares all the same)", baseline.clock, run.clock);
  }
}

void check_whole(const RunFolder& folder) {
  const Manifest& m = folder.manifest();
  if (m.benchmark == kPerplexity)
    throw_input_error("'{}' is a perplexity run: tandem gate judges runs that score samples.", folder.path().string());
  const std::uint64_t wanted = m.all_samples() * m.methods.size();
  if (wanted == 0) throw_input_error("The run in '{}' has no samples by its manifest.json.", folder.path().string());
  const std::size_t there = folder.finished().size();
  if (there == wanted && !m.finished_utc.empty()) return;
  throw_input_error(
      "The run in '{}' is not finished: it has {} of {} samples{}. Go on with its command and --resume --out {}.",
      folder.path().string(), there, wanted, m.finished_utc.empty() ? " and no 'finished_utc'" : "",
      folder.path().string());
}

/// What the computation had, however it was asked for; empty where an older run does not say it.
std::string precision_of(const Manifest& m) {
  if (!m.precision.empty()) return m.precision;
  const std::string given = option_in(m.command, "--precision").value_or("auto");
  return given == "auto" ? "" : given;
}
std::string chunk_of(const Manifest& m) {
  return m.prefill_chunk > 0 ? std::to_string(m.prefill_chunk) : option_in(m.command, "--prefill-chunk").value_or("");
}

}  // namespace

void check_comparable(const RunFolder& baseline, const RunFolder& run, bool any_machine) {
  check_whole(baseline);
  check_whole(run);
  const Pair pair{baseline.path().string(), run.path().string()};
  const Manifest &a = baseline.manifest(), &b = run.manifest();
  pair.same("the benchmark", a.benchmark, b.benchmark);
  pair.same("the hash of the weights", a.weights_hash, b.weights_hash);
  if (!a.config_hash.empty() && !b.config_hash.empty())
    pair.same("the hash of the model's config.json", a.config_hash, b.config_hash);
  pair.same("the hash of the tokenizer", a.tokenizer_hash, b.tokenizer_hash);
  for (const FieldDifference& d : protocol_differences(a.protocol_id, b.protocol_id)) {
    if (d.field != "budget") pair.refuse(fmt::format("the protocol's field '{}'", d.field), d.there, d.here);
    for (const auto& [method, there, here] : budget_differences(d))
      pair.refuse(fmt::format("what a budget of '{}' counts (protocol, 'budget')", method), there, here);
  }
  if (!ruler_reads_files(a.protocol_id)) pair.same("the seed", std::to_string(a.seed), std::to_string(b.seed));
  check_clock(pair, a, b, any_machine);
  if (!a.clock.empty()) pair.same("--batch", std::to_string(batch_of(a)), std::to_string(batch_of(b)));
}

void check_has_samples_of(const RunFolder& baseline, const RunFolder& run) {
  const Manifest &a = baseline.manifest(), &b = run.manifest();
  const auto lacks = [&](const std::string& what) {
    throw_input_error(
        "'{}' cannot be judged by '{}': it lacks {}. Make it anew with all that the baseline has; --subset judges what "
        "both have.",
        run.path().string(), baseline.path().string(), what);
  };
  for (const std::string& task : a.tasks)
    if (std::ranges::find(b.tasks, task) == b.tasks.end()) lacks("the task " + task);
  for (const std::uint32_t length : a.lengths)
    if (std::ranges::find(b.lengths, length) == b.lengths.end()) lacks("the length " + std::to_string(length));
  for (const std::string& task : a.tasks)
    if (b.samples_of(task) < a.samples_of(task))
      lacks(
          fmt::format("{} of the {} samples of {}", a.samples_of(task) - b.samples_of(task), a.samples_of(task), task));
}

std::vector<std::string> differences_to_note(const Manifest& baseline, const Manifest& run) {
  std::vector<std::string> notes;
  const auto shown = [](const std::string& value) { return value.empty() ? "unknown" : value; };
  if (baseline.isa != run.isa || baseline.isa.empty())
    notes.push_back(
        fmt::format("The instruction sets are {} in the baseline and {} in the run: another one rounds differently, so "
                    "that tokens and with them times may differ.",
                    shown(baseline.isa), shown(run.isa)));
  if (baseline.openblas != run.openblas && !baseline.openblas.empty() && !run.openblas.empty())
    notes.push_back(
        fmt::format("InfiniGen's eigenvectors are of OpenBLAS {} in the baseline and {} in the run, which "
                    "round differently.",
                    baseline.openblas, run.openblas));
  const auto compare = [&](const char* option, std::string before, std::string now) {
    if (before.empty() || now.empty()) {  // older runs do not say what an option came to
      before = option_in(baseline.command, option).value_or("not given");
      now = option_in(run.command, option).value_or("not given");
    }
    if (before != now) notes.push_back(fmt::format("{} is {} in the baseline and {} in the run.", option, before, now));
  };
  compare("--precision", precision_of(baseline), precision_of(run));
  compare("--prefill-chunk", chunk_of(baseline), chunk_of(run));
  if (!baseline.clock.empty() && !is_simulated(baseline.clock) && baseline.clock != run.clock)
    notes.push_back(fmt::format("The baseline's times are {}, the run's {}.", baseline.clock, run.clock));
  return notes;
}

}  // namespace tandem::eval
