#include "engine/trace/perfetto.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/device/device.h"

namespace tandem {
namespace {

std::string micros(Nanos ns) {
  const bool negative = ns < 0;
  const auto magnitude = negative ? -static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  return fmt::format("{}{}.{:03}", negative ? "-" : "", magnitude / 1000, magnitude % 1000);
}

using Emit = std::function<void(const std::string& event)>;  // a JSON object

void write_record(const Emit& emit, const Trace& trace, const TraceRecord& r) {
  std::string args = fmt::format("\"kind\":\"{}\",\"cause\":\"{}\"", to_string(r.kind), to_string(r.cause));
  if (r.layer != Op::kNoLayer) args += fmt::format(",\"layer\":{}", r.layer);
  const auto amount = [&](const char* name, std::uint64_t value) {
    if (value != 0) args += fmt::format(",\"{}\":{}", name, value);
  };
  amount("hbm_bytes", r.cost.hbm);
  amount("dram_bytes", r.cost.dram);
  amount("h2d_bytes", r.cost.h2d);
  amount("d2h_bytes", r.cost.d2h);
  amount("peer_bytes", r.cost.peer);
  amount("looked_up_bytes", r.cost.looked_up);
  amount("flops", r.cost.flops + r.cost.solved);
  emit(fmt::format(R"({{"ph":"X","pid":1,"tid":{},"ts":{},"dur":{},"name":{},"cat":"{}","args":{{{}}}}})", r.lane + 1,
                   micros(r.start), micros(r.end - r.start), json_quoted(r.name), to_string(r.cause), args));
  if (r.critical < 0) return;
  const TraceRecord& from = trace.records[static_cast<std::size_t>(r.critical)];
  if (from.lane == r.lane) return;
  // An arrow binds to the slice that is open at its time stamp: one nanosecond before the end of the slice it leaves.
  const std::ptrdiff_t id = &r - trace.records.data();
  emit(fmt::format(R"({{"ph":"s","pid":1,"tid":{},"ts":{},"id":{},"name":"critical","cat":"critical"}})", from.lane + 1,
                   micros(std::max(from.start, from.end - 1)), id));
  emit(fmt::format(R"({{"ph":"f","bp":"e","pid":1,"tid":{},"ts":{},"id":{},"name":"critical","cat":"critical"}})",
                   r.lane + 1, micros(r.start), id));
}

}  // namespace

void write_perfetto(const Trace& trace, const std::filesystem::path& path) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << R"({"displayTimeUnit":"ns","traceEvents":[)" << '\n';
  const char* before = "";
  const Emit emit = [&](const std::string& event) { file << std::exchange(before, ",\n") << event; };
  emit(fmt::format(R"({{"ph":"M","pid":1,"name":"process_name","args":{{"name":{}}}}})", json_quoted(trace.clock)));
  emit(fmt::format(R"({{"ph":"M","pid":1,"tid":0,"name":"thread_name","args":{{"name":"steps"}}}})"));
  std::vector<bool> used(trace.lanes.size());
  for (const TraceRecord& record : trace.records) used.at(record.lane) = true;
  for (const LaneInfo& lane : trace.lanes) {
    if (!used.at(lane.id)) continue;  // a device has more lanes than most methods use
    emit(fmt::format(R"({{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":{}}}}})", lane.id + 1,
                     json_quoted(lane.name)));
    emit(fmt::format(R"({{"ph":"M","pid":1,"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})",
                     lane.id + 1, lane.id + 1));
  }
  for (const StepMark& mark : trace.steps) {
    const std::string name = mark.step == Device::kSetupStep ? std::string("setup") : fmt::format("step {}", mark.step);
    emit(fmt::format(R"({{"ph":"X","pid":1,"tid":0,"ts":{},"dur":{},"name":"{}","cat":"step"}})", micros(mark.begin),
                     micros(mark.end - mark.begin), name));
  }
  for (const TraceRecord& record : trace.records) write_record(emit, trace, record);
  file << "\n]}\n" << std::flush;
  if (!file)
    throw_run_error("The trace {} cannot be written: {}. Check that the folder exists and has room.", path.string(),
                    errno != 0 ? std::strerror(errno) : "unknown error");
}

}  // namespace tandem
