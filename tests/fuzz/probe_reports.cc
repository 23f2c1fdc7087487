// Measurements that commands read: the two reports of `tandem calibrate` and the points of `tandem validate`.
#include "eval/kernels/bench.h"
#include "eval/validate/validation.h"
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
  const auto predict = [](const std::string& input) {
    eval::Predictor predictor;
    for (const eval::MeasuredPoint& point : eval::parse_points(input, "points.json")) predictor.compare(point);
  };
  const std::string points = R"({"points": [
    {"id": "a", "kind": "decode_attention_kernel", "hardware": "NVIDIA H200", "engine": "vllm-0.24.0", "precision": "bf16",
     "model_shape": "32 query heads, 8 KV heads, head_dim 128", "batch": 8, "context": 4096, "gpus": 1, "value": 0.5,
     "unit": "ms per layer", "source": "a page"},
    {"id": "b", "kind": "gemm_kernel", "hardware": "NVIDIA A40", "model_shape": "N=4096 K=16384", "batch": 1,
     "value": 97, "unit": "us", "source": "a page"},
    {"id": "c", "kind": "h2d_transfer", "hardware": "PCIe 5", "submission": "zero_copy", "transfer_bytes": 4096,
     "descriptors": 512, "value": 30, "unit": "GB/s", "source": "a page"},
    {"id": "d", "kind": "prefill_attention_kernel", "hardware": "NVIDIA H100", "model_shape": "32/8 heads, d 128",
                    "tokens" : 512, "prefix_tokens" : 100, "value" : 3, "unit" : "ms", "source" : "a page"
},
    {"id": "e", "kind": "serving_end_to_end", "hardware": "NVIDIA L40S", "model": "Llama-3.1-8B", "batch": 2,
     "context": "0 -> 512 while generating", "value": 40, "unit": "tok/s", "source": "a page"}]
})";
  return fuzz::run(argc, argv,
                   {{"probe", {probe::to_json(machine.report)}, with(hardware::read_probe)},
                    {"kernels", {eval::kernel_bench_json(bench)}, with(hardware::read_kernels)},
                    {"points", {points}, predict}});
}

}  // namespace tandem::fuzz
