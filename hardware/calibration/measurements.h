// What `tandem calibrate` reads: the JSON of tandem-probe, and that of `tandem bench kernels --out`. Both are read as
// files, never linked, so that the machine that was measured needs neither engine nor network.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tandem::hardware {

/// One figure of a probe: the median of `repeats`, and percentiles of the same repeats.
struct ProbeFigure {
  std::string name, unit;
  double value = 0, p10 = 0, p90 = 0;
  int repeats = 0;
  nlohmann::ordered_json conditions;  // {"threads": 2, "pattern": "random", ...}
};

struct ProbeReport {
  std::string file;
  std::string started_utc, machine;                 // "2026-11-20T23:24:00Z", "AMD EPYC (Zen 5), 2 vCPU"
  std::string cpu, gpu;                             // models; gpu is empty where none was measured
  std::string gpu_absent_because;                   // a sentence; empty where there is a gpu
  std::string isa;                                  // "avx512_bf16"
  unsigned threads = 0;                             // that the process could use
  double cpu_cache_bytes = 0, gpu_cache_bytes = 0;  // of the last level; 0: not known
  double gpu_memory_bytes = 0;                      // 0: not known
  double host_memory_bytes = 0;                     // that the process could use; 0: not known
  double gpu_bus_bits = 0, gpu_memory_khz = 0;
  std::vector<std::string> problems;  // of sections that failed or were cut short, a sentence each
  std::vector<ProbeFigure> figures;

  using Condition = std::pair<const char*, nlohmann::ordered_json>;
  /// Figures of a name whose conditions include these, in the file's order.
  std::vector<const ProbeFigure*> all(const std::string& name, std::initializer_list<Condition> conditions = {}) const;
  /// The first of them; nullptr where there is none.
  const ProbeFigure* find(const std::string& name, std::initializer_list<Condition> conditions = {}) const;
};

/// Throws InputError naming file and field.
ProbeReport read_probe(const std::filesystem::path& file);

/// Adds figures and problems of another run on the same machine, whose sections are others. InputError where a figure
/// is in both, or the machines differ.
void add_probe(ProbeReport& report, const ProbeReport& more);

struct KernelReport {
  std::string file;
  bool cuda = false;
  std::string machine;   // "NVIDIA H200"
  unsigned threads = 0;  // of the CPU's kernels; 0 on a GPU
  struct Row {
    std::string kernel;
    double us = 0, bytes = 0;
    bool disturbed = false;  // a neighbour was busy
  };
  std::vector<Row> rows;  // those that were measured

  /// Of a kernel's shapes, without rows that were disturbed.
  double most_bytes(const std::string& kernel) const;
  /// Runs come one behind the other: of less than so many caches a good part is still there from the one before.
  static constexpr double kCachesRead = 4;
  /// 10^9 bytes per second of a kernel, its shapes together: without rows that were disturbed, and of at least
  /// kCachesRead times `cache` bytes where there are such, else of at least `cache`. 0 where nothing is left.
  double gbps(const std::string& kernel, double cache) const;
};

/// Throws InputError naming file and field.
KernelReport read_kernels(const std::filesystem::path& file);

}  // namespace tandem::hardware
