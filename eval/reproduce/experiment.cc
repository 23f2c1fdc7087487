#include "eval/reproduce/experiment.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/ranges.h>
#include <fstream>
#include <iterator>

#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "eval/report/json_reader.h"

namespace tandem::eval {
namespace {

constexpr double kHuge = 1e12;

template <class Item>
const Item* find(const std::vector<Item>& items, std::string_view name) {
  const auto found = std::find_if(items.begin(), items.end(), [&](const Item& item) { return item.name == name; });
  return found == items.end() ? nullptr : &*found;
}

/// `list` of `name`, each read by `read(ObjectReader&)`.
template <class Item, class Read>
std::vector<Item> items_of(ObjectReader& reader, const char* name, const Read& read) {
  std::vector<Item> items;
  const auto& list = reader.array(name);
  items.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    ObjectReader item(list[i], fmt::format("{}, {} {}", reader.where(), name, i + 1));
    items.push_back(read(item));
    item.finish();
  }
  return items;
}

FreeParameter read_free(ObjectReader& reader) {
  FreeParameter p;
  p.name = reader.text("name", false);
  p.meaning = reader.text("meaning", false);
  p.low = reader.number("low", 1e-9, kHuge);
  p.high = reader.number("high", 1e-9, kHuge);
  if (p.high <= p.low) reader.fail("high", "above 'low'");
  const std::string kind = reader.text("kind");
  constexpr std::array<const char*, 4> kKinds = {"real", "whole", "pages", "salient"};
  const auto* const found = std::find(kKinds.begin(), kKinds.end(), kind);
  if (found == kKinds.end()) reader.fail("kind", "'real', 'whole', 'pages' or 'salient'");
  p.kind = static_cast<FreeKind>(found - kKinds.begin());
  if (p.kind == FreeKind::salient) p.window = reader.integer<std::uint32_t>("window");
  p.cell = reader.text("cell", false);
  return p;
}

ExperimentRun read_run(ObjectReader& reader) {
  ExperimentRun run;
  run.name = reader.text("name", false);
  run.method = reader.text("method", false);
  run.context = reader.integer<std::uint32_t>("context");
  run.batch = reader.integer<std::uint32_t>("batch");
  if (run.batch < 1 || run.batch > 256) reader.fail("batch", "a whole number from 1 to 256");
  run.steps = reader.integer<std::uint32_t>("steps");
  if (run.steps < 2 || run.steps > 4096) reader.fail("steps", "a whole number from 2 to 4096");
  const std::string rule = reader.text("rule");
  if (rule != "exactly" && rule != "as many as fit") reader.fail("rule", "'exactly' or 'as many as fit'");
  run.as_many_as_fit = rule != "exactly";
  return run;
}

Cell read_cell(ObjectReader& reader) {
  Cell cell;
  cell.name = reader.text("name", false);
  cell.figure = reader.text("figure", false);
  const std::string quantity = reader.text("quantity");
  if (quantity != "idle_ratio" && quantity != "speed_up") reader.fail("quantity", "'idle_ratio' or 'speed_up'");
  cell.quantity = quantity == "speed_up" ? Quantity::speed_up : Quantity::idle_ratio;
  cell.run = reader.text("run", false);
  if (cell.quantity == Quantity::speed_up) cell.over = reader.text("over", false);
  cell.published = reader.number("published", 0, kHuge);
  cell.aim = reader.number("aim", 0, kHuge);
  return cell;
}

Order read_order(ObjectReader& reader) {
  Order order;
  order.figure = reader.text("figure", false);
  order.says = reader.text("says", false);
  order.runs = reader.texts("slowest_first");
  if (order.runs.size() < 2) reader.fail("slowest_first", "a list of two runs or more");
  return order;
}

void check(const Experiment& e, const std::string& file) {
  const auto known_run = [&](const std::string& run, const std::string& by) {
    if (!find(e.runs, run)) throw_input_error("{}: {} names the run '{}', which is not among 'runs'.", file, by, run);
  };
  for (const Cell& cell : e.cells) {
    known_run(cell.run, "the cell '" + cell.name + "'");
    if (cell.quantity == Quantity::speed_up) known_run(cell.over, "the cell '" + cell.name + "'");
  }
  for (const Order& order : e.orders)
    for (const std::string& run : order.runs) known_run(run, "an order of figure " + order.figure);
  if (e.free.size() > 2) {
    throw_input_error("{}: {} free parameters; at most two may be fitted, or a prediction says little.", file,
                      e.free.size());
  }
  for (const FreeParameter& p : e.free) {
    const Cell* cell = find(e.cells, p.cell);
    if (!cell || cell->quantity != Quantity::idle_ratio)
      throw_input_error("{}: the free parameter '{}' is fitted to '{}', which is no cell of quantity idle_ratio.", file,
                        p.name, p.cell);
    for (const FreeParameter& other : e.free) {
      if (other.name != p.name && e.run(cell->run).method.find('{' + other.name + '}') != std::string::npos)
        throw_input_error("{}: the run '{}' fits {{{}}} and contains {{{}}} too: give each a run of its own.", file,
                          cell->run, p.name, other.name);
    }
    if (e.run(cell->run).method.find('{' + p.name + '}') == std::string::npos)
      throw_input_error("{}: the run '{}' does not contain {{{}}}, so its cell '{}' cannot fit it.", file, cell->run,
                        p.name, p.cell);
  }
}

}  // namespace

const Cell& Experiment::cell(std::string_view wanted) const {
  const Cell* found = find(cells, wanted);
  TANDEM_CHECK(found != nullptr, "no cell '{}'", wanted);
  return *found;
}

const ExperimentRun& Experiment::run(std::string_view wanted) const {
  const ExperimentRun* found = find(runs, wanted);
  TANDEM_CHECK(found != nullptr, "no run '{}'", wanted);
  return *found;
}

bool Experiment::fitted(const Cell& cell) const {
  return std::any_of(free.begin(), free.end(), [&](const FreeParameter& p) { return p.cell == cell.name; });
}

std::vector<std::string> Experiment::figures() const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& figure) {
    if (std::find(names.begin(), names.end(), figure) == names.end()) names.push_back(figure);
  };
  for (const Cell& cell : cells) add(cell.figure);
  for (const Order& order : orders) add(order.figure);
  return names;
}

Experiment parse_experiment(const std::string& text, const std::string& file) {
  const auto json = parse_object(text, file);
  ObjectReader reader(json, file);
  Experiment e;
  e.name = reader.text("name", false);
  e.title = reader.text("title", false);
  e.source = reader.text("source", false);
  e.hardware = reader.text("hardware", false);
  e.model = reader.text("model", false);
  e.workload = reader.text("workload", false);
  e.notes = reader.texts("notes");
  e.free = items_of<FreeParameter>(reader, "free", read_free);
  e.runs = items_of<ExperimentRun>(reader, "runs", read_run);
  e.cells = items_of<Cell>(reader, "cells", read_cell);
  e.orders = items_of<Order>(reader, "orders", read_order);
  reader.finish();
  check(e, file);
  return e;
}

std::vector<std::string> experiment_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_path("hardware/experiments")))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

Experiment load_experiment(const std::string& name) {
  const auto names = experiment_names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw_input_error("There is no experiment '{}'. There are {}.", name, fmt::join(names, ", "));
  const std::filesystem::path file = data_path("hardware/experiments") / (name + ".json");
  std::ifstream in(file, std::ios::binary);
  if (!in) throw_input_error("{} cannot be read.", file.string());
  return parse_experiment({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()}, file.string());
}

}  // namespace tandem::eval
