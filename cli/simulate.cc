// tandem simulate: step time, throughput and idle time of methods over machines, batches and contexts, without a GPU
// and without weights.
#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <optional>

#include "cli/commands.h"
#include "cli/machines.h"
#include "cli/output.h"
#include "cli/run.h"
#include "engine/common/interrupt.h"
#include "engine/common/read_file.h"
#include "eval/predict/level.h"
#include "eval/predict/sweep.h"
#include "eval/predict/text.h"
#include "eval/report/markdown.h"
#include "eval/report/output_folder.h"
#include "eval/report/run_folder.h"
#include "eval/report/table.h"
#include "eval/run/option_values.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSimulateFooter = R"(
Examples:
  tandem simulate                                        llama-3.1-8b on an A100, 16 x 8K and 16 x 32K; half a minute
  tandem simulate --as qwen3-14b --hw h200,scoutattention-a100 --batch 1,16,64 --context 32K
  tandem simulate --hw all --context 8K --batch 1        every shipped machine beside the others
  tandem simulate --as ./my-model --hw mine.json --batch max --context 8K,32K,128K --out runs/mine
  tandem simulate --equal touched-bytes=0.05 --context 32K    every method's budget set to equal bytes
  tandem simulate --hw all --context 32K --batch max --tpot 50 --steps 16    who serves most within 50 ms a token
  tandem simulate --methods full,hgca:device_kv=0.25,hgca:device_kv=0.5 --context 16K --batch max
  tandem simulate --batch 1 --context 32K --level this-engine    with what this engine's control thread takes
  tandem simulate --hw rtx-4090 --host-memory 64 --context 128K --batch 1 --kv-bits 8    with KV of 8 bits

The engine's own schedule of each method runs with the costs of the shape that --as names on a simulated machine
(`tandem info` lists the profiles; `tandem calibrate` makes one of yours): no weights, no GPU, no tensor. Times are
virtual: the same in every run. Which blocks and tokens heads would choose is drawn from --workload.

--batch max decodes as many sequences as the method's KV leaves room for: what it can serve, not how fast it is beside
others of the same batch; with --tpot, as many as keep to that time per token. A method that keeps little of the context
is fast and may answer badly: `tandem compare` and `tandem eval` measure that, and `tandem advise` recommends a method by
speed and loss together. `tandem compare --as` records a workload on a model of yours and predicts with it.

The folder of --out gets report.md, sweep.json, sweep.csv and plot.png. The same command with --resume goes on where ^C
stopped it; with more machines, batches, contexts or methods it simulates what the folder lacks.)";

struct SimulateArguments {
  std::string as = "llama-3.1-8b", hardware = "fluxion-a100", contexts = "8K,32K", batches = "16", methods;
  std::string workload = "published", out;
  std::string equal;  // empty: methods as they are given
  std::string level = "machine";
  std::string sample = std::to_string(eval::kDrawnSequences);
  std::string host_memory;  // empty: the profiles'
  std::optional<double> tpot_ms;
  eval::SweepOptions options;
  bool force = false, resume = false, no_plot = false, quiet = false, json = false;
};

