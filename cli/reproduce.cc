// tandem reproduce: a paper's figures on its testbed's profile, published beside simulated.
#include "eval/reproduce/reproduce.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "engine/common/error.h"
#include "eval/report/line_file.h"
#include "eval/reproduce/asyncspade.h"

namespace tandem::cli {
namespace {

constexpr const char* kFooter = R"(
Examples:
  tandem reproduce                        what there is
  tandem reproduce scout-fig11            one figure
  tandem reproduce asyncspade-table2      inference and cache management per pack of layers
  tandem reproduce scout --out scout.md   all figures of a paper, as Markdown; a name in .json gives JSON

An experiment's file (hardware/experiments) says before anything runs which published cells set a free parameter
(fitted, at most two) and which are compared with the outcome (predicted). Simulated: no tensor is computed.)";

struct ReproduceArguments {
  std::string name, out;
  unsigned threads = 0;
  bool quiet = false, force = false;
};

void list() {
  for (const std::string& name : eval::experiment_names()) {
    const eval::Experiment experiment = eval::load_experiment(name);
    std::string figures;
    for (const std::string& figure : experiment.figures()) figures += fmt::format(" {}-fig{}", name, figure);
    fmt::print("{}: {}\n  one at a time:{}\n", name, experiment.title, figures);
  }
  fmt::print("{}: AsyncSpade's Table 2 and Figure 10, at the shapes of Qwen3-8B and 32B on two nodes\n",
             fmt::join(eval::spade_names(), ", "));
}

/// "scout-fig11": figure 11 of the experiment scout.
std::pair<std::string, std::string> parts_of(const std::string& name) {
  const std::size_t at = name.rfind("-fig");
  if (at == std::string::npos) return {name, ""};
  return {name.substr(0, at), name.substr(at + 4)};
}

/// Writes what a reproduction came to, as text to the terminal and to a file where one is named.
void show(const ReproduceArguments& arguments, const std::function<std::string(bool markdown)>& text,
          const std::function<std::string()>& json) {
  fmt::print("{}", text(false));
  check_stdout();
  if (arguments.out.empty()) return;
  eval::write_file(arguments.out, arguments.out.ends_with(".json") ? json() : text(true));
}

void run(const ReproduceArguments& arguments) {
  const auto [name, figure] = parts_of(arguments.name);
  const bool table2 = arguments.name == "asyncspade-table2", fig10 = arguments.name == "asyncspade-fig10";
  const eval::Experiment experiment = table2 || fig10 ? eval::Experiment{} : eval::load_experiment(name);
  check_new_file(arguments.out, arguments.force);
  Progress progress("reproducing", Progress::standard(arguments.quiet));
  eval::ReproduceOptions options;
  options.figure = figure;
  options.threads = arguments.threads;
  options.interrupted = [] { return interrupted(); };
  options.progress = [&](std::uint64_t done, std::uint64_t total, const std::string& what) {
    progress.update(done, total, what);
  };
  if (table2) {
    const auto rows = eval::reproduce_spade_table2(options);
    progress.finish();
    return show(
        arguments, [&](bool markdown) { return eval::spade_table2_text(rows, markdown); },
        [&] { return eval::spade_table2_json(rows); });
  }
  if (fig10) {
    const auto bars = eval::reproduce_spade_fig10(options);
    progress.finish();
    return show(
        arguments, [&](bool markdown) { return eval::spade_fig10_text(bars, markdown); },
        [&] { return eval::spade_fig10_json(bars); });
  }
  const eval::Reproduction result = eval::reproduce(experiment, options);
  progress.finish();
  show(
      arguments, [&](bool markdown) { return eval::reproduction_text(result, markdown); },
      [&] { return eval::reproduction_json(result); });
}

}  // namespace

void add_reproduce(CLI::App& app) {
  auto* command = app.add_subcommand("reproduce", "Simulate a paper's figures on its testbed, published beside ours");
  auto arguments = std::make_shared<ReproduceArguments>();
  command->add_option("name", arguments->name, "Experiment, or one figure of it; none: list them");
  command->add_option("--out", arguments->out, "Also write the result to this file, Markdown or (.json) JSON");
  command->add_flag("--force", arguments->force, "Replace that file");
  command->add_option("--threads", arguments->threads, "CPU threads; 0: all that this process may use")
      ->capture_default_str();
  command->add_flag("--quiet", arguments->quiet, "No progress line");
  command->footer(kFooter);
  command->callback([arguments] {
    if (arguments->name.empty()) {
      list();
    } else {
      run(*arguments);
    }
  });
}

}  // namespace tandem::cli
