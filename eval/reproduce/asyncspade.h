// AsyncSpade's Table 2 and Figure 10 on the profiles of its testbeds: published beside simulated and beside the
// roofline, which is what memory bandwidth alone allows. Nothing is fitted, but for Table 2's second simulation: the
// published inference times are those of a framework, so there the inference rank's layers take a time that one cell
// per GPU sets, and the other cells are predicted.
#pragma once

#include <string>
#include <vector>

#include "eval/reproduce/reproduce.h"

namespace tandem::eval {

/// One row of Table 2. A pack is that many consecutive layers.
struct SpadePack {
  std::string model = {};  // shape preset
  std::uint32_t batch = 0, context = 0, selected = 0;
  std::string gpu = {};  // "a100" or "h100": profile asyncspade-<gpu>
  std::uint32_t layers = 0;
  double inference_ms = 0, management_ms = 0, bandwidth = 0;  // published; bandwidth in MiB per ms
};
const std::vector<SpadePack>& spade_table2();

/// Bytes of HBM that a pack's layers read and write: on the inference rank and on the cache rank.
struct SpadeBytes {
  double weights = 0, selected = 0;                      // inference: of K and V
  double keys = 0, choice = 0, scores = 0, queries = 0;  // cache: all keys; K and V of the choice, in and out; a score
                                                         // per token and KV head, in and out; the window
  double inference() const { return weights + selected; }
  double management() const { return keys + choice + scores + queries; }
};
SpadeBytes spade_bytes(const SpadePack& pack, const ModelConfig& model, std::uint32_t window = 16);

struct SpadeTimes {
  double inference_ms = 0;   // the device's own work on a pack's layers, waits left out
  double management_ms = 0;  // the cache rank's: prediction, scores, top-k, gather
  double transfer_ms = 0;    // of the selection, back to the device
};
/// A simulation of a row.
struct SpadeRun {
  SpadeTimes times;
  double step_ms = 0, idle_ms = 0;  // of a whole step, in the steady state: means over the last 8 of 48 steps
};
struct SpadeRow {
  SpadePack pack;
  SpadeRun ours = {}, with_framework = {};  // with_framework: framework_ms more
  SpadeTimes roofline = {};
  double framework_ms = 0;  // of a layer, the inference rank's; the same in all rows of a GPU
  bool fitted = false;      // its published inference time sets framework_ms
  SpadeBytes bytes = {};
  double hbm_gbps = 0;  // the datasheet's
};

/// One bar of Figure 10, batch 8 and 32K.
struct SpadeBar {
  std::string model = {}, gpu = {}, method = {};
  double tpot_ms = 0, idle_ms = 0;  // as if the KV fitted
  double roofline_ms = 0;           // the device's bytes over the datasheet's bandwidth; a cache rank is not waited for
  double rank_ms = 0;               // the same of the cache rank's bytes; 0 for the others
  double kv_gb = 0, room_gb = 0;    // KV on the device, and what it has beside the weights
  double peer_gb = 0, peer_room_gb = 0;  // asyncspade: what the other device holds, and what it has for it
  bool fits() const { return kv_gb <= room_gb && peer_gb <= peer_room_gb; }
};

/// Whether the framework's time is fitted to this row: 8B, 8 x 32K, packs of 6 layers.
bool sets_framework(const SpadePack& pack);

/// `framework_ms` is added to each layer. InputError and Interrupted as predict().
SpadeRun simulate_spade_pack(const SpadePack& pack, double framework_ms, const ReproduceOptions& options);
/// All rows, with both simulations.
std::vector<SpadeRow> reproduce_spade_table2(const ReproduceOptions& options);
/// A bar of this model, GPU and method; the figures are filled in.
SpadeBar simulate_spade_bar(SpadeBar bar, const ReproduceOptions& options);
std::vector<SpadeBar> reproduce_spade_fig10(const ReproduceOptions& options);

std::string spade_table2_text(const std::vector<SpadeRow>& rows, bool markdown);
std::string spade_fig10_text(const std::vector<SpadeBar>& bars, bool markdown);
std::string spade_table2_json(const std::vector<SpadeRow>& rows);
std::string spade_fig10_json(const std::vector<SpadeBar>& bars);

}  // namespace tandem::eval
