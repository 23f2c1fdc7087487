#include "eval/target/row.h"

#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <numeric>

#include "eval/report/method_entry.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

constexpr double kMostMs = 1e12, kMostBytes = 1e15;

std::string gigabytes(std::size_t bytes) {
  return bytes == 0 ? "0" : fmt::format("{:.2f}", double(bytes) * 1e-9);
}

// One list of the plain fields serves writing and reading.
template <class Row, class Visit>
void visit_times(Row& row, Visit visit) {
  visit("prefill_ms", row.prefill_ms);
  visit("setup_ms", row.setup_ms);
  visit("first_step_ms", row.first_step_ms);
  visit("step_ms", row.step_ms);
  visit("busy_ms", row.busy_ms);
  visit("idle_ms", row.idle_ms);
  visit("layer0_idle_ms", row.layer0_idle_ms);
}

}  // namespace

std::optional<Cause> largest_cause(const TargetRow& row) {
  const auto largest = std::max_element(row.idle_ms_by_cause.begin(), row.idle_ms_by_cause.end());
  if (*largest == 0) return std::nullopt;
  return static_cast<Cause>(largest - row.idle_ms_by_cause.begin());
}

bool attends_everything(const TargetRow& r, std::uint32_t context, std::uint32_t steps) {
  constexpr double kRounding = 1e-9;
  if (!r.refused.empty() || !has_budget(std::string_view(r.method).substr(0, r.method.find(':')))) return false;
  return r.attended_device + r.attended_host >= (1 - kRounding) * (context + (steps - 1) / 2.0);
}

std::string sampling_text(const TargetRow& row, const std::string& place) {
  return fmt::format(
      "Choices are drawn for some sequences of a batch, and the others share them. Tokens attended differ from those "
      "of "
      "drawing all by an estimated {:.2g} % ({}): one standard error, a rough figure from {} drawn sequences.",
      100 * row.sampling_error, place, row.drawn_sequences);
}

void RowColumns::add(const TargetRow& row) {
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

std::string step_text(const TargetRow& r) {
  std::string text = fmt::format("{:.{}f}", r.step_ms, r.step_ms < 100 ? 2 : 1);
  if (r.step_high_ms > 0) text += fmt::format("\u00a0[{}]", range_text(r.step_low_ms, r.step_high_ms));
  return text;
}

std::string why_absent(const TargetRow& row) {
  if (row.refused.empty()) return "";
  if (row.too_slow) return "too slow";
  return row.too_large ? "does not fit" : "refused";
}

std::vector<std::string> row_cells(const TargetRow& r, std::uint32_t layers, std::uint32_t sequences,
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

void add_row(const TargetRow& r, nlohmann::ordered_json& json) {
  json["method"] = r.method;
  if (!r.compared.empty()) json["compared_as"] = r.compared;
  if (!r.refused.empty()) {
    json["refused"] = r.refused;
    if (r.too_large) json["too_large"] = true;
    if (r.too_slow) json["too_slow"] = true;
    return;
  }
  visit_times(r, [&](const char* name, double ms) { json[name] = ms; });
  for (std::size_t c = 0; c < r.idle_ms_by_cause.size(); ++c) {
    if (r.idle_ms_by_cause[c] > 0) json["idle_ms_by_cause"][to_string(static_cast<Cause>(c))] = r.idle_ms_by_cause[c];
  }
  json["attended_device"] = r.attended_device;
  json["attended_host"] = r.attended_host;
  json["touched_bytes"] = r.touched_bytes;
  json["device_kv_bytes"] = r.device_kv_bytes;
  json["host_kv_bytes"] = r.host_kv_bytes;
  if (r.peer_kv_bytes > 0) json["peer_kv_bytes"] = r.peer_kv_bytes;
  if (r.step_high_ms > 0) {
    json["step_low_ms"] = r.step_low_ms;
    json["step_high_ms"] = r.step_high_ms;
    json["widest_range"] = r.widest_range;
  }
  if (r.drawn_sequences > 0) {
    json["drawn_sequences"] = r.drawn_sequences;
    json["sampling_error"] = r.sampling_error;
  }
}

TargetRow read_row(ObjectReader& reader) {
  TargetRow r;
  r.method = reader.text("method");
  if (reader.has("compared_as")) r.compared = reader.text("compared_as");
  if (reader.has("refused")) {
    r.refused = reader.text("refused", /*may_be_empty=*/false);
    if (reader.has("too_large")) r.too_large = reader.boolean("too_large");
    if (reader.has("too_slow")) r.too_slow = reader.boolean("too_slow");
    return r;
  }
  visit_times(r, [&](const char* name, double& ms) { ms = reader.number(name, 0, kMostMs); });
  if (!(r.step_ms > 0)) reader.fail("step_ms", "above 0");
  if (reader.has("idle_ms_by_cause")) {
    ObjectReader causes(reader.object("idle_ms_by_cause"), reader.where() + ", idle_ms_by_cause");
    for (std::size_t c = 0; c < r.idle_ms_by_cause.size(); ++c) {
      const char* name = to_string(static_cast<Cause>(c));
      if (causes.has(name)) r.idle_ms_by_cause[c] = causes.number(name, 0, kMostMs);
    }
    causes.finish();
  }
  r.attended_device = reader.number("attended_device", 0, kMostMs);
  r.attended_host = reader.number("attended_host", 0, kMostMs);
  if (reader.has("touched_bytes")) r.touched_bytes = reader.number("touched_bytes", 0, kMostBytes);  // since schema 9
  r.device_kv_bytes = reader.integer<std::size_t>("device_kv_bytes");
  r.host_kv_bytes = reader.integer<std::size_t>("host_kv_bytes");
  if (reader.has("peer_kv_bytes")) r.peer_kv_bytes = reader.integer<std::size_t>("peer_kv_bytes");
  if (reader.has("step_high_ms")) {  // since schema 10
    r.step_low_ms = reader.number("step_low_ms", 0, r.step_ms);
    r.step_high_ms = reader.number("step_high_ms", r.step_ms, kMostMs);
    r.widest_range = reader.text("widest_range");
  }
  if (reader.has("drawn_sequences")) {
    r.drawn_sequences = reader.integer<std::uint32_t>("drawn_sequences");
    r.sampling_error = reader.number("sampling_error", 0, 1);
  }
  return r;
}

}  // namespace tandem::eval
