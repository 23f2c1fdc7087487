#include "eval/gate/gate.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "engine/common/error.h"
#include "eval/gate/runs.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

/// The baseline's methods that are asked for, each named by its label or, with all of that name, by its name.
std::vector<const MethodEntry*> wanted_methods(const Manifest& baseline, const std::vector<std::string>& names) {
  const auto is_it = [](const MethodEntry& m, const std::string& name) { return m.label == name || m.name == name; };
  std::vector<const MethodEntry*> wanted;
  std::vector<std::string> labels;
  for (const MethodEntry& method : baseline.methods) {
    labels.push_back(method.label);
    if (names.empty() || std::ranges::any_of(names, [&](const std::string& name) { return is_it(method, name); }))
      wanted.push_back(&method);
  }
  for (const std::string& name : names)
    if (std::ranges::none_of(wanted, [&](const MethodEntry* m) { return is_it(*m, name); }))
      throw_input_error("--methods: the baseline has no method '{}'.{} It has {}.", name, did_you_mean(name, labels),
                        join_names(labels));
  return wanted;
}

/// The run's method for one of the baseline's: of the same label; else the only one of its name that has none of the
/// baseline's labels, where it is the only such in the baseline too, since then its options were changed.
const MethodEntry* partner_of(const MethodEntry& method, const Manifest& baseline, const Manifest& run) {
  const auto find = [](const Manifest& m, const std::string& label) {
    const auto found = std::ranges::find(m.methods, label, &MethodEntry::label);
    return found == m.methods.end() ? nullptr : &*found;
  };
  if (const MethodEntry* same = find(run, method.label)) return same;
  const auto left_over = [&](const Manifest& in, const Manifest& other) {
    std::vector<const MethodEntry*> left;
    for (const MethodEntry& e : in.methods)
      if (e.name == method.name && find(other, e.label) == nullptr) left.push_back(&e);
    return left;
  };
  const auto here = left_over(run, baseline);
  return here.size() == 1 && left_over(baseline, run).size() == 1 ? here.front() : nullptr;
}

/// Scores of the samples of both runs. InputError where one is not the same in both: a text has changed that no hash
/// covers.
PairedScores shared_scores(const Samples& before, const Samples& now, const Repeated& repeated,
                           const std::string& task) {
  Scores first, second;
  for (const auto& [place, sample] : now.results) {
    const auto found = before.results.find(place);
    if (found == before.results.end() || (!task.empty() && sample->task != task)) continue;
    const SampleResult& other = *found->second;
    if (other.answers != sample->answers || other.prompt_tokens != sample->prompt_tokens)
      throw_input_error(
          "Sample {} of {} at {} is another one in the run: {} prompt tokens and the answer '{}', in the baseline {} "
          "and '{}'. Make the baseline anew.",
          sample->index, sample->task, length_text(sample->length), sample->prompt_tokens,
          fmt::join(sample->answers, "', '"), other.prompt_tokens, fmt::join(other.answers, "', '"));
    first[place] = other.score;
    second[place] = sample->score;
  }
  return paired_scores(first, second, repeated);
}

/// The task whose mean score fell most.
std::string worst_task(const Samples& before, const Samples& now, const Manifest& run, const Repeated& repeated) {
  std::string worst;
  double least = 0;
  for (const std::string& task : run.tasks) {
    const PairedScores scores = shared_scores(before, now, repeated, task);
    if (scores.samples == 0) continue;
    const double change = compare_paired(scores.first, scores.second, scores.weights).difference.value;
    if (change < least) worst = task;
    least = std::min(least, change);
  }
  return worst;
}

std::uint64_t other_tokens(const Samples& before, const Samples& now) {
  std::uint64_t others = 0;
  for (const auto& [place, sample] : now.results) {
    const auto other = before.results.find(place);
    if (other != before.results.end() && other->second->tokens != sample->tokens) ++others;
  }
  return others;
}

