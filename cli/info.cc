// tandem info: this build, this machine, the hardware profiles that can be simulated, and a model's shape. Also the
// example of a subcommand: options with defaults, a footer with an example and what the output means, a callback that
// throws.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"
#include "engine/common/cgroup.h"
#include "engine/common/error.h"
#include "engine/common/huge_memory.h"
#include "engine/common/json.h"
#include "engine/common/version.h"
#include "engine/device/cuda/runtime.h"
#include "engine/device/profile.h"
#include "engine/kernels/blas.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/kv_store.h"
#include "engine/model/model.h"
#include "engine/model/presets.h"
#include "eval/predict/plan.h"
#include "eval/report/schema.h"
#include "eval/report/table.h"

namespace tandem::cli {
namespace {

constexpr const char* kInfoFooter = R"(
Examples:
  tandem info                      this build, this machine, all profiles, the embedded model
  tandem info --hw fluxion-a100    every number of one profile, and where it comes from
  tandem info --model ~/llama      the shape of a model in a Hugging Face folder
  tandem info --hw h100 --json     a profile to change and to give to --hw, as a file

"KV per token" is what one token of context adds to the cache over all layers, in the type that the weights have, as
`--precision auto` keeps it; times the length it is what a method must keep somewhere.)";

struct InfoOptions {
  std::string model;
  std::string hardware;
  bool json = false;
};

std::string bytes_text(double bytes) {
  const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} {}", bytes, units[unit]) : fmt::format("{:.4g} {}", bytes, units[unit]);
}

void row(const std::string& name, const std::string& value) {
  print("  {:<14} {}\n", name, hanging(value, 17));
}

void print_build() {
  print("{}\n", program_text());
  row("build", build_description());
  row("CUDA parts", built_with_cuda() ? "yes" : "no (the cuda preset compiles them)");
  row("CPU kernels", fmt::format("{} (TANDEM_ISA chooses another)", to_string(active_isa())));
  row("OpenBLAS", blas_kernels().empty()
                      ? "not installed, and InfiniGen needs it (Debian and Ubuntu: libopenblas0-pthread)"
                      : blas_kernels() + " (OPENBLAS_CORETYPE chooses other kernels)");
}

void print_machine() {
  const eval::Machine machine = eval::this_machine();
  const double quota = cgroup_cpus();
  print("\nmachine\n");
  row("CPU", machine.cpu_model);
  row("cores", fmt::format("{}, {} usable here; CPU quota: {}", machine.cores, usable_threads(),
                           std::isfinite(quota) ? fmt::format("{:g}", quota) : "none"));
  row("memory", fmt::format("{}, {} available", bytes_text(static_cast<double>(machine.memory_bytes)),
                            bytes_text(static_cast<double>(available_memory()))));
  if (!cuda_missing().empty()) {
    row("GPU", cuda_missing());
    return;
  }
  const CudaDevice& gpu = cuda_device();
  row("GPU", fmt::format("{}, {}, compute capability {}.{}, {} multiprocessors, driver for CUDA {}.{}", gpu.name,
                         bytes_text(static_cast<double>(gpu.memory_bytes)), gpu.major, gpu.minor, gpu.multiprocessors,
                         gpu.driver / 1000, gpu.driver % 1000 / 10));
}

void print_profiles() {
  print("\nhardware profiles (--hw; `tandem info --hw <name>` shows one)\n");
  for (const std::string& name : profile_names()) print("  {:<20} {}\n", name, hanging(load_profile(name).title, 23));
}

void print_presets() {
  print("\n{}\n",
        hanging("shapes of published models, and their KV in bf16 (--as of simulate and compare; `tandem info --model "
                "synthetic:<name>` shows one)",
                0));
  for (const std::string& name : preset_names()) {
    const ModelConfig config = preset_config(name);
    print("  {:<20} {:.3g} billion parameters, {} per token\n", name,
          static_cast<double>(parameter_count(config)) * 1e-9,
          bytes_text(double(eval::kv_bytes_per_token(config, DType::bf16))));
  }
}

/// `stored`: the weights' type, in which KV is kept too where --precision does not say otherwise.
void print_shape(const std::string& name, const ModelConfig& config, DType stored) {
  const auto per_token = double(eval::kv_bytes_per_token(config, stored));
  print("\nmodel {}\n", name);
  row("architecture", config.architecture);
  row("parameters", fmt::format("{:.4g} million", static_cast<double>(parameter_count(config)) * 1e-6));
  row("shape", fmt::format("{}, hidden {}, MLP {}, {} query heads over {} KV heads of {}, vocabulary {}",
                           eval::counted(config.layers, "layer"), config.hidden, config.intermediate, config.q_heads,
                           config.kv_heads, config.head_dim, config.vocab));
  row("positions", fmt::format("{}", config.max_positions));
  row("KV per token",
      fmt::format("{} ({}); {} for 4K tokens, {} for all positions", bytes_text(per_token), to_string(stored),
                  bytes_text(per_token * 4096), bytes_text(per_token * config.max_positions)));
}

