#include "eval/reproduce/experiment.h"

#include <algorithm>
#include <filesystem>
#include <fmt/ranges.h>
#include <random>

#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "eval/report/json_fields.h"

namespace tandem::eval {
namespace {

constexpr double kHuge = 1e12;

template <class Item>
const Item* find(const std::vector<Item>& items, std::string_view name) {
  const auto found = std::ranges::find(items, name, &Item::name);
  return found == items.end() ? nullptr : &*found;
}

void read_free(ObjectReader& reader, FreeParameter& p) {
  p.name = reader.text("name", false);
  p.meaning = reader.text("meaning", false);
  p.low = reader.number("low", 1e-9, kHuge);
  p.high = reader.number("high", 1e-9, kHuge);
  if (p.high <= p.low) reader.fail("high", "above 'low'");
  constexpr std::array<const char*, 6> kKinds = {"real",    "whole",          "pages",
                                                 "salient", "cpu efficiency", "layer overhead"};
  reader.one_of("kind", p.kind, kKinds);
  if (p.kind == FreeKind::salient) p.window = reader.integer<std::uint32_t>("window");
  p.cell = reader.text("cell", false);
}

void read_calibration(ObjectReader& reader, Calibration& c) {
  c.name = reader.text("name", false);
  c.run = reader.text("run", false);
  c.low = reader.number("low", 1e-9, 1);
  c.high = reader.number("high", 1e-9, 1);
  if (c.high <= c.low) reader.fail("high", "above 'low'");
  c.seed = reader.integer<std::uint32_t>("seed");
}

void read_run(ObjectReader& reader, ExperimentRun& run) {
  run.name = reader.text("name", false);
  run.method = reader.text("method", false);
  if (reader.has("model")) run.model = reader.text("model", false);
  if (reader.has("lengths")) {
    std::vector<std::uint32_t> lengths;
    reader.field("lengths", lengths);
    if (lengths.size() != 2) reader.fail("lengths", "a list of two: the least and the most tokens");
    run.mixed = {lengths[0], lengths[1], reader.integer<std::uint32_t>("seeds")};
    if (run.mixed.low < 2 || run.mixed.high < run.mixed.low) reader.fail("lengths", "the least before the most tokens");
    if (run.mixed.seeds < 2 || run.mixed.seeds > 1000) reader.fail("seeds", "a whole number from 2 to 1000");
    run.context = run.mixed.high;
  } else {
    run.context = reader.integer<std::uint32_t>("context");
  }
  if (reader.has("devices")) {
    run.devices = reader.integer<std::uint32_t>("devices");
    if (run.devices < 1 || run.devices > 64) reader.fail("devices", "a whole number from 1 to 64");
  }
  run.batch = reader.integer<std::uint32_t>("batch");
  if (run.batch < 1 || run.batch > 256) reader.fail("batch", "a whole number from 1 to 256");
  run.steps = reader.integer<std::uint32_t>("steps");
  if (run.steps < 2 || run.steps > 4096) reader.fail("steps", "a whole number from 2 to 4096");
  const std::string rule = reader.text("rule");
  if (rule != "exactly" && rule != "as many as fit") reader.fail("rule", "'exactly' or 'as many as fit'");
  run.as_many_as_fit = rule != "exactly";
  if (run.as_many_as_fit && run.mixed.seeds > 0) reader.fail("rule", "'exactly' where lengths are mixed");
}

void read_cell(ObjectReader& reader, Cell& cell) {
  cell.name = reader.text("name", false);
  cell.figure = reader.text("figure", false);
  reader.one_of("quantity", cell.quantity, kQuantityNames);
  cell.run = reader.text("run", false);
  if (cell.quantity == Quantity::speed_up) cell.over = reader.text("over", false);
  cell.published = reader.number("published", 0, kHuge);
  cell.aim = reader.number("aim", 0, kHuge);
  if (reader.has("at_most")) cell.at_most = reader.number("at_most", 1e-9, kHuge);
  if (reader.has("null_model")) cell.null_model = reader.number("null_model", 1e-9, kHuge);
  if (reader.has("source")) cell.source = reader.boolean("source");
  if (reader.has("derived")) cell.derived = reader.boolean("derived");
}

void read_order(ObjectReader& reader, Order& order) {
  order.figure = reader.text("figure", false);
  order.says = reader.text("says", false);
  order.by_idle = reader.has("most_idle_first");
  const char* const field = order.by_idle ? "most_idle_first" : "slowest_first";
  order.runs = reader.texts(field);
  if (order.runs.size() < 2) reader.fail(field, "a list of two runs or more");
  if (reader.has("over")) {
    order.over = reader.texts("over");
    if (order.by_idle || order.over.size() != order.runs.size())
      reader.fail("over", "a list of as many runs as 'slowest_first'");
  }
  if (reader.has("ours")) order.ours = reader.boolean("ours");
  if (reader.has("source")) order.source = reader.boolean("source");
}

void check(const Experiment& e, const std::string& file) {
  const auto known_run = [&](const std::string& run, const std::string& by) {
    if (!find(e.runs, run)) throw_input_error("{}: {} names the run '{}', which is not among 'runs'.", file, by, run);
  };
  for (const Cell& cell : e.cells) {
    known_run(cell.run, "the cell '" + cell.name + "'");
    if (cell.over.empty()) continue;
    known_run(cell.over, "the cell '" + cell.name + "'");
    if (e.run(cell.run).mixed != e.run(cell.over).mixed)
      throw_input_error("{}: the cell '{}' compares runs of other lengths or seeds.", file, cell.name);
  }
  for (const Order& order : e.orders)
    for (const auto* runs : {&order.runs, &order.over})
      for (const std::string& run : *runs) known_run(run, "an order of figure " + order.figure);
  if (e.free.size() > 2)
    throw_input_error("{}: {} free parameters; at most two may be fitted, or a prediction says little.", file,
                      e.free.size());
  for (const FreeParameter& p : e.free) {
    const Cell* cell = find(e.cells, p.cell);
    if (!cell || (cell->quantity != Quantity::idle_ratio && cell->quantity != Quantity::idle_ms))
      throw_input_error(
          "{}: the free parameter '{}' is fitted to '{}', which is no cell of quantity idle_ratio or idle_ms.", file,
          p.name, p.cell);
    if (p.of_machine()) continue;
    for (const FreeParameter& other : e.free)
      if (other.name != p.name && e.run(cell->run).contains(other.name))
        throw_input_error("{}: the run '{}' fits {{{}}} and contains {{{}}} too: give each a run of its own.", file,
                          cell->run, p.name, other.name);
    if (!e.run(cell->run).contains(p.name))
      throw_input_error("{}: the run '{}' does not contain {{{}}}, so its cell '{}' cannot fit it.", file, cell->run,
                        p.name, p.cell);
  }
  for (const Calibration& c : e.calibrations) {
    const ExperimentRun* run = find(e.runs, c.run);
    if (!run || !run->contains(c.name))
      throw_input_error("{}: the calibration '{}' names the run '{}', which is not among 'runs' or lacks {{{}}}.", file,
                        c.name, c.run, c.name);
    if (run->mixed.seeds == 0 || c.seed < run->mixed.seeds)
      throw_input_error(
          "{}: the calibration '{}' needs a run of mixed lengths and a 'seed' that is none of its {} (0 to one less).",
          file, c.name, run->mixed.seeds);
    for (const FreeParameter& p : e.free)
      if (e.run(e.cell(p.cell).run).contains(c.name))
        throw_input_error("{}: the run of '{}' fits {{{}}} and contains {{{}}}, which is calibrated later.", file,
                          p.cell, p.name, c.name);
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
  return std::ranges::any_of(free, [&](const FreeParameter& p) { return p.cell == cell.name; });
}

std::vector<std::string> Experiment::figures() const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& figure) {
    if (std::ranges::find(names, figure) == names.end()) names.push_back(figure);
  };
  for (const Cell& cell : cells) add(cell.figure);
  for (const Order& order : orders) add(order.figure);
  return names;
}

std::vector<std::uint32_t> mixed_lengths(const Mixed& mixed, std::uint32_t batch, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint32_t> lengths(batch);
  const std::uint64_t range = std::uint64_t{mixed.high} - mixed.low + 1;
  for (std::uint32_t& length : lengths) length = mixed.low + static_cast<std::uint32_t>(random() * range >> 32);
  return lengths;
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
  reader.numbered("free", "free", e.free, read_free);
  if (reader.has("calibrations")) reader.numbered("calibrations", "calibrations", e.calibrations, read_calibration);
  reader.numbered("runs", "runs", e.runs, read_run);
  reader.numbered("cells", "cells", e.cells, read_cell);
  reader.numbered("orders", "orders", e.orders, read_order);
  reader.finish();
  check(e, file);
  return e;
}

std::vector<std::string> experiment_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_path("hardware/experiments")))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

Experiment load_experiment(const std::string& name) {
  const auto names = experiment_names();
  if (std::ranges::find(names, name) == names.end())
    throw_input_error("There is no experiment '{}'. There are {}.", name, fmt::join(names, ", "));
  const std::filesystem::path file = data_path("hardware/experiments") / (name + ".json");
  return parse_experiment(read_file(file), file.string());
}

}  // namespace tandem::eval
