// A sweep as files: JSON, which a later sweep goes on with, and CSV for spreadsheets.
#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "engine/common/error.h"
#include "eval/predict/row.h"
#include "eval/predict/sweep.h"
#include "eval/report/json_fields.h"
#include "eval/report/markdown.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSweepVersion = 2;
constexpr double kMostTpot = 1e7;  // ms

Json profile_json(const HardwareProfile& profile) {
  return parse_ordered_json(profile_to_json(profile), profile.name);
}

/// Settings that all points of one file share.
constexpr auto kVisitSettings = [](auto& f, auto& s, auto& program) {
  constexpr bool kReading = kReads<decltype(f)>;
  auto& o = s.options;
  int version = kSweepVersion;
  f.field("schema_version", version);
  f.require(version == kSweepVersion, "schema_version",
            fmt::format("{}, which this program reads: simulate anew", kSweepVersion));
  f.field("program", program);
  f.field("model", s.model);
  f.field("layers", s.layers);
  f.require(s.layers > 0, "layers", "1 or more");
  f.field("positions", s.positions);
  f.field("shape", s.shape);
  std::string level = o.level.name;
  f.optional("level", level);  // older files: machine
  f.field("steps", o.steps);
  f.require(o.steps >= 2, "steps", "2 or more");
  f.field("prefill_chunk", o.prefill_chunk);
  if constexpr (kReading) o.drawn_sequences = 0;  // older files: all are drawn
  if (f.present("drawn_sequences", true)) f.field("drawn_sequences", o.drawn_sequences);
  f.field("most_sequences", o.most_sequences);
  f.require(o.most_sequences > 0, "most_sequences", "1 or more");
  std::optional<double> tpot_ms;
  if (o.tpot_ms > 0) tpot_ms = o.tpot_ms;
  if (f.present("tpot_ms", true)) f.number("tpot_ms", tpot_ms, 0, kMostTpot);
  for (const auto& [name, bits] : {std::pair{"weight_bits", &o.precision.weight_bits},  // 16 where left out
                                   std::pair{"kv_bits", &o.precision.kv_bits}}) {
    if (f.present(name, *bits != 16)) f.field(name, *bits);
    f.require(*bits == 16 || *bits == 8 || *bits == 4, name, "16, 8 or 4");
  }
  kVisitWorkload(f, s.workload);
  if constexpr (kReading) {
    o.level = load_level(level);
    o.tpot_ms = tpot_ms.value_or(0);
  }
};

void check_settings(const Json& there, const Sweep& settings, const std::string& file, const std::string& program) {
  Json ours;
  ObjectWriter out(ours);
  kVisitSettings(out, settings, program);
  for (const char* bits : {"weight_bits", "kv_bits"})
    if (there.contains(bits) && !ours.contains(bits)) ours[bits] = 16;
  for (const auto& [field, value] : ours.items()) {
    if (!there.contains(field))
      throw_input_error("{}: the field '{}' is missing: this is no sweep's file.", file, field);
    if (there.at(field) == value) continue;
    throw_input_error(
        "{}: its {} is {}, and this command's is {}: figures of both would stand in one file. Give another --out, or "
        "--force without --resume to replace it.",
        file, field, json_excerpt(there.at(field)), json_excerpt(value));
  }
}

template <class List, class Value>
bool has(const List& list, const Value& value) {
  return std::ranges::find(list, value) != list.end();
}

bool is_among(const std::vector<HardwareProfile>& machines, const std::string& name) {
  return std::ranges::find(machines, name, &HardwareProfile::name) != machines.end();
}

bool asked_for(const SweepOptions& o, const SweepPoint& p) {
  return has(o.methods, p.method) && has(o.contexts, p.context) && has(o.batches, p.batch) &&
         is_among(o.hardware, p.hardware);
}

constexpr auto kVisitPoint = [](auto& f, auto& p) {
  f.field("hardware", p.hardware);
  std::string max = "max";
  bool fits = p.batch == kAsManyAsFit;
  if constexpr (kReads<decltype(f)>) fits = f.is_text("batch");
  if (fits)
    f.field("batch", max);
  else
    f.field("batch", p.batch);
  f.require(fits ? max == "max" : p.batch > 0, "batch", "1 or more, or \"max\"");
  if constexpr (kReads<decltype(f)>) p.batch = fits ? kAsManyAsFit : p.batch;
  f.field("context", p.context);
  f.field("sequences", p.sequences);
  f.field("lossless", p.lossless);
  visit_row(f, p.row);
  if constexpr (kReads<decltype(f)>) p.method = p.row.method;
  const bool most = p.batch == kAsManyAsFit;
  const bool counted = most ? p.sequences > 0 : p.sequences == p.batch;
  f.require(!p.row.refused.empty() || counted, "sequences", most ? "1 or more" : "the batch");
};

constexpr auto kVisitPoints = [](auto& f, auto& points) {
  f.numbered("points", "point", points, kVisitPoint);
  if constexpr (kReads<decltype(f)>) {
    std::set<std::tuple<std::string, std::string, std::uint32_t, std::uint32_t>> places;
    for (const SweepPoint& p : points)
      if (!places.insert({p.hardware, p.method, p.context, p.batch}).second)
        throw_input_error("{}, point {}: the same point is there twice.", f.where(), places.size() + 1);
  }
};