/// Checks the arguments and fills in the options that follow from them.
eval::SweepOptions options_of(const SimulateArguments& a) {
  eval::SweepOptions o = a.options;
  o.hardware = load_profiles(a.hardware, "--hw");
  set_host_memory(o.hardware, a.host_memory);
  eval::check_precision(o.precision);
  o.level = eval::load_level(a.level);
  o.contexts = eval::parse_lengths(a.contexts, "--context");
  for (const std::uint32_t context : o.contexts) expect(context >= 2, "--context", context, "at least 2 tokens");
  o.batches = parse_batches(a.batches, 1024, eval::kAsManyAsFit);
  const std::uint32_t longest = *std::max_element(o.contexts.begin(), o.contexts.end());
  o.methods = a.methods.empty() ? default_prediction(longest) : split_method_list(a.methods);
  for (std::size_t i = 0; i < o.methods.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (o.methods[i] == o.methods[j]) throw_input_error("--methods: '{}' is given twice.", o.methods[i]);
  eval::check_range("--steps", o.steps, 2, 4096);
  eval::check_range("--prefill-chunk", o.prefill_chunk, 1, 65536, " tokens");
  eval::check_range("--most", o.most_sequences, 1, 1024);
  check_threads(o.threads);
  if (a.tpot_ms) {
    expect(*a.tpot_ms >= 1e-3 && *a.tpot_ms <= 1e7, "--tpot", *a.tpot_ms, "milliseconds from 0.001 to 10^7");
    if (std::find(o.batches.begin(), o.batches.end(), eval::kAsManyAsFit) == o.batches.end())
      throw_input_error("--tpot says how long a step of --batch max may take, and --batch is {}: give max too.",
                        a.batches);
    o.tpot_ms = *a.tpot_ms;
  }
  o.drawn_sequences = 0;
  try {
    if (a.sample != "all")
      o.drawn_sequences = static_cast<std::uint32_t>(eval::parse_count(a.sample, "--sample", 2, 1024));
  } catch (const InputError&) {
    throw_input_error("--sample is '{}': give a whole number from 2 to 1024, or all.", a.sample);
  }
  o.interrupted = interrupted;
  return o;
}

/// The command as it can be typed again, without where the results go. `methods`: as they are given.
std::string command_of(const SimulateArguments& a, const std::vector<std::string>& methods,
                       const std::optional<eval::EqualBytes>& equal) {
  const auto bits = [](const char* option, std::uint32_t value) {
    return value == 16 ? "" : fmt::format(" {} {}", option, value);
  };
  return fmt::format(
      "tandem simulate --as {} --hw {} --methods {}{} --context {} --batch {} --level {} --workload {} --steps {} "
      "--prefill-chunk {} --most {} --sample {}{}{}{}{}",
      eval::shell_word(a.as), eval::shell_word(a.hardware),
      eval::shell_word(fmt::format("{}", fmt::join(methods, ","))), equal ? " --equal " + eval::to_text(*equal) : "",
      eval::shell_word(a.contexts), eval::shell_word(a.batches), eval::shell_word(a.level),
      eval::shell_word(a.workload), a.options.steps, a.options.prefill_chunk, a.options.most_sequences, a.sample,
      a.tpot_ms ? fmt::format(" --tpot {}", *a.tpot_ms) : "",
      a.host_memory.empty() ? "" : " --host-memory " + eval::shell_word(a.host_memory),
      bits("--weight-bits", a.options.precision.weight_bits), bits("--kv-bits", a.options.precision.kv_bits));
}

/// Methods with their budgets set to equal bytes, or as the sweep that goes on has them.
eval::Equal equal_of(const SimulateArguments& a, const eval::EqualBytes& asked, const eval::SweepOptions& options,
                     const Workload& workload) {
  if (a.resume) {
    if (auto known = eval::read_equal(a.out, asked, options.methods)) return *known;
  }
  const auto find = [&](const auto& progress) {
    eval::SweepOptions told = options;
    told.progress = progress;
    return eval::equal_at_shape(load_shape(a.as), workload, asked, told);
  };
  return with_progress("setting budgets", a.quiet, find,
                       "Interrupted while budgets were set; nothing was simulated yet.");
}

std::string equal_section(const std::optional<eval::Equal>& equal, bool markdown) {
  if (!equal) return "";
  return eval::equal_found_text(
      *equal,
      "Of one sequence, mean of 15 steps after the first (bytes on the device: at their peak); what a batch "
      "keeps together is divided by nobody here.",
      markdown);
}

/// What a sweep's folder holds beside sweep.json, and is made from that.
constexpr std::string_view kDerived[] = {"report.md", "sweep.csv", "plot.png", "plot.svg", eval::kEqualFile};

eval::OutputFolder open_folder(const SimulateArguments& a) {
  if (a.resume && a.force) throw_input_error("--resume goes on with what --force would replace: give one of them.");
  if (a.resume && a.out.empty()) throw_input_error("--resume goes on in the folder of --out: give it too.");
  const fs::path found = a.out.empty() ? "" : eval::normalised(a.out);
  const auto lacks = [&] { throw_input_error("--resume: there is no sweep.json in '{}'.", a.out); };
  std::error_code ignored;
  if (a.resume && !fs::exists(found, ignored)) lacks();
  return open_report_folder(a.out, a.force, eval::kSweepFile, kDerived, "sweep", [&](bool there) {
    if (a.resume && !there) lacks();
    if (there && !a.resume && !a.force)
      throw_input_error("--out: '{}' has a sweep already; --resume goes on with it, --force replaces it.", a.out);
    if (there && a.force && !eval::is_part_of_run(found / eval::kSweepFile))
      throw_input_error("--out: the sweep.json in '{}' is damaged, or no sweep's: name another folder.", a.out);
  });
}

/// What a sweep goes on with. Whatever else of the folder is a sweep's is of an earlier one.
void write_so_far(const eval::OutputFolder& folder, const eval::Sweep& sweep, const std::string& command,
                  const std::optional<eval::Equal>& equal) {
  folder.write(eval::kSweepFile, eval::sweep_json(sweep, command, program_text()));
  for (const std::string_view name : kDerived) folder.remove(std::string(name));
  if (equal) folder.write(eval::kEqualFile, eval::equal_json(*equal));
}

void write_files(const SimulateArguments& a, const eval::OutputFolder& folder, const eval::Sweep& sweep,
                 const std::string& command, const std::optional<eval::Equal>& equal) {
  write_so_far(folder, sweep, command, equal);
  if (!sweep.complete()) return;
  folder.write("sweep.csv", eval::sweep_csv(sweep));
  const bool plotted = draw("eval/predict/plot_sweep.py", folder.path(), "plot", !a.no_plot);
  write_report(folder, eval::markdown_text(sweep.model),
               plotted ? "![Tokens per second, and idle time](plot.png)\n\n" : "",
               equal_section(equal, /*markdown=*/true) + eval::sweep_text(sweep, /*markdown=*/true), command);
}

void simulate(const SimulateArguments& a) {
  eval::SweepOptions options = options_of(a);
  const Workload workload = read_workload(a.workload, "");
  Model shape = load_shape(a.as);
  std::optional<eval::EqualBytes> equal_bytes;
  if (!a.equal.empty()) equal_bytes = eval::parse_equal_bytes(a.equal, "--equal");
  if (equal_bytes && options.contexts.size() != 1)
    throw_input_error(
        "--equal sets budgets at one context, since what is equal at one is not at another, and --context has {}: give "
        "one.",
        options.contexts.size());
  const eval::OutputFolder folder = open_folder(a);
  const std::string command = command_of(a, options.methods, equal_bytes);
  std::optional<eval::Equal> equal;
  if (equal_bytes) {
    equal = equal_of(a, *equal_bytes, options, workload);
    options.methods = equal->specs();
  }
  std::vector<eval::SweepPoint> known;
  if (a.resume) {
    const std::string file = (folder.path() / eval::kSweepFile).string();
    const std::string text = read_file(file, kMostOfData, "--resume: '" + file + "'");
    known = eval::known_points(text, file, eval::empty_sweep(shape, options, workload), program_text());
  }
  Progress progress("simulating", a.quiet);
  options.progress = progress.hook();
  std::function<void(const eval::Sweep&)> keep;
  if (folder.held()) keep = [&](const eval::Sweep& so_far) { write_so_far(folder, so_far, command, equal); };
  const eval::Sweep sweep = eval::simulate_sweep(std::move(shape), workload, options, std::move(known), keep);
  progress.finish();
  if (!sweep.complete()) {
    if (a.out.empty()) throw RunError("Interrupted; nothing was written. With --out what is finished is kept.");
    if (sweep.points.empty())
      throw_run_error("Interrupted before the first point; '{}' is as it was, and the same command begins anew.",
                      a.out);
    const KeepingWork keeping;
    write_files(a, folder, sweep, command, equal);
    throw_run_error("Interrupted: {} points are kept. Go on with the same command and --resume{}.", sweep.points.size(),
                    a.force ? " in place of --force" : "");
  }
  if (!a.out.empty()) write_files(a, folder, sweep, command, equal);
  if (a.json) {
    print("{}", eval::sweep_json(sweep, command, program_text()));
  } else {
    print("{}{}", equal_section(equal, /*markdown=*/false), eval::sweep_text(sweep, /*markdown=*/false));
  }
  if (!a.out.empty() && !a.json) {
    std::error_code ignored;
    const bool plotted = fs::exists(folder.path() / "plot.png", ignored);
    print("\n{}: report.md, {}sweep.json, sweep.csv\n", a.out, plotted ? "plot.png, plot.svg, " : "");
  }
  check_stdout();
  if (std::all_of(sweep.points.begin(), sweep.points.end(),
                  [](const eval::SweepPoint& p) { return !p.row.refused.empty(); }))
    throw_input_error("No method could be simulated at any point: the reasons stand above.");
}

}  // namespace

