// A sweep as files: JSON, which a later sweep goes on with, and CSV for spreadsheets.
#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "eval/report/csv.h"
#include "eval/report/json_reader.h"
#include "eval/target/row.h"
#include "eval/target/sweep.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSweepVersion = 2;

Json profile_json(const HardwareProfile& profile) {
  return parse_ordered_json(profile_to_json(profile), profile.name);
}

/// What two sweeps have in common whose points may stand in one file.
Json settings_json(const Sweep& s, const std::string& program) {
  Json json;
  json["schema_version"] = kSweepVersion;
  json["program"] = program;
  json["model"] = s.model;
  json["layers"] = s.layers;
  json["positions"] = s.positions;
  json["shape"] = s.shape;
  json["steps"] = s.options.steps;
  json["prefill_chunk"] = s.options.prefill_chunk;
  json["most_sequences"] = s.options.most_sequences;
  json["workload"] = parse_ordered_json(workload_to_json(s.workload), "the workload");
  return json;
}

void check_settings(const Json& there, const Sweep& settings, const std::string& file, const std::string& program) {
  const Json ours = settings_json(settings, program);
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

bool asked_for(const SweepOptions& o, const SweepPoint& p) {
  const auto has = [](const auto& list, const auto& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  return has(o.methods, p.method) && has(o.contexts, p.context) && has(o.batches, p.batch) &&
         std::any_of(o.hardware.begin(), o.hardware.end(),
                     [&](const HardwareProfile& h) { return h.name == p.hardware; });
}

}  // namespace

std::string sweep_json(const Sweep& s, const std::string& command, const std::string& program) {
  Json json = settings_json(s, program);
  json["command"] = command;
  json["clock"] = "simulated";
  json["complete"] = s.complete();
  json["hardware"] = Json::object();
  for (const HardwareProfile& h : s.options.hardware) json["hardware"][h.name] = profile_json(h);
  json["points"] = Json::array();
  for (const SweepPoint& p : s.points) {
    Json point;
    point["hardware"] = p.hardware;
    if (p.batch == kAsManyAsFit)
      point["batch"] = "max";
    else
      point["batch"] = p.batch;
    point["context"] = p.context;
    point["sequences"] = p.sequences;
    point["lossless"] = p.lossless;
    add_row(p.row, point);
    json["points"].push_back(std::move(point));
  }
  return json_text(json, 1) + "\n";
}

std::vector<SweepPoint> known_points(const std::string& text, const std::string& file, const Sweep& settings,
                                     const std::string& program) {
  const Json json = parse_object(text, file);
  check_settings(json, settings, file, program);
  ObjectReader reader(json, file);
  const Json& hardware = reader.object("hardware");
  for (const HardwareProfile& h : settings.options.hardware) {
    if (hardware.contains(h.name) && hardware.at(h.name) != profile_json(h))
      throw_input_error(
          "{}: its machine '{}' has other figures than the profile of that name has now. Give another --out, or "
          "--force "
          "without --resume to replace it.",
          file, h.name);
  }
  std::vector<SweepPoint> points;
  std::size_t number = 0;
  for (const Json& one : reader.array("points")) {
    ObjectReader fields(one, fmt::format("{}, point {}", file, ++number));
    SweepPoint p;
    p.hardware = fields.text("hardware");
    const bool most = one.contains("batch") && one.at("batch").is_string();
    if (most && fields.text("batch") != "max") fields.fail("batch", "1 or more, or \"max\"");
    p.batch = most ? kAsManyAsFit : fields.integer<std::uint32_t>("batch");
    if (!most && p.batch == 0) fields.fail("batch", "1 or more, or \"max\"");
    p.context = fields.integer<std::uint32_t>("context");
    p.sequences = fields.integer<std::uint32_t>("sequences");
    p.lossless = fields.boolean("lossless");
    p.row = read_row(fields);
    p.method = p.row.method;
    fields.finish();
    if (!asked_for(settings.options, p))
      throw_input_error(
          "{}: it has {} at {} x {} on {}, which this command does not ask for and would lose. Name what the file has, "
          "too (its 'command' names everything), or give another --out.",
          file, p.method, most ? "max" : std::to_string(p.batch), p.context, p.hardware);
    points.push_back(std::move(p));
  }
  return points;
}

std::string sweep_csv(const Sweep& s) {
  std::string text =
      "model,hardware,clock,batch,sequences,context,method,lossless,refused,ttft_ms,step_ms,tokens_per_second,busy_ms,"
      "idle_ms,idle_share,idle_ms_per_layer";
  for (std::size_t c = 0; c < kCauseCount; ++c) {
    std::string cause = to_string(static_cast<Cause>(c));
    std::replace(cause.begin(), cause.end(), ' ', '_');
    text += fmt::format(",idle_ms_{}", cause);
  }
  text += ",attended_device,attended_host,touched_bytes,device_kv_bytes,host_kv_bytes,peer_kv_bytes\n";
  for (const SweepPoint& p : s.points) {
    const TargetRow& r = p.row;
    text += fmt::format("{},{},simulated,{},{},{},{},{},{}", csv_cell(s.model), csv_cell(p.hardware),
                        p.batch == kAsManyAsFit ? "max" : std::to_string(p.batch), p.sequences, p.context,
                        csv_cell(p.method), p.lossless ? 1 : 0, csv_cell(r.refused));
    if (!r.refused.empty()) {
      text += std::string(7 + kCauseCount + 6, ',') + "\n";
      continue;
    }
    text += fmt::format(",{:.6f},{:.6f},{:.3f},{:.6f},{:.6f},{:.6f},{:.6f}",
                        r.prefill_ms + r.setup_ms + r.first_step_ms, r.step_ms, p.tokens_per_second(), r.busy_ms,
                        r.idle_ms, r.idle_ms / r.step_ms, r.idle_ms / s.layers);
    for (const double ms : r.idle_ms_by_cause) text += fmt::format(",{:.6f}", ms);
    text += fmt::format(",{:.3f},{:.3f},{:.1f},{},{},{}\n", r.attended_device, r.attended_host, r.touched_bytes,
                        r.device_kv_bytes, r.host_kv_bytes, r.peer_kv_bytes);
  }
  return text;
}

}  // namespace tandem::eval
