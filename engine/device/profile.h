// Hardware profiles: the rates and latencies from which `sim` computes durations. One JSON file per machine in
// hardware/profiles; every number in it names its source, and says "assumed: why" where nobody published it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/types.h"

namespace tandem {

/// Bandwidth of the link at one size of piece (a contiguous run of bytes of one transfer). Between two points a piece's
/// time is linear in its bytes, as of a latency and a bandwidth; outside it moves at the nearest point's rate. So give
/// a point for the shortest pieces that matter.
struct LinkPoint {
  std::uint64_t piece_bytes = 0;
  double gbps = 0;  // 10^9 bytes per second
};

/// Low and high of a number that was not measured on this machine. Of a curve: factors on all of its rates.
struct FieldRange {
  double low = 0, high = 0;
  std::string why;
};

struct HardwareProfile {
  std::string name;   // file name without .json
  std::string title;  // for column heads, e.g. "A100-80G PCIe 4, EPYC 7V13 24 cores"

  struct DeviceRates {
    double memory_gb = 0;             // 10^9 bytes
    double hbm_gbps = 0;              // datasheet bandwidth
    double stream_efficiency = 0;     // share of it that streaming kernels reach, in (0, 1]
    double weights_efficiency = 0;    // optional: share that products of a decode step reach; 0: as streaming kernels
    Nanos product_ns = 0;             // optional: fixed time of a matrix product, beside its bytes or FLOPs
    double attention_efficiency = 0;  // share that decode attention over pages reaches, of HBM and of FLOPs
    Nanos attention_ns = 0;           // optional: fixed time of an attention kernel: start, splits, their merge
    double select_efficiency = 0;     // share that digest scoring and top-k reach
    double gemm_tflops = 0;           // achieved bf16 rate of large matrix products
    double prefill_attention_tflops = 0;  // optional: the same of causal attention over a prompt; 0: as products
    Nanos launch_ns = 0;                  // control time of one kernel or copy launch
    Nanos segment_launch_ns = 0;          // control time of one graph launch; 0: no graphs, every kernel is launched
    Nanos op_floor_ns = 0;                // smallest duration of a kernel inside a segment
    Nanos layer_ns = 0;                   // optional: added to a decode layer by a slower framework than this engine
    // Optional: threads of a CPU that plays the device. Its compute lanes share them, one thread each; the host's
    // threads make the copies; all of it shares host.dram_gbps. 0: a GPU.
    std::uint32_t cpu_threads = 0;
  } device;

  struct LinkRates {
    std::vector<LinkPoint> h2d_curve, d2h_curve;  // ascending piece_bytes, and ns per piece
    // Optional: of pieces that a kernel reads from host memory itself (Cost::gathered). Empty: as h2d_curve.
    std::vector<LinkPoint> h2d_gather_curve;
    Nanos piece_ns = 0;     // added per piece, on top of the curve
    Nanos transfer_ns = 0;  // optional: added per transfer of copy engines
  } link;

  /// Another device like this one, for methods that use two. Optional: 0 GB/s is none.
  struct PeerRates {
    double gbps = 0;       // of the link between them, each way
    Nanos latency_ns = 0;  // of a message
  } peer;

  struct HostRates {
    double memory_gb = 0;                  // optional: 10^9 bytes; 0: not known, KV on the host always fits
    std::uint32_t threads = 0;             // for host worker lanes, the control thread not counted
    double dram_gbps = 0;                  // all threads together, shared with copies over the link
    double attention_gbps_per_thread = 0;  // partial attention over pages of 16 tokens, wherever they lie
    double attention_efficiency = 0;       // share of dram_gbps that it reaches with all threads
    // Optional: the same two over contiguous KV, behind the start of runs (Cost::contiguous). 0: as over pages.
    double attention_contiguous_gbps_per_thread = 0;
    double attention_contiguous_efficiency = 0;
    double select_efficiency = 1;       // optional: share of it that digest scoring reaches
    double select_gbps_per_thread = 0;  // digest scoring
    double stream_gbps_per_thread = 0;  // copies and other streaming work
    double gflops_per_thread = 0;       // achieved f32/bf16 rate of matrix products and attention
  } host;

  struct Handoff {
    Nanos device_to_host_ns = 0;  // device event seen by a host worker or by the control thread
    Nanos host_to_device_ns = 0;  // host worker's flag seen by a device lane
    Nanos stream_ns = 0;          // optional: end of one stream's operation seen by another stream of the device
  } handoff;

  struct ControlCosts {
    Nanos submit_ns = 0;     // control time of handing one operation to host workers
    Nanos policy_ns = 0;     // control time of one policy hook of a method, for whoever submits it as Work::fixed
    Nanos operation_ns = 0;  // optional: of one operation that is launched outside a graph, beside its launches
    Nanos layer_ns = 0;      // optional: of a decode layer, what an engine's own code takes beside all these
  } control;

  /// "device.hbm_gbps" -> where the number comes from. Every number has an entry.
  std::map<std::string, std::string> sources;
  /// "host.dram_gbps" -> what the number may be. Every assumed or fitted number of a shipped profile has an entry.
  std::map<std::string, FieldRange> ranges;
};

/// The profile with its number at `field` ("host.dram_gbps"), which it must have, moved to `end`, or `share` of the way
/// there on a log scale (evenly where `end` is 0). Of a curve, `end` is a factor.
HardwareProfile with_field(HardwareProfile profile, const std::string& field, double end, double share = 1);

/// `name_or_path`: one of profile_names(), or a path (with a '/', or ending in .json). InputError with the nearest
/// name, or with file, field and value where the content is wrong.
HardwareProfile load_profile(std::string_view name_or_path);

std::vector<std::string> profile_names();  // of those that ship, sorted

/// A GPU of hardware/devices: what its datasheet says, and how profiles and measurements name it.
struct DeviceFacts {
  std::string name;                   // file name without .json
  std::vector<std::string> hardware;  // names in texts: "H100 SXM 80GB"
  double l2_mb = 0;                   // 10^6 bytes; what fits may never be read from memory when it is timed in a loop
  std::string link;                   // of hardware/links: that of the machine whose host profile_of_device() takes
};

std::vector<DeviceFacts> device_facts();  // all of hardware/devices, sorted by name

/// A machine with this GPU of hardware/devices: host, link and hand-offs are those of the profile that its file names.
HardwareProfile profile_of_device(const std::string& device);

/// Reads one profile from JSON text; `file` is for error sentences. A group "device" or "link" that has the field "of"
/// takes what it does not say itself from that file of hardware/devices or hardware/links, sources and ranges included.
HardwareProfile parse_profile(std::string_view text, const std::string& name, const std::string& file);

/// The profile as JSON text that parse_profile reads back to the same numbers.
std::string profile_to_json(const HardwareProfile& profile);

}  // namespace tandem
