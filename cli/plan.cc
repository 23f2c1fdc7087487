// tandem plan: bytes of KV, requests that fit, and what the link can bring back.
#include "eval/predict/plan.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/machines.h"
#include "cli/output.h"
#include "engine/model/model.h"
#include "eval/predict/prediction.h"
#include "eval/run/option_values.h"

namespace tandem::cli {
namespace {

constexpr const char* kPlanFooter = R"(
Examples:
  tandem plan                                            llama-3.1-8b on an A100 with 80 GB
  tandem plan --as llama-3.1-70b --hw h200 --context 32K,128K --batch 1,8
  tandem plan --as ./my-model --hw mine.json --kv-bits 8 --block 256 --step-ms 40
  tandem plan --as qwen3-32b --hw all --context 32K --batch 1       which machines hold how much
  tandem plan --as qwen3-32b --memory 192GB --host-memory 512GB --link-gbps 55       a machine that has no profile

Arithmetic alone: bytes per token, block and request, requests that a memory holds, what is left for host memory, and
how much of it the link brings back within a step. Device memory is the profile's without the weights and 5 % for
activations; host memory is the profile's without 5 %, where it has one. --memory, --host-memory and --link-gbps take
the place of the profile's figures; with --memory alone host memory is not known. What methods do with it, and how
long their steps take: `tandem simulate`.)";

struct PlanArguments {
  std::string as = "llama-3.1-8b", hardware = "fluxion-a100", contexts = "8K,32K,128K", batches = "1,8,32";
  std::string memory, host_memory;
  eval::PlanOptions options;
  std::optional<double> link_gbps;
  OutFile out;
};

void plan(PlanArguments& a) {
  eval::PlanOptions& options = a.options;
  eval::check_precision(options.precision);
  options.contexts = eval::parse_lengths(a.contexts, "--context");
  options.batches = parse_batches(a.batches, 1'000'000);
  eval::check_range("--block", options.block_tokens, 1, 65536, " tokens");
  expect(options.step_ms > 0 && options.step_ms <= 1e7, "--step-ms", options.step_ms, "a time above 0, up to 10^7 ms");
  if (a.link_gbps)
    expect(*a.link_gbps >= 1e-3 && *a.link_gbps <= 1e6, "--link-gbps", *a.link_gbps,
           "10^9 bytes per second, from 0.001 to 10^6");
  a.out.check({".md", ".json"});

  const Model shape = load_shape(a.as);
  std::vector<HardwareProfile> machines = load_profiles(a.hardware, "--hw");
  HardwareProfile& hardware = machines.front();
  std::vector<std::string> others;
  if (!a.memory.empty()) {
    hardware.device.memory_gb = parse_memory_gb(a.memory, "--memory");
    hardware.host.memory_gb = 0;  // another machine's
    others.push_back(fmt::format("{:.4g} GB of device memory", hardware.device.memory_gb));
  }
  if (!a.host_memory.empty()) {
    hardware.host.memory_gb = parse_memory_gb(a.host_memory, "--host-memory");
    others.push_back(fmt::format("{:.4g} GB of host memory", hardware.host.memory_gb));
  }
  if (a.link_gbps) {
    hardware.link.h2d_curve.back().gbps = *a.link_gbps;
    others.push_back(fmt::format("a link of {:.4g} GB/s", *a.link_gbps));
  }
  if (!others.empty()) {
    if (machines.size() > 1)
      throw_input_error(
          "--memory, --host-memory and --link-gbps change one machine, and --hw names {}: give one, or a JSON file of "
          "each.",
          machines.size());
    hardware.title += fmt::format(", with {}", fmt::join(others, " and "));
  }
  std::vector<eval::PlanMemory> memories;
  memories.reserve(machines.size());
  for (const HardwareProfile& m : machines)
    memories.push_back({m.name, m.title, eval::device_kv_room(shape, m, options.precision), eval::host_kv_room(m),
                        m.link.h2d_curve.back().gbps * 1e9});
  a.out.show(eval::make_plan(shape, memories, options), eval::plan_text, eval::plan_json);
}

}  // namespace

void add_plan(Command app) {
  Command command =
      app.subcommand("plan", "What a model's KV takes: requests that fit, blocks to offload, link time", kPlanFooter);
  auto a = std::make_shared<PlanArguments>();
  command.option("--as", a->as, "The model's shape: a preset of `tandem info`, or a model folder");
  command.option("--hw", a->hardware, "Machines, with commas: profiles' names or JSON files; all: every shipped one");
  command.option("--context", a->contexts, "Tokens of a request, with commas: 8K,32K");
  command.option("--batch", a->batches, "Requests at a time, with commas");
  command.option("--block", a->options.block_tokens, "Tokens of a block");
  add_precision(command, a->options.precision);
  command.option("--step-ms", a->options.step_ms, "A decode step, in which blocks can be brought back");
  command.option("--memory", a->memory, "Device memory in place of the profile's, in GB: 80, or 80G (2^30)");
  command.option("--host-memory", a->host_memory, "Host memory in place of the profile's, in GB: 64, or 64G (2^30)");
  command.option("--link-gbps", a->link_gbps, "Rate of the link in place of the profile's at its largest pieces");
  a->out.add_to(command, "Also write the result to this file, Markdown or (.json) JSON");
  command.callback([a] { plan(*a); });
}

}  // namespace tandem::cli
