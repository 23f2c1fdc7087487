// A hardware profile from what was measured on a machine: tandem-probe's figures, and where they are given the rates of
// the engine's own kernels. Only micro-benchmarks go in, never the comparison that the profile will predict.
#pragma once

#include <string>
#include <vector>

#include "engine/device/profile.h"
#include "hardware/calibration/measurements.h"

namespace tandem::hardware {

struct CalibrationOptions {
  std::string name;           // of the new profile
  std::string title;          // empty: from the passport
  unsigned host_threads = 0;  // for host workers; 0: all that the probe could use but one, for the control thread
  bool graphs = false;        // launches of an engine that captures a layer as graphs, which this one does not
};

/// Where one field of the new profile comes from.
struct CalibratedField {
  std::string field;        // "host.dram_gbps"
  std::string base, value;  // as text, with at most four digits
  std::string from;         // "measured", "asked for", or the base's name
  double spread = -1;       // (p90 - p10) / median of the figure behind it; below 0: not known
};

struct CalibratedProfile {
  HardwareProfile profile;              // complete; each source says "measured: ..." or "assumed: as <base> ..."
  std::vector<CalibratedField> fields;  // in the profile's order
  std::vector<std::string> warnings;    // sentences
};

/// What was not measured is `base`'s, and its source says so. A framework's time per layer (device.layer_ns) is none of
/// the machine's and is left out. Of several ways that were measured this engine's counts: copies of many pieces by one
/// call, pieces that a kernel reads from host memory itself, signals by values that streams write and wait for, and,
/// without `graphs`, a launch for every kernel. Of the kernels' reports count: on the GPU decode_attention and
/// score_blocks; on the CPU these and contiguous_attention, for a rate per thread of a report of one thread, for a
/// share of the memory's bandwidth of one of all threads. Host attention that no report has is the probe's loop. Throws
/// InputError where nothing was measured, for more threads than the probe had, or where the figures make no profile.
CalibratedProfile calibrate(const ProbeReport& probe, const std::vector<KernelReport>& kernels,
                            const HardwareProfile& base, const CalibrationOptions& options);

struct LinkCurve {
  std::vector<LinkPoint> points;  // empty where no figure is there
  double once_us = 0;             // what a transfer takes beside its pieces, of the shortest ones
};

/// Bandwidth by size of piece, in one direction ("h2d") and one way ("dma_batch"). The time of a piece is what one more
/// piece costs: the difference between the two largest numbers of pieces, so that what every transfer pays once is not
/// in it; no less than its bytes take at the best rate of any transfer (2 % above it). Noise in which a longer piece
/// takes less time is taken out of the shorter one. InputError for figures without size and number.
LinkCurve link_curve(const ProbeReport& probe, const std::string& direction, const std::string& method);

/// The table of fields, and the warnings, for a terminal.
std::string calibration_text(const CalibratedProfile& result, const std::string& base);

}  // namespace tandem::hardware
