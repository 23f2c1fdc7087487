// tandem merge: the shards of a run as one run.
#include <filesystem>
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "eval/report/run_folder.h"
#include "eval/run/option_values.h"

namespace tandem::cli {
namespace {

constexpr const char* kMergeFooter = R"(
Examples:
  tandem compare --samples 200 --shard 1/2 --out runs/s1      on one machine
  tandem compare --samples 200 --shard 2/2 --out runs/s2      on another, or later
  tandem merge runs/s1 runs/s2 --out runs/whole
  tandem compare --samples 200 --resume --out runs/whole      writes the report, and runs what no shard had
  mpirun -n 4 tandem compare --samples 200 --shard rank --threads 2 --out runs/parts      all parts at once (or srun)
  tandem merge runs/parts/* --out runs/whole

Shards are runs of one command. Samples and, on a simulated clock, times are the bytes that one process would have
written: it must be the same instruction set everywhere (TANDEM_ISA), as for --resume.)";

struct MergeArguments {
  std::vector<std::string> runs;
  std::string out;
  bool force = false;
};

void merge(const MergeArguments& a) {
  const std::vector<std::filesystem::path> runs(a.runs.begin(), a.runs.end());
  const eval::Merged merged = eval::merge_runs(runs, a.out, a.force);
  const std::string command = eval::RunFolder::open(a.out).manifest().command;
  if (merged.documents_dropped)
    say("Some of the runs were begun by an older program, whose samples do not say which document they are about. The "
        "whole run says it of none, so that its intervals take questions about one document for independent ones, and "
        "are too narrow: run those shards again for wider ones.");
  print("{}: {} of the run's {} samples, counted with every method.{} For the report:\n  {} --resume --out {}\n", a.out,
        merged.there, merged.all, merged.there < merged.all ? " What is missing is run before the report is made." : "",
        command, eval::shell_word(a.out));
  check_stdout();
}

}  // namespace

void add_merge(Command app) {
  Command command = app.subcommand("merge", "Join the shards of a run, which --shard made", kMergeFooter);
  auto a = std::make_shared<MergeArguments>();
  command.required("runs", a->runs, "Run folders of compare and eval, all of one command");
  command.required("--out", a->out, "Folder of the whole run");
  command.flag("--force", a->force, "Replace an earlier run in that folder");
  command.callback([a] { merge(*a); });
}

}  // namespace tandem::cli
