// tandem bench: how fast a model or its kernels run on this machine, to compare engines and to see where the time goes.
#include "eval/kernels/bench.h"

#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "engine/common/interrupt.h"
#include "engine/runtime/limits.h"
#include "eval/latency/latency.h"
#include "eval/run/option_values.h"
#include "methods/options.h"

namespace tandem::cli {
namespace {

constexpr const char* kBenchFooter = R"(
Examples:
  tandem bench decode --model ~/models/Qwen2.5-0.5B --context 8K
  tandem bench prefill --model synthetic:llama-3.2-1b --tokens 4K
  tandem bench kernels --device cuda

Real time on this machine, with random tokens. For times predicted for other hardware see `tandem compare --help`.)";

constexpr const char* kDecodeFooter = R"(
Examples:
  tandem bench decode                                          the embedded model
  tandem bench decode --model ~/models/Qwen2.5-0.5B --context 8K --steps 32 --threads 2
  tandem bench decode --model synthetic:qwen2.5-0.5b --method full,hybrid-fixed:budget=0.1 --out decode.json
  tandem bench decode --model ~/models/Qwen2.5-0.5B --context 512 --batch 4

Prefills --context random tokens for each of --batch sequences, then decodes behind them: per round one step that is not
counted, then --steps that are. A round's figure is its mean step (TPOT); tokens/s counts all sequences. The table has
the median round, the least and the most. Below it is where the time of all rounds went, by operation, with the bytes
and FLOPs that the operations declare. The first round warms up and is not counted. Several methods decode behind the
same prefill and take turns round by round; the speed-up is over the first. Trust a figure when least and most lie close
together: other work on the machine shows there. The last lines have the time of loading and the memory of this process,
weights and KV included. --out is written anew after every measured round of a method, so that a run that is ended
leaves what was finished, marked as unfinished.)";

constexpr const char* kPrefillFooter = R"(
Examples:
  tandem bench prefill                                         the embedded model
  tandem bench prefill --model ~/models/Qwen2.5-0.5B --tokens 4K --threads 2 --out prefill.json

Prefills --tokens random tokens into an empty sequence, once per round; the first round warms up and is not counted. No
logits are computed: they belong to the first decode step.)";

constexpr const char* kKernelsFooter = R"(
Examples:
  tandem bench kernels                                         the CPU's kernels
  tandem bench kernels --kernel swiglu --threads 1
  tandem bench kernels --kernel gather --shape '512 pieces' --device cuda
  tandem bench kernels --case 'swiglu:n 1,' --case 'top_k:256 rows'
  tandem bench kernels --device cuda --out kernels.json        the GPU's
  tandem bench kernels --device cuda --check                   whether they are right at these shapes

Each kernel at the shapes of a model of 8B parameters (the tests check it at smaller ones, --check at these): the time
of one call (median, least and most of --rounds rounds), the rates at which it moves what it must and computes, and its
share of what the machine attains in the same rounds. --case measures only the cases that it names, in the order given.
A case that fails says so in its row, the others go on, and the exit code is 3. --out is written anew after every case,
so that a run that is ended leaves what was finished, marked as unfinished.)";

struct BenchArguments {
  SessionOptions session;
  eval::LatencyOptions options;
  std::string context;
  std::vector<std::string> methods;  // each a list; none: full
  OutFile out;
  bool quiet = false;
};

using Measure = eval::Latency (*)(const eval::LatencyOptions&, const Model&, Device&, ThreadPool&);

void bench(BenchArguments& a, const char* length_option, Measure measure) {
  eval::LatencyOptions& options = a.options;
  options.context = eval::parse_one_length(a.context, length_option);
  if (!a.methods.empty()) options.methods = split_method_list(fmt::format("{}", fmt::join(a.methods, ",")));
  eval::check_range("--steps", options.steps, 1, 100000);
  eval::check_range("--rounds", options.rounds, 1, 1000);
  eval::check_range("--batch", options.batch, 1, 256);
  if (a.session.device != "emu" && a.session.device != "cuda")
    throw_input_error("--device is '{}': bench takes real time, so give emu or cuda.", a.session.device);
  a.out.check({".json"});
  Session session = open_session(a.session, a.quiet, /*with_tokenizer=*/false);
  say_hints(options.methods, a.session);
  check_positions(session.model, std::size_t{options.context} + 1, 0);
  check_free_memory(session, options.batch, options.context);
  options.engine = session.engine;
  Progress progress("measuring", a.quiet);
  options.progress = progress.hook();
  bool written = false;
  const auto write = [&](eval::Latency result) {
    result.loading = {.seconds = session.load_seconds, .huge_page_bytes = session.huge_page_bytes};
    a.out.write(eval::latency_json(result));
    written = true;
  };
  if (!a.out.name.empty()) options.after_round = write;
  eval::Latency result;
  try {
    result = measure(options, session.model, *session.device, *session.pool);
  } catch (const Interrupted&) {
    if (written) throw_run_error("Interrupted; {} has the rounds that were finished.", a.out.name);
    throw RunError("Interrupted; nothing was written.");
  }
  progress.finish();
  result.loading = {.seconds = session.load_seconds, .huge_page_bytes = session.huge_page_bytes};
  print("{}", eval::latency_text(result));
  session.weights->check_bytes();
  write(result);
  if (!a.out.name.empty()) print("\n{}: every round, as JSON\n", a.out.name);
  check_stdout();
}