void print_model(const std::string& name) {
  if (name.starts_with(kSyntheticPrefix)) {  // the shape is all there is to say, without making gigabytes of weights
    print_shape(name, preset_config(name.substr(kSyntheticPrefix.size())), DType::bf16);
    row("weights", "random, bf16");
    return;
  }
  const Model model = load_model(name, true, place_of_weights("auto", /*quiet=*/false));
  print_shape(model.name, model.config, model.weights.layers.at(0).q.type);
  if (const std::string dropped = model.tokenizer->dropped_bytes(); !dropped.empty()) {
    std::string list;
    for (const char byte : dropped.substr(0, 4))
      list += fmt::format("{}0x{:02x}", list.empty() ? "" : ", ", static_cast<unsigned char>(byte));
    row("tokenizer", fmt::format("has no token for {} ({}{}): texts lose {}", eval::counted(dropped.size(), "byte"),
                                 list, dropped.size() > 4 ? ", ..." : "", dropped.size() == 1 ? "it" : "them"));
  }
  const double bytes = double(model.weights.bytes());
  row("weights", model.weights.mapped ? fmt::format("{}, in their files", bytes_text(bytes))
                                      : fmt::format("{}, copied, {:.0f} % in huge pages", bytes_text(bytes),
                                                    100 * std::min(1.0, double(bytes_in_huge_pages()) / bytes)));
  row("weights hash", model.weights_hash);
}

nlohmann::ordered_json build_json() {
  return {{"version", version()},           {"git_commit", git_commit()},
          {"build", build_description()},   {"cuda_parts", built_with_cuda()},
          {"isa", to_string(active_isa())}, {"openblas", blas_kernels()}};
}

nlohmann::ordered_json machine_json() {
  const eval::Machine machine = eval::this_machine();
  const double quota = cgroup_cpus();
  nlohmann::ordered_json json = {{"cpu_model", machine.cpu_model},
                                 {"cores", machine.cores},
                                 {"usable_threads", usable_threads()},
                                 {"cpu_quota", std::isfinite(quota) ? nlohmann::ordered_json(quota) : nullptr},
                                 {"memory_bytes", machine.memory_bytes},
                                 {"available_bytes", available_memory()},
                                 {"gpu", nullptr}};
  if (cuda_missing().empty()) {
    const CudaDevice& gpu = cuda_device();
    json["gpu"] = {{"name", gpu.name},
                   {"memory_bytes", gpu.memory_bytes},
                   {"compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor)},
                   {"multiprocessors", gpu.multiprocessors},
                   {"driver", gpu.driver}};
  }
  return json;
}

nlohmann::ordered_json shape_json(const std::string& name, const ModelConfig& c, DType stored) {
  return {{"name", name},
          {"architecture", c.architecture},
          {"parameters", parameter_count(c)},
          {"layers", c.layers},
          {"hidden", c.hidden},
          {"intermediate", c.intermediate},
          {"query_heads", c.q_heads},
          {"kv_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"vocabulary", c.vocab},
          {"positions", c.max_positions},
          {"precision", to_string(stored)},
          {"kv_bytes_per_token", eval::kv_bytes_per_token(c, stored)}};
}

nlohmann::ordered_json model_json(const std::string& name) {
  if (name.starts_with(kSyntheticPrefix))
    return shape_json(name, preset_config(name.substr(kSyntheticPrefix.size())), DType::bf16);
  const Model model = load_model(name, true, place_of_weights("auto", /*quiet=*/false));
  nlohmann::ordered_json json = shape_json(model.name, model.config, model.weights.layers.at(0).q.type);
  json["weights_bytes"] = model.weights.bytes();
  json["weights_hash"] = model.weights_hash;
  return json;
}

/// The same as one JSON document: with --hw the profile's file, with --model the model's shape.
std::string info_json(const InfoOptions& options) {
  if (!options.hardware.empty() && !options.model.empty())
    throw_input_error("--json prints one document: give --hw or --model.");
  if (!options.hardware.empty()) return profile_to_json(load_profile(options.hardware));
  if (!options.model.empty()) return json_text(model_json(options.model), 2) + "\n";
  nlohmann::ordered_json json = {{"build", build_json()},
                                 {"machine", machine_json()},
                                 {"profiles", nlohmann::ordered_json::array()},
                                 {"shapes", nlohmann::ordered_json::array()},
                                 {"model", model_json("embedded")}};
  for (const std::string& name : profile_names())
    json["profiles"].push_back({{"name", name}, {"title", load_profile(name).title}});
  for (const std::string& name : preset_names())
    json["shapes"].push_back(shape_json(name, preset_config(name), DType::bf16));
  return json_text(json, 2) + "\n";
}

void print_info(const InfoOptions& options) {
  if (options.json) {
    print("{}", info_json(options));
    return check_stdout();
  }
  if (!options.hardware.empty()) {
    const HardwareProfile profile = load_profile(options.hardware);
    print("{}: {}\n\n{}\n", profile.name, profile.title, profile_to_json(profile));
  }
  if (!options.model.empty()) print_model(options.model);
  if (!options.hardware.empty() || !options.model.empty()) return;
  print_build();
  print_machine();
  print_profiles();
  print_presets();
  print_model("embedded");
}

}  // namespace

void add_info(Command app) {
  Command command =
      app.subcommand("info", "This build, this machine, hardware profiles and a model's shape", kInfoFooter);
  auto options = std::make_shared<InfoOptions>();
  command.option("--model", options->model, std::string("Only this model. ") + kModelHelp);
  command.option("--hw", options->hardware, "Only this hardware profile: a name or a JSON file");
  command.flag("--json", options->json, json_help("the same, or of --hw the profile's file,"));
  command.callback([options] { print_info(*options); });
}

}  // namespace tandem::cli