void note_overlap(Gate& gate) {
  if (gate.samples > 0 && (gate.samples < gate.baseline.all_samples() || gate.samples < gate.run.all_samples()))
    gate.notes.push_back(
        fmt::format("{} samples of a method are in both runs and were compared; the baseline has {}, the run {}.",
                    gate.samples, gate.baseline.all_samples(), gate.run.all_samples()));
  const std::uint32_t batch = batch_of(gate.run);
  const bool cut = std::ranges::any_of(gate.run.tasks, [&](const std::string& task) {
    const std::uint32_t before = gate.baseline.samples_of(task), now = gate.run.samples_of(task);
    return before > 0 && before != now && std::min(before, now) % batch != 0;
  });
  if (cut && !gate.run.clock.empty())
    gate.notes.push_back(
        fmt::format("Batches of {} that have other samples in the other run were left out of the times.", batch));
  for (const MethodEntry& method : gate.run.methods) {
    const bool judged =
        std::ranges::any_of(gate.methods, [&](const MethodVerdict& m) { return m.run_label == method.label; });
    if (!judged && gate.options.methods.empty())
      gate.notes.push_back(fmt::format("{} is in the run only and was not judged.", method.label));
  }
}

/// Which options of a method are others in the run; empty where none is.
std::string options_difference(const MethodEntry& before, const MethodEntry& now) {
  const auto shown = [](const std::string& value) { return value.empty() ? "not there" : value; };
  std::vector<std::string> parts;
  for (const auto& [option, there, here] : option_differences(before, now))
    parts.push_back(fmt::format("{} is {} in the baseline and {} in the run", option, shown(there), shown(here)));
  if (before.content != now.content)
    parts.push_back(
        fmt::format("the files that its options name have the hash '{}' in the baseline and '{}' in the run",
                    before.content, now.content));
  return parts.empty() ? "" : fmt::format("{}: {}.", before.label, fmt::join(parts, "; "));
}

void judge_method(const Run& baseline, const MethodEntry& before, const Run& run, const MethodEntry& now,
                  const GateOptions& options, double alpha, const TimeMargins& margins, MethodVerdict& out) {
  const Manifest &a = baseline.manifest, &b = run.manifest;
  const bool simulated = is_simulated(a.clock);
  const Samples &all_there = baseline.of(before), &all_here = run.of(now);
  const Samples there = in_equal_batches(all_there, a, b), here = in_equal_batches(all_here, b, a);
  Repeated repeated = repeated_in(b, run.results);
  repeated.documents.merge(
      repeated_in(a, baseline.results).documents);  // either may be an older program's, and know none
  const PairedScores scores = shared_scores(there, here, repeated, "");
  if (scores.samples == 0)
    throw_input_error("The runs have no sample of the same task, length and number, so that nothing can be compared.");
  out.run_label = now.label;
  out.tokens_compared =
      !a.isa.empty() && a.isa == b.isa && same_method(before, now) && differences_to_note(a, b).empty();
  if (out.tokens_compared) out.other_tokens = other_tokens(there, here);
  out.accuracy = judge_accuracy(scores, options.accuracy_margin, alpha);
  if (out.tokens_compared && out.other_tokens == 0 && scores.first == scores.second) {
    // However few they are: the same computation that makes the same tokens has not become worse.
    out.by_tokens = out.accuracy.verdict != Verdict::passed;
    out.accuracy.verdict = Verdict::passed;
    out.accuracy.needed = 0;
  }
  if (out.accuracy.verdict != Verdict::passed) out.worst_task = worst_task(there, here, b, repeated);
  const MethodSummary earlier = shared_latency(there, here, a, before.label);
  const MethodSummary later = shared_latency(here, there, b, now.label);
  out.before = earlier.latency;
  out.after = later.latency;
  out.idle_compared = out.before && out.after && same_steps(there, here, 0);
  if (!a.clock.empty()) {
    out.times = simulated ? judge_virtual_times(earlier, later, margins.tpot)
                          : judge_measured_times(there, here, batch_of(b), margins);
    for (TimeVerdict& time : untimed(all_there, all_here, there, here, simulated, margins.tpot))
      out.times.push_back(std::move(time));
  }
  if (options.same_tokens && !out.tokens_compared)
    throw_input_error(
        "--same-tokens: {} is not the same computation in both runs, by instruction set, options, precision or prefill "
        "chunk, so that its tokens need not be the same. Leave the option away.",
        before.label);
  out.verdict = out.accuracy.verdict;
  for (const TimeVerdict& time : out.times) out.verdict = std::max(out.verdict, time.verdict);
  if (options.same_tokens && out.other_tokens > 0) out.verdict = Verdict::failed;
}

