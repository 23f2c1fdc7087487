// A machine whose rates are known exactly, and the report a probe of it would write: with the probe's own writer, so
// that what is read is what is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "hardware/calibration/calibration.h"
#include "hardware/probe/json_out.h"
#include "hardware/probe/probe.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::hardware {

using probe::Fields;

/// What a transfer of `pieces` pieces takes: something once, and something per piece and byte.
struct LinkOf {
  double once = 5e-6, piece = 20e-9, byte = 1 / 50e9;  // seconds
  double seconds(double pieces, double bytes) const { return once + pieces * (piece + bytes * byte); }
  double gbps(double pieces, double bytes) const { return pieces * bytes / seconds(pieces, bytes) * 1e-9; }
};

class ProbedMachine {
 public:
  ProbedMachine() {
    report.started_utc = "2026-01-02T03:04:05Z";
    report.machine = {{"name", "the test's machine"}};
    report.cpu = {{"model", "Test CPU"}, {"isa", "avx2"}, {"threads_used", 16}};
    report.gpu = {{"name", "Test GPU"},
                  {"memory_bytes", std::int64_t{80'000'000'000}},
                  {"memory_bus_bits", 5120},
                  {"memory_clock_peak_khz", 1'593'000}};
    for (const char* name : {"dram", "cpu_attention", "bandwidth", "gemm", "launch", "link", "handoff"}) {
      report.sections.emplace_back();
      report.sections.back().name = name;
    }
  }

  /// Adds a figure that varied by `spread` of its value between p10 and p90.
  void add(const std::string& section, const std::string& name, const std::string& unit, double value,
           const Fields& conditions, double spread = 0.02) {
    probe::Figure figure;
    figure.name = name;
    figure.unit = unit;
    figure.value = value;
    figure.p10 = value * (1 - spread / 2);
    figure.p90 = value * (1 + spread / 2);
    figure.repeats = 9;
    figure.conditions = conditions;
    at(section).figures.push_back(figure);
  }
  void add_link(const std::string& method, const std::string& direction, const LinkOf& link,
                const std::vector<std::size_t>& sizes, const std::vector<std::size_t>& counts,
                const std::string& beside = "nothing") {
    for (const std::size_t bytes : sizes)
      for (const std::size_t pieces : counts)
        add("link", "link", "GB/s", link.gbps(double(pieces), double(bytes)),
            {{"method", method},
             {"direction", direction},
             {"piece_bytes", bytes},
             {"pieces", pieces},
             {"beside", beside}});
  }

  probe::Section& at(const std::string& name) {
    for (probe::Section& section : report.sections)
      if (section.name == name) return section;
    report.sections.emplace_back().name = name;
    return report.sections.back();
  }

  /// What `calibrate` would read of it.
  ProbeReport read() const {
    const testing::TemporaryFolder folder;
    const std::filesystem::path file = folder.path() / "probe.json";
    std::ofstream(file) << probe::to_json(report);
    return read_probe(file);
  }

  probe::Report report;
};

}  // namespace tandem::hardware
