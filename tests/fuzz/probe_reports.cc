// The two reports that `tandem calibrate` reads: of the probe and of `bench kernels`.
#include "eval/kernels/bench.h"
#include "hardware/calibration/measurements.h"
#include "tests/fuzz/fuzz.h"
#include "tests/hardware/calibration/machine.h"

namespace tandem::fuzz {

int fuzz_probe_reports(int argc, char** argv) {
  hardware::ProbedMachine machine;
  machine.add("dram", "dram_read", "GB/s", 70, {{"threads", 16}});
  machine.add_link("dma", "h2d", {}, {512, 4096}, {1, 64});
  eval::KernelBench bench;
  bench.machine = "made up";
  bench.threads = 2;
  const fuzz::ScratchFolder folder;
  const std::string file = folder.path() + "/report.json";
  const auto with = [&](const auto& read) {
    return [&folder, &file, read](const std::string& input) {
      folder.write("report.json", input);
      read(file);
    };
  };
  return fuzz::run(argc, argv,
                   {{"probe", {probe::to_json(machine.report)}, with(hardware::read_probe)},
                    {"kernels", {eval::kernel_bench_json(bench)}, with(hardware::read_kernels)}});
}

}  // namespace tandem::fuzz