/// Measured times may rise by the margin, or by what further runs of the baseline's program differ, if that is more.
TimeMargins measured_margins(const Run& baseline, const std::vector<const MethodEntry*>& wanted,
                             const std::vector<RunFolder>& noise, double margin) {
  TimeMargins margins{margin, margin};
  for (const RunFolder& folder : noise) {
    const Run again(folder);
    if (again.manifest.programs != baseline.manifest.programs)
      throw_input_error(
          "--noise: the run in '{}' is of another program than the baseline, so that what they differ by is no noise.",
          folder.path().string());
    for (const MethodEntry* method : wanted) {
      const auto& others = again.manifest.methods;
      const auto is_it = [&](const MethodEntry& e) { return e.label == method->label && same_method(e, *method); };
      if (std::ranges::none_of(others, is_it))
        throw_input_error("--noise: the run in '{}' has no method '{}' with the baseline's options.",
                          folder.path().string(), method->label);
      const Manifest &a = baseline.manifest, &b = again.manifest;
      if (!allow_noise(in_equal_batches(baseline.of(*method), a, b), in_equal_batches(again.of(*method), b, a),
                       batch_of(a), margins))
        throw_input_error(
            "--noise: the run in '{}' shares no time of '{}' with the baseline, so that it shows no noise.",
            folder.path().string(), method->label);
    }
  }
  return margins;
}

/// A method of the baseline, and the run's that is judged by it.
struct Pairing {
  const MethodEntry *before, *now;
  MethodVerdict* verdict;
};

void judge_step(const PredictedRow* before, const PredictedRow* now, const std::string& shape, double margin,
                const Pairing& pair, Gate& gate) {
  const auto why = [](const PredictedRow* row) {
    const std::string sentence = row == nullptr ? "there is no prediction of it" : row->refused;
    return sentence.substr(0, sentence.find_last_not_of('.') + 1);
  };
  const std::string there = why(before), here = why(now);
  if (!there.empty()) {
    gate.notes.push_back(fmt::format("{} has no predicted step at {}: {}{}.", pair.before->label, shape, there,
                                     here.empty() ? "; the run has a step there" : ""));
    return;
  }
  TimeVerdict time = {.verdict = Verdict::failed, .margin = margin, .remark = here};
  if (here.empty()) time = judge_exact(before->step_ms, now->step_ms, margin);
  time.what = "predicted step";
  time.shape = shape;
  pair.verdict->verdict = std::max(pair.verdict->verdict, time.verdict);
  pair.verdict->times.push_back(std::move(time));
}

void judge_steps(const GatePrediction& before, const GatePrediction& now, bool stored, double margin,
                 const std::vector<Pairing>& pairs, Gate& gate) {
  const std::string shape = shape_text(before.target);
  for (const PredictedSteps& steps : gate.predictions)
    if (steps.shape == shape) return;  // compare --as predicted the gate's shape
  gate.predictions.push_back({shape, stored});
  for (const Pairing& pair : pairs)
    judge_step(before.row_of(pair.before->label), now.row_of(pair.now->label), shape, margin, pair, gate);
}

/// By this program, of the methods whose options differ: others have equal steps. False where there are none.
bool judge_predicted(const GateShape& at, double margin, const std::vector<Pairing>& pairs, Gate& gate) {
  std::vector<Pairing> changed;
  std::vector<PredictedMethod> before, now;
  for (const Pairing& pair : pairs) {
    const PredictedMethod there = spelled_out(*pair.before), here = spelled_out(*pair.now);
    if (there.spec == here.spec) continue;
    changed.push_back(pair);
    before.push_back(there);
    now.push_back(here);
  }
  if (changed.empty()) return false;
  judge_steps(predict_steps(at, before, gate.options.interrupted), predict_steps(at, now, gate.options.interrupted),
              /*stored=*/false, margin, changed, gate);
  return true;
}

/// Why what the runs stored cannot be judged at this shape; empty: it can.
std::string why_not_stored(const std::optional<GatePrediction>& before, const std::optional<GatePrediction>& now,
                           const GateShape& at) {
  if (!before && !now) return fmt::format("Neither run has a {}", kPredictionFile);
  if (!before || !now) return fmt::format("The {} has no {}", before ? "run" : "baseline", kPredictionFile);
  if (const std::string difference = shape_difference(*before, *now); !difference.empty())
    return fmt::format("The steps that the runs stored were not compared, since {}", difference);
  const Prediction& t = before->target;
  if (t.model != at.model || t.hardware != at.hardware || t.batch != at.batch || t.context != at.context)
    return fmt::format("The runs stored steps at {}", shape_text(t));
  return "";
}

