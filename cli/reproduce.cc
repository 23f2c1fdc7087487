// tandem reproduce: a paper's figures on its testbed's profile, published beside simulated.
#include "eval/reproduce/reproduce.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "engine/common/error.h"
#include "engine/kernels/thread_pool.h"
#include "eval/report/line_file.h"
#include "eval/reproduce/asyncspade.h"
#include "eval/run/option_values.h"

namespace tandem::cli {
namespace {

constexpr const char* kReproduceFooter = R"(
Examples:
  tandem reproduce                        what there is
  tandem reproduce scout-fig11            one figure
  tandem reproduce scout-fig6             CPU compute ratio by step, of the embedded model; scout-table1: cosines
  tandem reproduce fluxion-table5         idle times of two models; fluxion-fig2, 7, 8, 9, 10: speed-ups, schedulers, ...
  tandem reproduce asyncspade-table2      inference and cache management per pack, bare and with a framework
  tandem reproduce scout --out scout.md   all figures of a paper, as Markdown; a name in .json gives JSON

An experiment's file (hardware/experiments) says before anything runs which published cells set a free parameter
(fitted, at most two) and which are compared with the outcome (predicted). Simulated: no tensor is computed.
Table 1 and figure 6 of ScoutAttention are statistics of a model: profiled on the embedded one, published beside.)";

/// Statistics of a model that the paper publishes, beside what an experiment's file simulates.
constexpr std::array<const char*, 2> kModelFigures = {"scout-table1", "scout-fig6"};

constexpr const char *kSpadeTable2 = "asyncspade-table2", *kSpadeFigure10 = "asyncspade-fig10";

struct ReproduceArguments {
  std::string name, out;
  unsigned threads = 0;
  bool quiet = false, force = false;
};

/// Names of an experiment's figures, in its order; those that are statistics of a model are last.
std::vector<std::string> figure_names(const eval::Experiment& experiment) {
  std::vector<std::string> names;
  for (const std::string& figure : experiment.figures()) {
    const bool number = figure.find_first_not_of("0123456789") == std::string::npos;
    names.push_back(fmt::format("{}-{}{}", experiment.name, number ? "fig" : "", figure));
  }
  for (const char* figure : kModelFigures)
    if (std::string_view(figure).starts_with(experiment.name + "-")) names.emplace_back(figure);
  return names;
}

void list() {
  for (const std::string& name : eval::experiment_names()) {
    const eval::Experiment experiment = eval::load_experiment(name);
    print("{}\n  {}\n", hanging(fmt::format("{}: {}", name, experiment.title), 2),
          hanging(fmt::format("one at a time: {}", fmt::join(figure_names(experiment), " ")), 2));
  }
  print("{}\n", hanging(fmt::format("{}, {}: AsyncSpade's Table 2 and Figure 10, at the shapes of Qwen3-8B and 32B on "
                                    "two nodes",
                                    kSpadeTable2, kSpadeFigure10),
                        2));
}

void check_name(const std::string& name) {
  std::vector<std::string> names = {kSpadeTable2, kSpadeFigure10};
  for (const std::string& experiment : eval::experiment_names()) {
    names.push_back(experiment);
    for (std::string& figure : figure_names(eval::load_experiment(experiment))) names.push_back(std::move(figure));
  }
  std::sort(names.begin(), names.end());
  if (std::binary_search(names.begin(), names.end(), name)) return;
  throw_input_error("There is nothing to reproduce called '{}'.{} There are {}.", name, did_you_mean(name, names),
                    join_names(names));
}

/// "scout-fig11": figure 11 of the experiment scout; "fluxion-table5": the cells that belong to "table5".
std::pair<std::string, std::string> parts_of(const std::string& name) {
  const std::size_t at = name.rfind('-');
  if (at == std::string::npos) return {name, ""};
  const std::string figure = name.substr(at + 1);
  if (figure.starts_with("fig")) return {name.substr(0, at), figure.substr(3)};
  if (figure.starts_with("table")) return {name.substr(0, at), figure};
  return {name, ""};
}

/// Writes what a reproduction came to, as text to the terminal and to a file where one is named.
void show(const ReproduceArguments& arguments, const std::function<std::string(bool markdown)>& text,
          const std::function<std::string()>& json) {
  print("{}", text(false));
  check_stdout();
  if (arguments.out.empty()) return;
  eval::write_file(arguments.out, ending_of(arguments.out) == ".json" ? json() : text(true));
}

void reproduce(const ReproduceArguments& arguments) {
  check_name(arguments.name);
  if (arguments.threads > usable_threads())
    throw_input_error("--threads is {}: this process may use {}.", arguments.threads, usable_threads());
  if (std::find(kModelFigures.begin(), kModelFigures.end(), arguments.name) != kModelFigures.end()) {
    if (!arguments.out.empty() && ending_of(arguments.out) != ".json") {
      throw_input_error("--out is '{}', but {} is written as JSON alone: give a name that ends in .json.",
                        arguments.out, arguments.name);
    }
    const std::string figure = arguments.name.substr(arguments.name.rfind('-') + 1);
    profile_model_figure({figure, arguments.out, arguments.threads, arguments.force, arguments.quiet});
    return;
  }
  const auto [name, figure] = parts_of(arguments.name);
  const bool table2 = arguments.name == kSpadeTable2, fig10 = arguments.name == kSpadeFigure10;
  const eval::Experiment experiment = table2 || fig10 ? eval::Experiment{} : eval::load_experiment(name);
  check_ending(arguments.out, {".md", ".json"});
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

void run(const ReproduceArguments& arguments) {
  try {
    reproduce(arguments);
  } catch (const Interrupted&) {
    throw RunError("Interrupted; nothing was written.");
  }
}

}  // namespace

void add_reproduce(Command app) {
  Command command = app.subcommand("reproduce", "Simulate a paper's figures on its testbed, published beside ours");
  auto arguments = std::make_shared<ReproduceArguments>();
  command.option("name", arguments->name, "Experiment, or one figure of it; none: list them");
  command.option("--out", arguments->out,
                 "Also write the result to this file, Markdown or (.json) JSON; scout-table1 and scout-fig6: JSON");
  command.flag("--force", arguments->force, "Replace that file");
  command.option("--threads", arguments->threads, "Runs at a time, one thread each; 0: as many as this process may use")
      .show_default();
  command.flag("--quiet", arguments->quiet, "No progress line");
  command.footer(kReproduceFooter);
  command.callback([arguments] {
    if (arguments->name.empty() && !arguments->out.empty())
      throw_input_error("--out holds what is reproduced: name it too, for example tandem reproduce scout --out {}.",
                        eval::shell_word(arguments->out));
    if (arguments->name.empty()) {
      list();
    } else {
      run(*arguments);
    }
  });
}

}  // namespace tandem::cli
