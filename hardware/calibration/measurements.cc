#include "hardware/calibration/measurements.h"

#include <algorithm>
#include <fmt/core.h>

#include "engine/common/error.h"
#include "engine/common/read_file.h"
#include "eval/report/json_fields.h"

namespace tandem::hardware {
namespace {

using eval::ObjectReader;
using Json = nlohmann::ordered_json;

constexpr double kMost = 1e15;

Json read_object(const std::filesystem::path& file, const char* option, const char* wanted) {
  const std::string what = fmt::format("{} (what {} writes): the file {}", option, wanted, file.string());
  return eval::parse_object(read_file(file, kMostOfAFile, what), file.string());
}

// Counts of a passport are there only where the driver knew them.
double optional_count(ObjectReader& reader, const char* name) {
  return reader.has(name) ? reader.number(name, 0, kMost) : 0;
}

ProbeFigure read_figure(const Json& json, const std::string& where) {
  ObjectReader reader(json, where);
  ProbeFigure figure;
  figure.name = reader.text("name", false);
  ObjectReader named(json, fmt::format("{}, figure '{}'", where, figure.name));
  figure.unit = named.text("unit", false);
  // The probe writes null for what is no number.
  figure.value = named.number("value", -kMost, kMost);
  figure.p10 = named.number("p10", -kMost, kMost);
  figure.p90 = named.number("p90", -kMost, kMost);
  figure.repeats = named.integer<int>("repeats");
  figure.conditions = named.object("conditions");
  return figure;
}

bool meets(const ProbeFigure& figure, std::initializer_list<ProbeReport::Condition> conditions) {
  return std::all_of(conditions.begin(), conditions.end(), [&](const ProbeReport::Condition& wanted) {
    const auto found = figure.conditions.find(wanted.first);
    return found != figure.conditions.end() && *found == wanted.second;
  });
}

void read_machine(const Json& json, ProbeReport& report) {
  ObjectReader machine(json, report.file + ", machine");
  report.machine = machine.text("name", false);
  ObjectReader cpu(machine.object("cpu"), report.file + ", machine.cpu");
  report.cpu = cpu.text("model");
  report.isa = cpu.text("isa");
  report.threads = cpu.integer<unsigned>("threads_used");
  if (report.threads == 0) cpu.fail("threads_used", "1 or more");
  report.cpu_cache_bytes = optional_count(cpu, "last_level_cache_bytes");
  if (machine.has("memory")) {
    ObjectReader memory(machine.object("memory"), report.file + ", machine.memory");
    report.host_memory_bytes = optional_count(memory, "total_bytes");
    const double limit = optional_count(memory, "cgroup_limit_bytes");
    const bool is_known = report.host_memory_bytes > 0;
    if (limit > 0) report.host_memory_bytes = is_known ? std::min(report.host_memory_bytes, limit) : limit;
  }
  if (machine.has("gpu") && json.at("gpu").is_object()) {
    ObjectReader gpu(json.at("gpu"), report.file + ", machine.gpu");
    report.gpu = gpu.text("name", false);
    report.gpu_memory_bytes = optional_count(gpu, "memory_bytes");
    report.gpu_cache_bytes = optional_count(gpu, "l2_bytes");
    report.gpu_bus_bits = optional_count(gpu, "memory_bus_bits");
    report.gpu_memory_khz = optional_count(gpu, "memory_clock_peak_khz");
  } else {
    report.gpu_absent_because = machine.has("gpu_absent_because") ? machine.text("gpu_absent_because") : "";
  }
}

}  // namespace

std::vector<const ProbeFigure*> ProbeReport::all(const std::string& name,
                                                 std::initializer_list<Condition> conditions) const {
  std::vector<const ProbeFigure*> found;
  for (const ProbeFigure& figure : figures)
    if (figure.name == name && meets(figure, conditions)) found.push_back(&figure);
  return found;
}

const ProbeFigure* ProbeReport::find(const std::string& name, std::initializer_list<Condition> conditions) const {
  const auto found = all(name, conditions);
  return found.empty() ? nullptr : found.front();
}

ProbeReport read_probe(const std::filesystem::path& file) {
  const Json json = read_object(file, "--probe", "`tandem-probe --out FILE`");
  ProbeReport report;
  report.file = file.string();
  ObjectReader reader(json, report.file);
  if (!reader.has("program") || reader.text("program") != "tandem-probe")
    throw_input_error("{}: this is not what tandem-probe writes (its field 'program' says so).", report.file);
  if (const int version = reader.integer<int>("schema_version"); version != 1)
    throw_input_error("{}: its schema_version is {}; this program reads 1. Measure again with the probe beside it.",
                      report.file, version);
  report.started_utc = reader.text("started_utc");
  read_machine(reader.object("machine"), report);
  for (const auto& [name, section] : reader.object("sections").items()) {
    const std::string where = fmt::format("{}, section '{}'", report.file, name);
    ObjectReader part(section, where);
    const std::string status = part.text("status", false);
    if (status == "failed")
      report.problems.push_back(
          fmt::format("The section '{}' failed: {}", name, part.has("error") ? part.text("error") : ""));
    if (status == "partial")
      report.problems.push_back(fmt::format("The section '{}' left out {} figures (named in its 'skipped').", name,
                                            part.array("skipped").size()));
    for (const Json& figure : part.array("figures")) report.figures.push_back(read_figure(figure, where));
  }
  return report;
}

void add_probe(ProbeReport& report, const ProbeReport& more) {
  if (report.cpu != more.cpu || report.threads != more.threads)
    throw_input_error("{} was measured on {} with {} threads, {} on {} with {}: a profile is of one machine.",
                      report.file, report.cpu, report.threads, more.file, more.cpu, more.threads);
  if (report.gpu != more.gpu)
    throw_input_error("{} was measured with the GPU '{}', {} with '{}': a profile is of one machine.", report.file,
                      report.gpu, more.file, more.gpu);
  for (const ProbeFigure& figure : more.figures)
    if (report.find(figure.name) != nullptr)
      throw_input_error("{} and {} both have the figure '{}': give reports of different sections.", report.file,
                        more.file, figure.name);
  report.figures.insert(report.figures.end(), more.figures.begin(), more.figures.end());
  report.problems.insert(report.problems.end(), more.problems.begin(), more.problems.end());
}

double KernelReport::most_bytes(const std::string& kernel) const {
  double most = 0;
  for (const Row& row : rows)
    if (row.kernel == kernel && !row.disturbed) most = std::max(most, row.bytes);
  return most;
}

double KernelReport::gbps(const std::string& kernel, double cache) const {
  const bool enough = most_bytes(kernel) >= kCachesRead * cache;
  double bytes = 0, us = 0;
  for (const Row& row : rows) {
    if (row.kernel != kernel || row.disturbed || row.bytes < (enough ? kCachesRead * cache : cache)) continue;
    bytes += row.bytes;
    us += row.us;
  }
  return us > 0 ? bytes / us * 1e-3 : 0;
}

KernelReport read_kernels(const std::filesystem::path& file) {
  const Json json = read_object(file, "--kernels", "`tandem bench kernels --out FILE`");
  KernelReport report;
  report.file = file.string();
  ObjectReader reader(json, report.file);
  if (!reader.has("measured_on"))
    throw_input_error("{}: this is not what `tandem bench kernels --out` writes: the field 'measured_on' is missing.",
                      report.file);
  report.machine = reader.text("measured_on", false);
  const std::string device = reader.text("device");
  if (device != "cpu" && device != "cuda") reader.fail("device", "cpu or cuda");
  report.cuda = device == "cuda";
  if (!report.cuda) {
    report.threads = reader.integer<unsigned>("threads");
    if (report.threads == 0) reader.fail("threads", "1 or more");
  }
  for (const Json& item : reader.array("kernels")) {
    ObjectReader row(item, report.file + ", kernels");
    if (row.has("error")) continue;
    KernelReport::Row read;
    read.kernel = row.text("kernel", false);
    read.us = row.number("us", 1e-6, kMost);
    read.bytes = row.number("bytes", 0, kMost);
    read.disturbed = row.has("disturbed");
    report.rows.push_back(std::move(read));
  }
  return report;
}

}  // namespace tandem::hardware
