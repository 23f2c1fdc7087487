// tandem validate: predictions beside measurements, published ones or this machine's, with the error of each.
#include <filesystem>
#include <fmt/ranges.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/run.h"
#include "engine/common/interrupt.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "eval/here/here.h"
#include "eval/report/markdown.h"
#include "eval/run/option_values.h"
#include "eval/tables/tables.h"
#include "eval/validate/validation.h"
#include "methods/registry.h"

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

constexpr const char *kFile = "validation.json", *kHereFile = "here.json", *kHereProfile = "this-machine.json";
constexpr std::string_view kReport[] = {"report.md", "report.html", "plot.png", "plot.svg"};
constexpr std::string_view kHereReport[] = {kHereProfile, "report.md"};

struct ValidateArguments {
  std::string points, out;
  bool every = false, force = false, no_plot = false, quiet = false;
  // With --here only:
  bool here = false, operations = false;
  std::string contexts = "16K,32K", hardware, prefix_cache;
  std::vector<std::string> methods;  // each a list; none: eval::here_methods()
  eval::HereOptions options;
};

/// The folder of --out, free or with a validation to replace; InputError else. Not held where none is asked for.
eval::OutputFolder open_folder(const ValidateArguments& a, const char* file,
                               std::span<const std::string_view> derived) {
  return open_report_folder(a.out, a.force, file, derived, "validation", [&](bool there) {
    if (there && !a.force) throw_input_error("--out: '{}' has a validation already; --force replaces it.", a.out);
  });
}

void validate(const ValidateArguments& a) {
  const fs::path file = a.points.empty() ? data_path("hardware/validation/points.json") : fs::path(a.points);
  const std::string what = a.points.empty() ? file.string() : "--points '" + a.points + "'";
  const std::vector<eval::MeasuredPoint> points =
      eval::parse_points(read_file(file, kMostOfAFile, what), file.string());
  const eval::OutputFolder folder = open_folder(a, kFile, kReport);
  const eval::Validation validation = with_progress("comparing", a.quiet, [&](const auto& progress) {
    return eval::validate(points, a.points.empty() ? "hardware/validation/points.json" : a.points, progress,
                          interrupted);
  });
  if (folder.held()) {
    const std::string command = "tandem validate" + (a.points.empty() ? "" : " --points " + eval::shell_word(a.points));
    const char* title = "Predictions beside measurements";
    folder.write(kFile, eval::validation_json(validation, command, program_text()));
    const bool plotted = draw("eval/validate/plot_validation.py", folder.path(), "plot", !a.no_plot);
    write_report(folder, title, plotted ? "![Predicted beside measured](plot.png)\n\n" : "",
                 eval::validation_text(validation, /*markdown=*/true, /*every_point=*/true), command);
    folder.write("report.html", eval::tables_page(title, "",
                                                  std::vector<eval::PageFolder>{{folder.path().filename().string(),
                                                                                 folder.path().string(), true}},
                                                  fmt::format("Made by {}.", program_text())));
  }
  print("{}", eval::validation_text(validation, /*markdown=*/false, a.every));
  if (folder.held()) print("\n{}: report.html, report.md, {}\n", a.out, kFile);
  check_stdout();
}

/// A folder that is gone when the run is over, however it ends.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "tandem-here-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw_run_error("A folder for prompts cannot be made in {}.", name);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void validate_here(ValidateArguments& a) {
  eval::HereOptions& options = a.options;
  options.methods =
      a.methods.empty() ? eval::here_methods() : split_method_list(fmt::format("{}", fmt::join(a.methods, ",")));
  for (const std::string& method : options.methods) make_method(method);
  options.contexts = eval::parse_lengths(a.contexts, "--contexts");
  eval::check_range("--rounds", options.rounds, 1, 1000);
  eval::two_cores();  // where there are none, before anything else
  if (!a.hardware.empty()) {
    options.profile = load_profile(a.hardware);
    if (options.profile->device.cpu_threads == 0)
      throw_input_error("--hw: '{}' is no CPU that plays a device: give the {} that an earlier --here wrote.",
                        a.hardware, kHereProfile);
  }
  const eval::OutputFolder folder = open_folder(a, kHereFile, kHereReport);
  std::optional<TemporaryFolder> prompts;
  options.prompts = a.prefix_cache.empty() ? prompts.emplace().path() : fs::path(a.prefix_cache);
  options.interrupted = interrupted;
  const eval::HereValidation validation = with_progress("validating", a.quiet, [&](const auto& progress) {
    options.progress = progress;
    return eval::validate_here(options);
  });
  if (folder.held()) {
    const std::string command = fmt::format(
        "tandem validate --here{} --contexts {} --rounds {}{}",
        a.methods.empty() ? "" : " --methods " + eval::shell_word(fmt::format("{}", fmt::join(options.methods, ","))),
        a.contexts, options.rounds, a.hardware.empty() ? "" : " --hw " + eval::shell_word(a.hardware));
    folder.write(kHereFile, eval::here_json(validation, command, program_text()));
    folder.write(kHereProfile, profile_to_json(validation.profile));
    write_report(folder, "Predictions beside measurements on this machine", "",
                 eval::here_text(validation, /*markdown=*/true), command);
  }
  print("{}", eval::here_text(validation, /*markdown=*/false));
  if (a.operations) print("\n{}", eval::here_operations_text(validation));
  if (folder.held()) print("\n{}: report.md, {}, {}\n", a.out, kHereFile, kHereProfile);
  check_stdout();
}

/// Options of the one comparison beside the other's.
void check_options(const Command& command, bool here) {
  for (const char* option : {"--points", "--every", "--no-plot"})
    if (here && command.given(option))
      throw_input_error("{} is for published points: leave it away, or --here.", option);
  for (const char* option : {"--methods", "--contexts", "--rounds", "--hw", "--prefix-cache", "--operations"})
    if (!here && command.given(option)) throw_input_error("{} is for --here: give that too.", option);
}

}  // namespace

void add_validate(Command app) {
  Command command = app.subcommand(
      "validate", "How far predictions are from measurements, published ones or this machine's", kValidateFooter);
  auto a = std::make_shared<ValidateArguments>();
  command.option("--points", a->points, "A file of measured points [hardware/validation/points.json]");
  command.flag("--every", a->every, "Print the errors by device and of each point, too");
  command.option("--out", a->out, "Folder for the report, the figures and a plot; none: printed alone");
  command.flag("--force", a->force, "Replace the validation in that folder");
  command.flag("--no-plot", a->no_plot, "Draw no plot");
  command.flag("--quiet", a->quiet, "No progress line");
  command.flag("--here", a->here, "Compare with this machine instead: see below");
  command.option("--methods", a->methods,
                 "Methods of --here with their options, as a list or each with a --methods of its own [those "
                 "whose kernels a profile has rates for]");
  command.option("--contexts", a->contexts, "Tokens before the first step, of --here");
  command.option("--rounds", a->options.rounds, "Measured rounds of --here; one more warms up");
  command.option("--hw", a->hardware, "This machine's profile from an earlier --here, in place of measuring it");
  command.option("--prefix-cache", a->prefix_cache,
                 "Folder that keeps prefilled prompts of --here for later runs; none: they are removed");
  command.flag("--operations", a->operations, "Print what each operation took, measured and predicted");
  command.callback([a, command] {
    check_options(command, a->here);
    a->here ? validate_here(*a) : validate(*a);
  });
}

}  // namespace tandem::cli