struct KernelArguments {
  std::string device = "cpu";
  eval::KernelBenchOptions options;
  OutFile out;
  bool check = false, quiet = false;
};

/// The file is written anew after every case: a run that is killed leaves what it has finished.
template <class Result>
void run_cases(const KernelArguments& a, const char* done, const auto& run, std::string (*text)(const Result&),
               std::string (*json)(const Result&)) {
  const std::vector<eval::KernelCase> cases = eval::bench_cases(a.options);
  const Result result = with_progress("measuring", a.quiet, [&](const auto& progress) {
    return run(cases, a.options, [&](const Result& so_far) {
      a.out.write(json(so_far));
      progress(so_far.rows.size(), so_far.cases);
    });
  });
  if (result.rows.empty()) throw RunError("Interrupted; nothing was written.");
  print("{}", text(result));
  if (!a.out.name.empty()) print("\n{}: the same as JSON\n", a.out.name);
  check_stdout();
  std::size_t failed = 0, wrong = 0;
  for (const auto& row : result.rows) {
    failed += !row.error.empty();
    if constexpr (requires { row.wrong; }) wrong += !row.wrong.empty();
  }
  if (!result.stopped.empty())
    throw_run_error("{} {} of {} cases were run.", result.stopped, result.rows.size(), result.cases);
  if (result.rows.size() < result.cases)
    throw_run_error("Interrupted: {} of {} cases were {}.", result.rows.size(), result.cases, done);
  if (failed > 0) throw_run_error("{} of {} cases could not be {}.", failed, result.cases, done);
  if (wrong > 0) throw_run_error("{} of {} results are wrong.", wrong, result.cases);
}

void bench_kernels(KernelArguments& a, bool rounds_given) {
  if (a.device != "cpu" && a.device != "cuda") throw_input_error("--device is '{}': give cpu or cuda.", a.device);
  if (a.check && rounds_given)
    throw_input_error("--check runs every kernel once, so that --rounds has no place beside it.");
  a.options.target = a.device == "cpu" ? eval::KernelTarget::cpu : eval::KernelTarget::cuda;
  eval::check_range("--rounds", a.options.rounds, 1, 1000);
  check_threads(a.options.threads);
  a.out.check({".json"});
  a.options.interrupted = interrupted;
  if (a.check) return run_cases(a, "checked", eval::check_kernels, eval::kernel_check_text, eval::kernel_check_json);
  run_cases(a, "measured", eval::measure_kernels, eval::kernel_bench_text, eval::kernel_bench_json);
}

/// What decode and prefill have.
void add_common(Command command, BenchArguments& a) {
  command.option("--rounds", a.options.rounds, "Measured rounds; one more warms up");
  a.out.add_to(command, "A JSON file for every round");
  command.flag("--quiet", a.quiet, "No progress line");
  a.session.device = "emu";
  command.option("--device", a.session.device, "emu: this CPU; cuda: a GPU");
  add_model_options(command, a.session);
}

}  // namespace

void add_bench(Command app) {
  Command command =
      app.group("bench", "Real time of a model or of kernels on this machine: decode, prefill, kernels", kBenchFooter);

  Command decode = command.subcommand("decode", "Time of a decode step behind a long context", kDecodeFooter);
  auto decoding = std::make_shared<BenchArguments>();
  decoding->context = "8K";
  decode.option("--context", decoding->context, "Tokens before the first step: 8K, 32768");
  decode.option("--steps", decoding->options.steps, "Measured steps of a round");
  decode.option("--batch", decoding->options.batch, "Sequences that decode together, each behind a context of its own");
  decode.option("--method", decoding->methods,
                "Methods with their options (`tandem methods`), as a list or each with a --method of its own [full]");
  add_common(decode, *decoding);
  decode.callback([decoding] { bench(*decoding, "--context", eval::measure_decode); });

  Command prefill = command.subcommand("prefill", "Tokens per second of a prefill", kPrefillFooter);
  auto prefilling = std::make_shared<BenchArguments>();
  prefilling->context = "4K";
  prefill.option("--tokens", prefilling->context, "Tokens to prefill: 4K, 8192");
  add_common(prefill, *prefilling);
  prefill.callback([prefilling] { bench(*prefilling, "--tokens", eval::measure_prefill); });

  Command kernels = command.subcommand("kernels", "Every kernel beside what this machine attains", kKernelsFooter);
  auto measured = std::make_shared<KernelArguments>();
  kernels.option("--device", measured->device, "cpu or cuda");
  kernels.option("--kernel", measured->options.kernel, "Only this one, for example swiglu");
  kernels.option("--shape", measured->options.shape, "Only cases whose shape has this text, for example 'n 4096'");
  kernels.option("--case", measured->options.cases,
                 "Only the case KERNEL:SHAPE, or all whose shape has this text where none is called so; may be given "
                 "again");
  kernels.option("--threads", measured->options.threads, "Of the CPU's kernels that use several; 0: all usable");
  kernels.option("--rounds", measured->options.rounds, "Measured rounds of each");
  kernels.flag("--check", measured->check,
               "Measure nothing: run each once and compare with its oracle in float64 (a minute or more)");
  measured->out.add_to(kernels, "A JSON file");
  kernels.flag("--quiet", measured->quiet, "No progress line");
  kernels.callback([measured, kernels] { bench_kernels(*measured, kernels.given("--rounds")); });
}

}  // namespace tandem::cli
