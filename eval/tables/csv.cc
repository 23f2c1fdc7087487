// Figures of runs as lines of comma-separated values (RFC 4180).
#include <algorithm>
#include <fmt/core.h>
#include <set>

#include "eval/report/answer.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/markdown.h"
#include "eval/tables/tables.h"

namespace tandem::eval {
namespace {

constexpr std::size_t kTimes = 24;

const LatencySummary* latency_of(const MethodSummary& m, const AccuracyCell& cell) {
  if (!cell.task.empty()) return nullptr;  // times are of all tasks together
  if (cell.length == 0) return m.latency ? &*m.latency : nullptr;
  const auto found = std::ranges::find(m.by_length, cell.length, &LengthLatency::length);
  return found == m.by_length.end() ? nullptr : &found->latency;
}

std::string estimate(const Estimate& e) {
  if (e.n == 0) return ",,";
  if (e.kind == IntervalKind::none) return fmt::format("{},,", e.value);
  return fmt::format("{},{},{}", e.value, e.interval.low, e.interval.high);
}

std::string times(const LatencySummary* l, const std::set<std::string>& causes) {
  if (l == nullptr) return std::string(kTimes + causes.size() - 1, ',');
  const auto or_empty = [](const std::optional<double>& figure) { return figure ? fmt::format("{}", *figure) : ""; };
  std::string text =
      fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}", l->samples, l->ttft_ms, l->prefill_ms, l->setup_ms,
                  l->first_step_ms, or_empty(l->tpot_ms), or_empty(l->tpot_p50_ms), or_empty(l->tpot_p90_ms),
                  or_empty(l->tpot_p99_ms), l->step_ms, l->busy_ms, l->idle_ms);
  for (const std::string& cause : causes) {
    const auto found = l->idle_ms_by_cause.find(cause);
    text += fmt::format(",{}", found == l->idle_ms_by_cause.end() ? 0 : found->second);
  }
  return text + fmt::format(",{},{},{},{},{},{},{},{},{},{},{},{}", l->hbm, l->dram, l->h2d, l->d2h, l->peer_link,
                            l->peer_hbm, or_empty(l->touched), l->attended_device, l->attended_host, l->peak_device_kv,
                            l->peak_host_kv, l->peak_peer_kv);
}

/// "idle_ms_host_attention" of "host attention", as in a sweep's CSV.
std::string column_of(const std::string& cause) {
  std::string name = "idle_ms_" + cause;
  std::ranges::replace(name, ' ', '_');
  return csv_cell(name);
}

}  // namespace

std::string tables_csv(std::span<const ReportedRun> runs) {
  std::set<std::string> causes;
  for (const ReportedRun& run : runs)
    for (const MethodSummary& m : run.methods)
      if (m.latency)
        for (const auto& [cause, ms] : m.latency->idle_ms_by_cause) causes.insert(cause);
  std::string text =
      "run,model,benchmark,clock,batch,precision,method,task,length,measure,n,units,value,low,high,difference,"
      "difference_low,difference_high,p,timed_samples,ttft_ms,prefill_ms,setup_ms,first_step_ms,tpot_ms,tpot_p50_ms,"
      "tpot_p90_ms,tpot_p99_ms,step_ms,"
      "busy_ms,idle_ms";
  for (const std::string& cause : causes) text += "," + column_of(cause);
  text +=
      ",hbm_bytes_per_token,dram_bytes_per_token,h2d_bytes_per_token,d2h_bytes_per_token,peer_link_bytes_per_token,"
      "peer_hbm_bytes_per_token,touched_bytes_per_token,attended_device,attended_host,peak_device_kv_bytes,peak_host_"
      "kv_bytes,"
      "peak_peer_kv_bytes\n";
  for (const ReportedRun& run : runs) {
    const Manifest& m = run.manifest;
    const std::string origin =
        fmt::format("{},{},{},{},{},{}", csv_cell(run.name), csv_cell(m.model), csv_cell(m.benchmark),
                    csv_cell(m.clock), batch_of(m), csv_cell(m.precision));
    for (const MethodSummary& method : run.methods) {
      const auto add = [&](const AccuracyCell& cell) {
        const PairedEstimate& paired = cell.difference;
        text += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", origin, csv_cell(method.label),
                            cell.task.empty() ? "all" : csv_cell(cell.task),
                            cell.length == 0 ? "all" : std::to_string(cell.length),
                            run.perplexity ? "nats_per_token" : score_name(m.benchmark), cell.accuracy.n, cell.units,
                            estimate(cell.accuracy), estimate(paired.difference),
                            paired.has_p ? fmt::format("{}", paired.p) : "", times(latency_of(method, cell), causes));
      };
      add(method.overall);
      if (m.lengths.size() > 1) std::ranges::for_each(method.lengths, add);
      std::ranges::for_each(method.cells, add);
    }
  }
  return text;
}

std::string sweeps_csv(std::span<const ReportedSweep> sweeps) {
  std::string out;
  for (const ReportedSweep& s : sweeps) {
    const std::string lines = sweep_csv(s.file.sweep);
    bool head = true;
    for (std::size_t at = 0; at < lines.size();) {
      const std::size_t end = lines.find('\n', at) + 1;  // cells have no line ends
      if (!head || out.empty()) out += (head ? "run" : csv_cell(s.name)) + "," + lines.substr(at, end - at);
      head = false;
      at = end;
    }
  }
  return out;
}

}  // namespace tandem::eval