void judge_predictions(const RunFolder& baseline, const RunFolder& run, const std::vector<Pairing>& pairs, Gate& gate) {
  const double margin = gate.options.latency_margin.value_or(kExactMargin);
  if (gate.options.shape) {
    const GateShape& at = *gate.options.shape;
    const std::optional<GatePrediction> before = stored_prediction(baseline.path()),
                                        now = stored_prediction(run.path());
    if (const std::string why = why_not_stored(before, now, at); why.empty() && before && now) {
      judge_steps(*before, *now, /*stored=*/true, margin, pairs, gate);
    } else {
      const bool predicted = judge_predicted(at, margin, pairs, gate);
      if (predicted || before || now)
        gate.notes.push_back(
            fmt::format("{}. {}", why,
                        predicted ? "This program predicted the methods whose options differ; a schedule that became "
                                    "slower between the runs' programs does not show."
                                  : "No method's options differ, so that this program would predict equal steps: none "
                                    "were compared."));
    }
  }
  const std::optional<GatePrediction> before = stored_target(baseline.path(), gate.baseline),
                                      now = stored_target(run.path(), gate.run);
  if (!before && !now) return;
  if (!before || !now) {
    gate.notes.push_back(
        fmt::format("Only the {} has a target.json (--as), which was not compared.", before ? "baseline" : "run"));
  } else if (const std::string difference = shape_difference(*before, *now); !difference.empty()) {
    gate.notes.push_back(fmt::format("The runs' target.json (--as) were not compared: {}.", difference));
  } else {
    judge_steps(*before, *now, /*stored=*/true, margin, pairs, gate);
  }
}

}  // namespace

Gate judge(const RunFolder& baseline_folder, const RunFolder& run_folder, const std::vector<RunFolder>& noise,
           const GateOptions& options) {
  check_comparable(baseline_folder, run_folder, options.any_machine);
  if (!options.subset) check_has_samples_of(baseline_folder, run_folder);
  for (const RunFolder& folder : noise) check_comparable(baseline_folder, folder, options.any_machine);
  const Run baseline(baseline_folder), run(run_folder);
  const Manifest &a = baseline.manifest, &b = run.manifest;
  Gate gate;
  gate.options = options;
  gate.baseline_path = baseline_folder.path().string();
  gate.run_path = run_folder.path().string();
  gate.baseline = a;
  gate.run = b;
  gate.notes = differences_to_note(a, b);

  const std::vector<const MethodEntry*> wanted = wanted_methods(a, options.methods);
  const bool simulated = is_simulated(a.clock);
  if (!noise.empty() && (simulated || a.clock.empty()))
    throw_input_error("--noise is for times that a real clock took, and the baseline's are {}: leave the option away.",
                      simulated ? a.clock : "not there");
  for (const RunFolder& folder : noise) {
    std::error_code unknown;
    if (std::filesystem::equivalent(folder.path(), run_folder.path(), unknown))
      throw_input_error("--noise: '{}' is the run that is judged: give another run of the baseline's program.",
                        folder.path().string());
  }
  const double margin = options.latency_margin.value_or(simulated ? kExactMargin : kMeasuredMargin);
  const TimeMargins margins = measured_margins(baseline, wanted, noise, margin);
  const double alpha = options.alpha / static_cast<double>(wanted.size());  // of one method
  std::vector<Pairing> pairs;
  gate.methods.reserve(wanted.size());
  for (const MethodEntry* before : wanted) {
    MethodVerdict& method = gate.methods.emplace_back();
    method.label = before->label;
    const MethodEntry* now = partner_of(*before, a, b);
    if (now == nullptr) {
      method.verdict = Verdict::failed;
    } else {
      judge_method(baseline, *before, run, *now, options, alpha, margins, method);
      gate.samples = method.accuracy.change.difference.n;
      if (std::string difference = options_difference(*before, *now); !difference.empty())
        gate.notes.push_back(std::move(difference));
      pairs.push_back({before, now, &method});
    }
  }
  judge_predictions(baseline_folder, run_folder, pairs, gate);
  for (const MethodVerdict& method : gate.methods) gate.verdict = std::max(gate.verdict, method.verdict);
  if (options.strict && gate.verdict == Verdict::cannot_tell) gate.verdict = Verdict::failed;
  note_overlap(gate);
  return gate;
}

}  // namespace tandem::eval
