// tandem reproduce: a paper's figures on its testbed's profile, published beside simulated.
#include "eval/reproduce/reproduce.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "engine/common/interrupt.h"
#include "eval/reproduce/asyncspade.h"
#include "eval/reproduce/items.h"
#include "eval/run/option_values.h"

namespace tandem::cli {
namespace {

constexpr const char* kReproduceFooter = R"(
Examples:
  tandem reproduce                        what there is
  tandem reproduce --list                 every table and figure of the papers, with ours and a verdict
  tandem reproduce scout-fig11            one figure, in a minute
  tandem reproduce scout-fig6             CPU compute ratio by step, of the embedded model; scout-table1: cosines
  tandem reproduce fluxion-table5         idle times of two models; fluxion-fig2, 7, 8, 9, 10: speed-ups, schedulers, ...
  tandem reproduce hgca-fig12             HGCA, H2O and InfiniGen with all KV in host memory; hgca-fig6, 10, 11, 13 to 15
  tandem reproduce asyncspade-table2      inference and cache management per pack, bare and with a framework
  tandem reproduce scout --out scout.md   all figures of a paper, as Markdown; a name in .json gives JSON

An experiment's file (hardware/experiments) says before anything runs which published cells set a free parameter
(fitted, at most two) and which are compared with the outcome (predicted). Simulated: no tensor is computed.
Table 1 and figure 6 of ScoutAttention are statistics of a model: profiled on the embedded one, published beside.)";

/// Statistics of a model that the paper publishes, beside what an experiment's file simulates.
constexpr std::array<const char*, 2> kModelFigures = {"scout-table1", "scout-fig6"};

constexpr const char *kSpadeTable2 = "asyncspade-table2", *kSpadeFigure10 = "asyncspade-fig10";

struct ReproduceArguments {
  std::string name;
  unsigned threads = 0;
  bool quiet = false, list = false;
  OutFile out;
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

/// Rows of docs/reproduction.md.
void list_items() {
  const std::vector<eval::Item> items = eval::load_items();
  std::string source;
  for (const eval::Item& item : items) {
    if (item.source != source) print("{}{}\n", source.empty() ? "" : "\n", item.source);
    source = item.source;
    print("  {}\n", hanging(fmt::format("{}: {}", item.name, item.shows), 4));
    print("    {}\n", hanging(fmt::format("{}: {}", item.verdict, item.reason), 6));
    std::string numbers = "published " + item.published;
    if (!item.ours.empty()) numbers += "; ours " + item.ours;
    if (!item.fitted.empty()) numbers += "; fitted / predicted: " + item.fitted;
    if (!item.clock.empty()) numbers += "; " + item.clock;
    print("    {}\n", hanging(numbers, 6));
    if (!item.command.empty()) print("    tandem {}\n", item.command);  // whole, to be copied
  }
  print("\n{}\n", hanging(eval::counted_verdicts(items), 0));
}

void check_name(const std::string& name) {
  const std::vector<std::string> names = reproduction_names();
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

void reproduce(const ReproduceArguments& a) {
  check_name(a.name);
  check_threads(a.threads);
  if (std::find(kModelFigures.begin(), kModelFigures.end(), a.name) != kModelFigures.end()) {
    if (!a.out.name.empty() && a.out.ending() != ".json") {
      throw_input_error("--out is '{}', but {} is written as JSON alone: give a name that ends in .json.", a.out.name,
                        a.name);
    }
    return profile_model_figure(a.name.substr(a.name.rfind('-') + 1), a.out, a.threads, a.quiet);
  }
  const auto [name, figure] = parts_of(a.name);
  const bool table2 = a.name == kSpadeTable2, fig10 = a.name == kSpadeFigure10;
  const eval::Experiment experiment = table2 || fig10 ? eval::Experiment{} : eval::load_experiment(name);
  a.out.check({".md", ".json"});
  eval::ReproduceOptions options;
  options.figure = figure;
  options.threads = a.threads;
  options.interrupted = interrupted;
  const auto made_by = [&](const auto& make) {
    return with_progress("reproducing", a.quiet, [&](const auto& progress) {
      options.progress = progress;
      return make(options);
    });
  };
  if (table2)
    return a.out.show(made_by(eval::reproduce_spade_table2), eval::spade_table2_text, eval::spade_table2_json);
  if (fig10) return a.out.show(made_by(eval::reproduce_spade_fig10), eval::spade_fig10_text, eval::spade_fig10_json);
  const auto reproduce_it = [&](const eval::ReproduceOptions& with) { return eval::reproduce(experiment, with); };
  a.out.show(made_by(reproduce_it), eval::reproduction_text, eval::reproduction_json);
}

}  // namespace

std::vector<std::string> reproduction_names() {
  std::vector<std::string> names = {kSpadeTable2, kSpadeFigure10};
  for (const std::string& experiment : eval::experiment_names()) {
    names.push_back(experiment);
    for (std::string& figure : figure_names(eval::load_experiment(experiment))) names.push_back(std::move(figure));
  }
  std::sort(names.begin(), names.end());
  return names;
}

void add_reproduce(Command app) {
  Command command =
      app.subcommand("reproduce", "Simulate a paper's figures on its testbed, published beside ours", kReproduceFooter);
  auto a = std::make_shared<ReproduceArguments>();
  command.option("name", a->name, "Experiment, or one figure of it; none: list them");
  a->out.add_to(command,
                "Also write the result to this file, Markdown or (.json) JSON; scout-table1 and scout-fig6: JSON");
  command.option("--threads", a->threads, "Runs at a time, one thread each; 0: as many as this process may use");
  command.flag("--list", a->list, "Every table and figure of the papers: the command, published and ours, a verdict");
  command.flag("--quiet", a->quiet, "No progress line");
  command.callback([a] {
    if (a->list && !(a->name.empty() && a->out.name.empty()))
      throw_input_error("--list runs nothing: give it neither a name nor --out.");
    if (a->list) return list_items();
    if (!a->name.empty()) return reproduce(*a);
    if (!a->out.name.empty())
      throw_input_error("--out holds what is reproduced: name it too, for example tandem reproduce scout --out {}.",
                        eval::shell_word(a->out.name));
    list();
  });
}

}  // namespace tandem::cli
