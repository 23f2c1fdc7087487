// A profile with round numbers, so that times can be computed by hand: 1 GB/s is 1 byte per ns.
#pragma once

#include "engine/device/profile.h"

namespace tandem {

inline HardwareProfile round_profile() {
  HardwareProfile p;
  p.name = "round";
  p.title = "round numbers";
  p.device = {.memory_gb = 1,
              .hbm_gbps = 1000,
              .stream_efficiency = 1,
              .attention_efficiency = 0.5,
              .select_efficiency = 0.25,
              .gemm_tflops = 1,
              .launch_ns = 100,
              .segment_launch_ns = 500,
              .op_floor_ns = 20};
  p.link = {.h2d_curve = {{1, 10}}, .d2h_curve = {{1, 10}}, .h2d_gather_curve = {}, .piece_ns = 0};
  p.host = {.threads = 10,
            .dram_gbps = 100,
            .attention_gbps_per_thread = 20,
            .attention_efficiency = 0.5,
            .select_gbps_per_thread = 5,
            .stream_gbps_per_thread = 20,
            .gflops_per_thread = 10};
  p.handoff = {.device_to_host_ns = 30, .host_to_device_ns = 40};
  p.control = {.submit_ns = 10, .policy_ns = 5};
  return p;
}

}  // namespace tandem
