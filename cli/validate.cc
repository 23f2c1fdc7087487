// tandem validate: predictions beside published measurements, with the error of each.
#include <filesystem>
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run.h"
#include "cli/say.h"
#include "cli/session.h"
#include "cli/validate_here.h"
#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "engine/common/version.h"
#include "eval/report/markdown.h"
#include "eval/report/run_folder.h"
#include "eval/run/option_values.h"
#include "eval/tables/tables.h"
#include "eval/validate/validation.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kValidateFooter = R"(
Examples:
  tandem validate                                   the shipped points: errors by kind of figure
  tandem validate --out runs/validation             every point, with a plot: report.html, validation.json
  tandem validate --points mine.json --every        points of your own, one line each
  tandem validate --here --out runs/here            each method's decode step on this CPU, predicted and measured

A point is what somebody measured on named hardware: a kernel, a transfer, a decode step. The command predicts it with
the cost model that `tandem simulate` uses and prints the signed error. Groups of points (hardware x engine) either
fitted the cost model (calibration) or did not (validation); trust the errors of the latter.

Levels are never pooled. machine: the hardware with the best kernels that were measured on it. a published engine: one
declared overhead per layer for that engine. this machine (--here): the CPU at hand, where one core plays the device,
another one the host, and memcpy is the link; its kernels, copies and hand-offs make a profile, from which every method's
step is predicted beside its measurement. That takes some ten minutes of an otherwise idle machine.

hardware/validation/README.md explains the file's fields.)";

constexpr const char* kFile = "validation.json";
constexpr std::string_view kReport[] = {"report.md", "report.html", "plot.png", "plot.svg"};

struct ValidateArguments {
  std::string points, out;
  bool every = false, force = false, no_plot = false, quiet = false;
  bool here = false;
  ValidateHereArguments on_here;
};

void write_files(const ValidateArguments& a, const eval::OutputFolder& folder, const eval::Validation& validation) {
  const std::string command = fmt::format("tandem validate{}",
                                          a.points.empty() ? "" : " --points " + eval::shell_word(a.points)),
                    program = fmt::format("tandem {} ({})", version(), git_commit());
  folder.write(kFile, eval::validation_json(validation, command, program));
  const bool plotted = draw("eval/validate/plot_validation.py", folder.path(), "plot", !a.no_plot);
  folder.write("report.md", fmt::format("# Predictions beside measurements\n\n{}{}\nMade by {}: {}\n",
                                        plotted ? "![Predicted beside measured](plot.png)\n\n" : "",
                                        eval::validation_text(validation, /*markdown=*/true, /*every_point=*/true),
                                        program, eval::markdown_code(command)));
  folder.write("report.html", eval::tables_page("Predictions beside measurements", "",
                                                std::vector<eval::PageFolder>{
                                                    {folder.path().filename().string(), folder.path().string(), true}},
                                                fmt::format("Made by {}.", program)));
}

/// Options of the one comparison beside the other's.
void check_options(const Command& command, bool here) {
  for (const char* option : {"--points", "--every", "--no-plot"})
    if (here && command.given(option))
      throw_input_error("{} is for published points: leave it away, or --here.", option);
  for (const char* option : {"--methods", "--contexts", "--rounds", "--hw", "--prefix-cache", "--operations"})
    if (!here && command.given(option)) throw_input_error("{} is for --here: give that too.", option);
}

void validate(const ValidateArguments& a) {
  const fs::path file = a.points.empty() ? data_path("hardware/validation/points.json") : fs::path(a.points);
  const std::string what = a.points.empty() ? file.string() : "--points '" + a.points + "'";
  const std::vector<eval::MeasuredPoint> points =
      eval::parse_points(read_file(file, kMostOfAFile, what), file.string());
  const eval::OutputFolder folder = open_validation(a.out, a.force, {kFile, kReport, "validation"});
  const eval::Validation validation = with_progress("comparing", a.quiet, [&](const auto& progress) {
    return eval::validate(points, a.points.empty() ? "hardware/validation/points.json" : a.points, progress,
                          [] { return interrupted(); });
  });
  if (folder.held()) write_files(a, folder, validation);
  print("{}", eval::validation_text(validation, /*markdown=*/false, a.every));
  if (folder.held()) print("\n{}: report.html, report.md, {}\n", a.out, kFile);
  check_stdout();
}

}  // namespace

void add_validate(Command app) {
  Command command =
      app.subcommand("validate", "How far predictions are from measurements, published ones or this machine's");
  auto arguments = std::make_shared<ValidateArguments>();
  command.option("--points", arguments->points, "A file of measured points [hardware/validation/points.json]");
  command.flag("--every", arguments->every, "Print the errors by device and of each point, too");
  command.option("--out", arguments->out, "Folder for the report, the figures and a plot; none: printed alone");
  command.flag("--force", arguments->force, "Replace the validation in that folder");
  command.flag("--no-plot", arguments->no_plot, "Draw no plot");
  command.flag("--quiet", arguments->quiet, "No progress line");
  command.footer(kValidateFooter);
  command.flag("--here", arguments->here, "Compare with this machine instead: see below");
  ValidateHereArguments& here = arguments->on_here;
  command
      .option("--methods", here.methods,
              "Methods of --here with their options, as a list or each with a --methods of its own [those "
              "whose kernels a profile has rates for]")
      .repeatable();
  command.option("--contexts", here.contexts, "Tokens before the first step, of --here").show_default();
  command.option("--rounds", here.rounds, "Measured rounds of --here; one more warms up").show_default();
  command.option("--hw", here.hardware, "This machine's profile from an earlier --here, in place of measuring it");
  command.option("--prefix-cache", here.prefix_cache,
                 "Folder that keeps prefilled prompts of --here for later runs; none: they are removed");
  command.flag("--operations", here.operations, "Print what each operation took, measured and predicted");
  command.callback([arguments, command] {
    check_options(command, arguments->here);
    if (!arguments->here) return validate(*arguments);
    arguments->on_here.out = arguments->out;
    arguments->on_here.force = arguments->force;
    arguments->on_here.quiet = arguments->quiet;
    validate_here(arguments->on_here);
  });
}

}  // namespace tandem::cli
