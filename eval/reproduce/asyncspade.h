// AsyncSpade's Table 2 and Figure 10 on the profiles of its testbeds: published beside simulated and beside the
// roofline, which is what memory bandwidth alone allows. Nothing is fitted.
#pragma once

#include <string>
#include <vector>

#include "eval/reproduce/reproduce.h"

namespace tandem::eval {

/// One row of Table 2. A pack is that many consecutive layers.
struct SpadePack {
  const char* model = "";  // shape preset
  std::uint32_t batch = 0, context = 0, selected = 0;
  const char* gpu = "";  // "a100" or "h100": profile asyncspade-<gpu>
  std::uint32_t layers = 0;
  double inference_ms = 0, management_ms = 0, bandwidth = 0;  // published; bandwidth in MiB per ms
};
const std::vector<SpadePack>& spade_table2();

struct SpadeTimes {
  double inference_ms = 0;   // the device's own work on a pack's layers, waits left out
  double management_ms = 0;  // the cache rank's: prediction, scores, top-k, gather
  double transfer_ms = 0;    // of the selection, back to the device
};
struct SpadeRow {
  SpadePack pack;
  SpadeTimes ours, roofline;
  double step_ms = 0, idle_ms = 0;  // of a whole step, in the steady state: means over the last 8 of 48 steps
};

/// One bar of Figure 10, batch 8 and 32K.
struct SpadeBar {
  std::string model, gpu, method;
  double tpot_ms = 0, idle_ms = 0;
  std::string refused;  // why its KV does not fit; the time is then as if it did
};

/// InputError and Interrupted as simulate_target().
SpadeRow simulate_spade_pack(const SpadePack& pack, const ReproduceOptions& options);
std::vector<SpadeRow> reproduce_spade_table2(const ReproduceOptions& options);
std::vector<SpadeBar> reproduce_spade_fig10(const ReproduceOptions& options);

std::string spade_table2_text(const std::vector<SpadeRow>& rows, bool markdown);
std::string spade_fig10_text(const std::vector<SpadeBar>& bars, bool markdown);
std::string spade_table2_json(const std::vector<SpadeRow>& rows);
std::string spade_fig10_json(const std::vector<SpadeBar>& bars);

/// "asyncspade-table2", "asyncspade-fig10".
std::vector<std::string> spade_names();

}  // namespace tandem::eval
