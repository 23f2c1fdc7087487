#include "eval/predict/row.h"

#include <algorithm>
#include <fmt/core.h>
#include <numeric>
#include <utility>

#include "eval/report/manifest_difference.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

constexpr double kMostMs = 1e12, kMostBytes = 1e15;

std::string gigabytes(std::size_t bytes) {
  return bytes == 0 ? "0" : fmt::format("{:.2f}", double(bytes) * 1e-9);
}

using Times = std::pair<const char*, double PredictedRow::*>;
constexpr Times kTimes[] = {{"prefill_ms", &PredictedRow::prefill_ms},
                            {"setup_ms", &PredictedRow::setup_ms},
                            {"first_step_ms", &PredictedRow::first_step_ms},
                            {"step_ms", &PredictedRow::step_ms},
                            {"busy_ms", &PredictedRow::busy_ms},
                            {"idle_ms", &PredictedRow::idle_ms},
                            {"layer0_idle_ms", &PredictedRow::layer0_idle_ms}};

constexpr auto kVisit = [](auto& f, auto& r) {
  f.field("method", r.method);
  f.optional("compared_as", r.compared);
  if (f.present("refused", !r.refused.empty())) {
    f.filled("refused", r.refused);
    f.optional("too_large", r.too_large);
    f.optional("too_slow", r.too_slow);
    return;
  }
  for (const auto& [name, time] : kTimes) f.number(name, r.*time, 0, kMostMs);
  f.require(r.step_ms > 0, "step_ms", "above 0");
  if (f.present("idle_ms_by_cause", largest_cause(r).has_value())) {
    f.object("idle_ms_by_cause", [&](auto& causes) {
      for (std::size_t c = 0; c < r.idle_ms_by_cause.size(); ++c) {
        const char* name = to_string(static_cast<Cause>(c));
        auto& ms = r.idle_ms_by_cause[c];
        if (causes.present(name, ms > 0)) causes.number(name, ms, 0, kMostMs);
      }
    });
  }
  f.number("attended_device", r.attended_device, 0, kMostMs);
  f.number("attended_host", r.attended_host, 0, kMostMs);
  if (f.present("touched_bytes", true)) f.number("touched_bytes", r.touched_bytes, 0, kMostBytes);  // since schema 9
  f.field("device_kv_bytes", r.device_kv_bytes);
  f.field("host_kv_bytes", r.host_kv_bytes);
  f.optional("peer_kv_bytes", r.peer_kv_bytes);
  if (f.present("step_high_ms", r.step_high_ms > 0)) {  // since schema 10
    f.number("step_low_ms", r.step_low_ms, 0, r.step_ms);
    f.number("step_high_ms", r.step_high_ms, r.step_ms, kMostMs);
    f.field("widest_range", r.widest_range);
  }
  if (f.present("drawn_sequences", r.drawn_sequences > 0)) {
    f.field("drawn_sequences", r.drawn_sequences);
    f.number("sampling_error", r.sampling_error, 0, 1);
  }
};

}  // namespace

std::optional<Cause> largest_cause(const PredictedRow& row) {
  const auto largest = std::ranges::max_element(row.idle_ms_by_cause);
  if (*largest == 0) return std::nullopt;
  return static_cast<Cause>(largest - row.idle_ms_by_cause.begin());
}

bool attends_everything(const PredictedRow& r, std::uint32_t context, std::uint32_t steps) {
  constexpr double kRounding = 1e-9;
  if (!r.refused.empty() || !has_budget(std::string_view(r.method).substr(0, r.method.find(':')))) return false;
  return r.attended_device + r.attended_host >= (1 - kRounding) * (context + (steps - 1) / 2.0);
}

std::string sampling_text(const PredictedRow& row, const std::string& place) {
  return fmt::format(
      "Choices are drawn for some sequences of a batch, and the others share them. Tokens attended differ from those "
      "of "
      "drawing all by an estimated {:.2g} % ({}): one standard error, a rough figure from {} drawn sequences.",
      100 * row.sampling_error, place, row.drawn_sequences);
}

void RowColumns::add(const PredictedRow& row) {
  ranges = ranges || !row.widest_range.empty();
  peers = peers || row.peer_kv_bytes > 0;
}

std::vector<std::string> row_heads(const RowColumns& columns) {
  std::vector<std::string> heads = {"TTFT s",
                                    "step ms",
                                    "step\u00a0/ batch ms",
                                    "tokens/s",
                                    "idle\u00a0ms / layer",
                                    "idle %",
                                    "of it in layer\u00a00, ms",
                                    "waits mostly for",
                                    "attended on device",
                                    "attended on host",
                                    "KV GB, device",
                                    "KV GB, host"};
  if (columns.peers) heads.emplace_back("KV GB, peer");
  if (columns.ranges) heads.emplace_back("range mostly from");
  return heads;
}

std::string step_text(const PredictedRow& r) {
  std::string text = fmt::format("{:.{}f}", r.step_ms, r.step_ms < 100 ? 2 : 1);
  if (r.step_high_ms > 0) text += fmt::format("\u00a0[{}]", range_text(r.step_low_ms, r.step_high_ms));
  return text;
}

std::string why_absent(const PredictedRow& row) {
  if (row.refused.empty()) return "";
  if (row.too_slow) return "too slow";
  return row.too_large ? "does not fit" : "refused";
}

std::vector<std::string> row_cells(const PredictedRow& r, std::uint32_t layers, std::uint32_t sequences,
                                   const RowColumns& columns) {
  if (const std::string absent = why_absent(r); !absent.empty()) {
    std::vector<std::string> cells(row_heads(columns).size(), "-");
    cells[1] = absent;
    return cells;
  }
  const std::optional<Cause> cause = largest_cause(r);
  const double idle_of_causes = std::accumulate(r.idle_ms_by_cause.begin(), r.idle_ms_by_cause.end(), 0.0);
  std::vector<std::string> cells = {
      fmt::format("{:.2f}", (r.prefill_ms + r.setup_ms + r.first_step_ms) * 1e-3),
      step_text(r),
      fmt::format("{:.3f}", r.step_ms / sequences),
      fmt::format("{:.0f}", 1e3 * sequences / r.step_ms),
      fmt::format("{:.3f}", r.idle_ms / layers),
      fmt::format("{:.1f}", 100 * r.idle_ms / r.step_ms),
      fmt::format("{:.3f}", r.layer0_idle_ms),
      !cause ? "-"
             : fmt::format("{} {:.0f}\u00a0%", to_string(*cause),
                           100 * r.idle_ms_by_cause[static_cast<std::size_t>(*cause)] / idle_of_causes),
      fmt::format("{:.0f}", r.attended_device),
      fmt::format("{:.0f}", r.attended_host),
      gigabytes(r.device_kv_bytes),
      gigabytes(r.host_kv_bytes)};
  if (columns.peers) cells.push_back(gigabytes(r.peer_kv_bytes));
  if (columns.ranges) cells.push_back(r.widest_range.empty() ? "-" : r.widest_range);
  return cells;
}

void visit_row(ObjectWriter& out, const PredictedRow& row) {
  kVisit(out, row);
}

void visit_row(ObjectReader& in, PredictedRow& row) {
  kVisit(in, row);
}

}  // namespace tandem::eval
