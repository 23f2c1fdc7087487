// A sweep as files: JSON, which a later sweep goes on with, and CSV for spreadsheets.
#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "engine/common/error.h"
#include "engine/common/json.h"
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

/// What two sweeps have in common whose points may stand in one file.
Json settings_json(const Sweep& s, const std::string& program) {
  Json json;
  json["schema_version"] = kSweepVersion;
  json["program"] = program;
  json["model"] = s.model;
  json["layers"] = s.layers;
  json["positions"] = s.positions;
  json["shape"] = s.shape;
  json["level"] = s.options.level.name;
  json["steps"] = s.options.steps;
  json["prefill_chunk"] = s.options.prefill_chunk;
  json["drawn_sequences"] = s.options.drawn_sequences;
  json["most_sequences"] = s.options.most_sequences;
  json["tpot_ms"] = s.options.tpot_ms > 0 ? Json(s.options.tpot_ms) : Json();
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

bool is_among(const std::vector<HardwareProfile>& profiles, const std::string& name) {
  return std::ranges::any_of(profiles, [&](const HardwareProfile& h) { return h.name == name; });
}

bool asked_for(const SweepOptions& o, const SweepPoint& p) {
  const auto has = [](const auto& list, const auto& value) { return std::ranges::find(list, value) != list.end(); };
  return has(o.methods, p.method) && has(o.contexts, p.context) && has(o.batches, p.batch) &&
         is_among(o.hardware, p.hardware);
}

void visit_batch(ObjectWriter& out, std::uint32_t batch) {
  if (batch == kAsManyAsFit) return out.field("batch", "max");
  out.field("batch", batch);
}

void visit_batch(ObjectReader& in, std::uint32_t& batch) {
  constexpr const char* kExpected = "1 or more, or \"max\"";
  if (in.is_text("batch")) {
    in.require(in.text("batch") == "max", "batch", kExpected);
    batch = kAsManyAsFit;
  } else {
    in.field("batch", batch);
    in.require(batch > 0, "batch", kExpected);
  }
}

constexpr auto kVisitPoint = [](auto& f, auto& p) {
  f.field("hardware", p.hardware);
  visit_batch(f, p.batch);
  f.field("context", p.context);
  f.field("sequences", p.sequences);
  f.field("lossless", p.lossless);
  visit_row(f, p.row);
  const bool most = p.batch == kAsManyAsFit;
  const bool counted = most ? p.sequences > 0 : p.sequences == p.batch;
  f.require(!p.row.refused.empty() || counted, "sequences", most ? "1 or more" : "the batch");
};

std::vector<SweepPoint> read_points(ObjectReader& sweep, const std::string& file) {
  std::vector<SweepPoint> points;
  std::set<std::tuple<std::string, std::string, std::uint32_t, std::uint32_t>> places;
  sweep.numbered("points", "point", points, kVisitPoint);
  for (SweepPoint& p : points) {
    p.method = p.row.method;
    if (!places.insert({p.hardware, p.method, p.context, p.batch}).second)
      throw_input_error("{}, point {}: the same point is there twice.", file, places.size() + 1);
  }
  return points;
}

/// Shares of 1, of the point's context; cells without a figure are empty.
std::string answers_cells(const Sweep& s, const SweepPoint& p) {
  if (!s.options.answers) return ",,,,,";
  std::string text = ",,,,";
  if (const AnswersAt* at = s.options.answers->find(p.method, p.context)) {
    const Estimate& loss = at->loss;
    text = fmt::format(",{:.6f}", at->score.value);
    text +=
        loss.n == 0 ? ",,," : fmt::format(",{:.6f},{:.6f},{:.6f}", loss.value, loss.interval.low, loss.interval.high);
  }
  return text + fmt::format(",{}", to_string(s.options.answers->standing(p.method, p.context)));
}

}  // namespace

std::string sweep_json(const Sweep& s, const std::string& command, const std::string& program) {
  Json json = settings_json(s, program);
  json["command"] = command;
  json["clock"] = "simulated";
  if (s.options.answers) json["answers"] = answers_json(*s.options.answers);
  json["complete"] = s.complete();
  json["hardware"] = Json::object();
  for (const HardwareProfile& h : s.options.hardware) json["hardware"][h.name] = profile_json(h);
  json["points"] = Json::array();
  for (const SweepPoint& p : s.points) json["points"].push_back(written(p, kVisitPoint));
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
  std::vector<SweepPoint> points = read_points(reader, file);
  for (const SweepPoint& p : points)
    if (!asked_for(settings.options, p))
      throw_input_error(
          "{}: it has {} at {} x {} on {}, which this command does not ask for and would lose. Name what the file has, "
          "too (its 'command' names everything), or give another --out.",
          file, p.method, p.batch == kAsManyAsFit ? "max" : std::to_string(p.batch), p.context, p.hardware);
  return points;
}

bool holds_answers(const std::string& text, const std::string& file) {
  return parse_object(text, file).contains("answers");
}