void add_simulate(Command app) {
  Command command = app.subcommand(
      "simulate", "Which method is fast where: step, throughput and idle time by machine, batch and context",
      kSimulateFooter);
  auto a = std::make_shared<SimulateArguments>();
  command.option("--as", a->as, "The model's shape: a preset of `tandem info`, or a model folder");
  command.option("--hw", a->hardware,
                 "Machines, with commas: names of profiles, or JSON files; all: every profile that ships");
  command.option("--context", a->contexts, "Prompt tokens of each sequence, with commas: 8K,32K");
  command.option("--batch", a->batches, "Sequences decoded together, with commas; max: as many as fit");
  command.option(
      "--methods", a->methods,
      fmt::format("Methods with their options [{}; with budgets of 512 where no context is longer than {} tokens]",
                  fmt::join(default_prediction(kShortContext + 1), ", "), kShortContext));
  command.option("--equal", a->equal,
                 "Set every method's budget to equal bytes: touched-bytes=SHARES or device-bytes=SHARES of what full "
                 "comes to, such as touched-bytes=0.05,0.1; at one context");
  command.option("--level", a->level,
                 fmt::format("What runs on the machine: {}. machine: the best kernels that were measured on it; "
                             "this-engine: also its control thread; others: a published engine, by one time per layer",
                             eval::listed(eval::levels(), [](const eval::Level& l) { return l.name; })));
  command.option(
      "--workload", a->workload,
      "What heads choose: published, the workload that ships, or a file: target.json of a run of compare --as");
  command.option(
      "--steps", a->options.steps,
      "Decode steps of each point; the first is not in the mean. 16 take a quarter of the time and were 0.4 to "
      "4 % off");
  command.option("--prefill-chunk", a->options.prefill_chunk, "Tokens of a chunk of the prefill");
  command.option("--most", a->options.most_sequences, "Sequences that max stops at");
  command.option(
      "--sample", a->sample,
      "Sequences of a batch that are simulated one by one, or all; the others copy them. More are slower and more "
      "exact: the notes say what error is left");
  command.option("--tpot", a->tpot_ms,
                 "Milliseconds that a step of max may take: fewer sequences than fit where these take longer");
  command.option("--host-memory", a->host_memory, kHostMemoryHelp);
  add_precision(command, a->options.precision);
  command.option("--out", a->out, "Folder for the report, the figures and a plot; none: printed alone");
  command.flag("--resume", a->resume, "Go on with the sweep in that folder, or add to it");
  command.flag("--force", a->force, "Replace the sweep in that folder");
  command.option("--threads", a->options.threads,
                 "Points at a time, one thread each; 0: as many as this process may use");
  command.flag("--no-plot", a->no_plot, "Draw no plot");
  command.flag("--quiet", a->quiet, "No progress line");
  command.flag("--json", a->json, json_help("sweep.json"));
  command.callback([a] { simulate(*a); });
}

}  // namespace tandem::cli
