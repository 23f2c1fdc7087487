#include "eval/predict/precision.h"

#include <cmath>
#include <fmt/core.h>
#include <utility>

#include "engine/common/error.h"

namespace tandem::eval {
namespace {

/// A rate with its range.
void scale(HardwareProfile& machine, const char* field, double& rate, double factor) {
  rate *= factor;
  const auto range = machine.ranges.find(field);
  if (range == machine.ranges.end()) return;
  range->second.low *= factor;
  range->second.high *= factor;
}

/// A piece of so many bytes in bf16 is `factor` times smaller and takes the time of that size.
void scale(std::vector<LinkPoint>& curve, double factor) {
  for (LinkPoint& point : curve) {
    point.piece_bytes = static_cast<std::uint64_t>(std::llround(double(point.piece_bytes) * factor));
    point.gbps *= factor;
  }
}

}  // namespace

void check_precision(const Precision& precision) {
  for (const auto& [option, bits] :
       {std::pair{"--weight-bits", precision.weight_bits}, std::pair{"--kv-bits", precision.kv_bits}})
    if (bits != 16 && bits != 8 && bits != 4)
      throw_input_error("{} is {}: give 16 (bf16), 8 or 4 bits of a number.", option, bits);
}

std::string bits_text(std::uint32_t bits) {
  return bits == 16 ? "bf16" : fmt::format("{} bits", bits);
}

std::string precision_text(const Precision& p) {
  if (p.weight_bits == p.kv_bits) return "weights and KV in " + bits_text(p.kv_bits);
  return fmt::format("weights in {} and KV in {}", bits_text(p.weight_bits), bits_text(p.kv_bits));
}

HardwareProfile at_precision(HardwareProfile machine, const Precision& precision) {
  if (precision == Precision{}) return machine;
  if (machine.device.cpu_threads != 0)
    throw_input_error("'{}' is a CPU that plays the device: only 16 bits are known for it.", machine.name);
  auto& device = machine.device;
  if (device.weights_efficiency == 0) {
    device.weights_efficiency = device.stream_efficiency;
    if (const auto range = machine.ranges.find("device.stream_efficiency"); range != machine.ranges.end())
      machine.ranges["device.weights_efficiency"] = range->second;
  }
  scale(machine, "device.weights_efficiency", device.weights_efficiency, 16.0 / precision.weight_bits);
  const double kv = 16.0 / precision.kv_bits;
  scale(machine, "device.attention_efficiency", device.attention_efficiency, kv);
  scale(machine, "host.dram_gbps", machine.host.dram_gbps, kv);
  scale(machine, "host.select_efficiency", machine.host.select_efficiency, 1 / kv);
  for (auto* curve : {&machine.link.h2d_curve, &machine.link.d2h_curve, &machine.link.h2d_gather_curve})
    scale(*curve, kv);
  return machine;
}

}  // namespace tandem::eval