SweepFile parse_sweep(const std::string& text, const std::string& file) {
  const Json json = parse_object(text, file);
  ObjectReader reader(json, file);
  if (reader.integer<int>("schema_version") != kSweepVersion)
    reader.fail("schema_version", fmt::format("{}, which this program reads: simulate anew", kSweepVersion));
  SweepFile out;
  out.program = reader.text("program");
  out.command = reader.text("command");
  Sweep& s = out.sweep;
  s.model = reader.text("model");
  s.layers = reader.integer<std::uint32_t>("layers");
  if (s.layers == 0) reader.fail("layers", "1 or more");
  s.positions = reader.integer<std::uint32_t>("positions");
  s.shape = reader.text("shape");
  if (reader.has("level")) s.options.level = load_level(reader.text("level"));  // older: machine
  s.options.steps = reader.integer<std::uint32_t>("steps");
  if (s.options.steps < 2) reader.fail("steps", "2 or more");
  s.options.prefill_chunk = reader.integer<std::uint32_t>("prefill_chunk");
  s.options.drawn_sequences =
      reader.has("drawn_sequences") ? reader.integer<std::uint32_t>("drawn_sequences") : 0;  // older: all are drawn
  s.options.most_sequences = reader.integer<std::uint32_t>("most_sequences");
  if (s.options.most_sequences == 0) reader.fail("most_sequences", "1 or more");
  if (reader.has("tpot_ms")) s.options.tpot_ms = reader.number_or_null("tpot_ms", 0, kMostTpot).value_or(0);
  s.workload = parse_workload(json_text(reader.object("workload")), file + ", workload");
  for (const auto& [name, profile] : reader.object("hardware").items())
    s.options.hardware.push_back(parse_profile(json_text(profile), name, fmt::format("{}, hardware, {}", file, name)));
  s.points = read_points(reader, file);
  const auto add = [](auto& list, const auto& value) {
    if (std::ranges::find(list, value) == list.end()) list.push_back(value);
  };
  for (const SweepPoint& p : s.points) {
    if (!is_among(s.options.hardware, p.hardware))
      throw_input_error("{}: a point is of the machine '{}', which 'hardware' does not have.", file, p.hardware);
    add(s.options.batches, p.batch);
    add(s.options.contexts, p.context);
    add(s.options.methods, p.method);
  }
  if (reader.has("answers")) s.options.answers = parse_answers(reader.object("answers"), file + ", answers");
  if (reader.text("clock") != "simulated") reader.fail("clock", "\"simulated\"");
  out.complete = reader.boolean("complete");
  reader.finish();
  if (out.complete && !s.complete()) reader.fail("complete", "false, since points are missing");
  if (!out.complete) {  // the heaviest points come first, so that not every place has its lists in order
    std::ranges::sort(s.options.contexts);
    std::ranges::sort(s.options.batches,
                      [](std::uint32_t x, std::uint32_t y) { return x - 1 < y - 1; });  // as many as fit: last
  }
  if (s.points.empty()) throw_input_error("{}: the sweep has no point yet.", file);
  if (s.options.answers)
    for (const MethodAnswers& m : s.options.answers->methods)
      if (std::ranges::find(s.options.methods, m.method) == s.options.methods.end() && out.complete)
        throw_input_error("{}: 'answers' has the method '{}', which no point is of.", file, m.method);
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
  text += ",step_low_ms,step_high_ms,widest_range";
  text += ",score,loss,loss_low,loss_high,loss_standing\n";
  for (const SweepPoint& p : s.points) {
    const PredictedRow& r = p.row;
    text += fmt::format("{},{},simulated,{},{},{},{},{},{}", csv_cell(s.model), csv_cell(p.hardware),
                        p.batch == kAsManyAsFit ? "max" : std::to_string(p.batch), p.sequences, p.context,
                        csv_cell(p.method), p.lossless ? 1 : 0, csv_cell(r.refused));
    if (!r.refused.empty()) {
      text += std::string(7 + kCauseCount + 9, ',') + answers_cells(s, p) + "\n";
      continue;
    }
    text += fmt::format(",{:.6f},{:.6f},{:.3f},{:.6f},{:.6f},{:.6f},{:.6f}",
                        r.prefill_ms + r.setup_ms + r.first_step_ms, r.step_ms, p.tokens_per_second(), r.busy_ms,
                        r.idle_ms, r.idle_ms / r.step_ms, r.idle_ms / s.layers);
    for (const double ms : r.idle_ms_by_cause) text += fmt::format(",{:.6f}", ms);
    text += fmt::format(",{:.3f},{:.3f},{:.1f},{},{},{}", r.attended_device, r.attended_host, r.touched_bytes,
                        r.device_kv_bytes, r.host_kv_bytes, r.peer_kv_bytes);
    text += r.step_high_ms > 0
                ? fmt::format(",{:.6f},{:.6f},{}", r.step_low_ms, r.step_high_ms, csv_cell(r.widest_range))
                : ",,,";
    text += answers_cells(s, p) + "\n";
  }
  return text;
}

}  // namespace tandem::eval