constexpr auto kVisitFile = [](auto& f, auto& file) {
  kVisitSettings(f, file.sweep, file.program);
  f.field("command", file.command);
  std::string clock = "simulated";
  f.field("clock", clock);
  f.require(clock == "simulated", "clock", "\"simulated\"");
  f.field("complete", file.complete);
  auto& machines = file.sweep.options.hardware;
  if constexpr (kReads<decltype(f)>) {
    for (const auto& [name, profile] : f.object("hardware").items())
      machines.push_back(parse_profile(json_text(profile), name, fmt::format("{}, hardware, {}", f.where(), name)));
  } else {
    Json profiles = Json::object();
    for (const HardwareProfile& h : machines) profiles[h.name] = profile_json(h);
    f.field("hardware", profiles);
  }
  kVisitPoints(f, file.sweep.points);
};

}  // namespace

std::string sweep_json(const Sweep& s, const std::string& command, const std::string& program) {
  return json_text(written(SweepFile{s, command, program, s.complete()}, kVisitFile), 1) + "\n";
}

std::vector<SweepPoint> known_points(const std::string& text, const std::string& file, const Sweep& settings,
                                     const std::string& program) {
  const Json json = parse_object(text, file);
  check_settings(json, settings, file, program);
  ObjectReader reader(json, file);
  const Json& hardware = reader.object("hardware");
  for (const HardwareProfile& h : settings.options.hardware)
    if (hardware.contains(h.name) && hardware.at(h.name) != profile_json(h))
      throw_input_error(
          "{}: its machine '{}' has other figures than the profile of that name has now. Give another --out, or "
          "--force without --resume to replace it.",
          file, h.name);
  std::vector<SweepPoint> points;
  kVisitPoints(reader, points);
  for (const SweepPoint& p : points)
    if (!asked_for(settings.options, p))
      throw_input_error(
          "{}: it has {} at {} x {} on {}, which this command does not ask for and would lose. Name what the file has, "
          "too (its 'command' names everything), or give another --out.",
          file, p.method, batch_name(p.batch), p.context, p.hardware);
  return points;
}

SweepFile parse_sweep(const std::string& text, const std::string& file) {
  const Json json = parse_object(text, file);
  ObjectReader reader(json, file);
  SweepFile out;
  kVisitFile(reader, out);
  reader.finish();
  Sweep& s = out.sweep;
  const auto add = [](auto& list, const auto& value) {
    if (!has(list, value)) list.push_back(value);
  };
  for (const SweepPoint& p : s.points) {
    if (!is_among(s.options.hardware, p.hardware))
      throw_input_error("{}: a point is of the machine '{}', which 'hardware' does not have.", file, p.hardware);
    add(s.options.batches, p.batch);
    add(s.options.contexts, p.context);
    add(s.options.methods, p.method);
  }
  if (out.complete && !s.complete()) reader.fail("complete", "false, since points are missing");
  if (!out.complete) {  // the heaviest points come first, so that not every place has its lists in order
    std::ranges::sort(s.options.contexts);
    std::ranges::sort(s.options.batches,
                      [](std::uint32_t x, std::uint32_t y) { return x - 1 < y - 1; });  // as many as fit: last
  }
  if (s.points.empty()) throw_input_error("{}: the sweep has no point yet.", file);
  return out;
}

std::string sweep_csv(const Sweep& s) {
  std::string text =
      "model,hardware,clock,batch,sequences,context,method,lossless,refused,ttft_ms,step_ms,tokens_per_second,busy_ms,"
      "idle_ms,idle_share,idle_ms_per_layer";
  for (std::size_t c = 0; c < kCauseCount; ++c) {
    std::string cause = to_string(static_cast<Cause>(c));
    std::ranges::replace(cause, ' ', '_');
    text += fmt::format(",idle_ms_{}", cause);
  }
  text += ",attended_device,attended_host,touched_bytes,device_kv_bytes,host_kv_bytes,peer_kv_bytes";
  text += ",step_low_ms,step_high_ms,widest_range\n";
  const auto add = [&](bool there, int digits, const std::vector<double>& figures) {
    for (const double figure : figures) text += there ? fmt::format(",{:.{}f}", figure, digits) : ",";
  };
  for (const SweepPoint& p : s.points) {
    const PredictedRow& r = p.row;
    const bool has = r.refused.empty();
    text +=
        fmt::format("{},{},simulated,{},{},{},{},{},{}", csv_cell(s.model), csv_cell(p.hardware), batch_name(p.batch),
                    p.sequences, p.context, csv_cell(p.method), p.lossless ? 1 : 0, csv_cell(r.refused));
    add(has, 6, {r.prefill_ms + r.setup_ms + r.first_step_ms, r.step_ms});
    add(has, 3, {p.tokens_per_second()});
    add(has, 6, {r.busy_ms, r.idle_ms, r.idle_ms / r.step_ms, r.idle_ms / s.layers});
    add(has, 6, {r.idle_ms_by_cause.begin(), r.idle_ms_by_cause.end()});
    add(has, 3, {r.attended_device, r.attended_host});
    add(has, 1, {r.touched_bytes});
    add(has, 0, {double(r.device_kv_bytes), double(r.host_kv_bytes), double(r.peer_kv_bytes)});
    add(r.step_high_ms > 0, 6, {r.step_low_ms, r.step_high_ms});
    text += "," + csv_cell(r.widest_range) + "\n";
  }
  return text;
}

}  // namespace tandem::eval
