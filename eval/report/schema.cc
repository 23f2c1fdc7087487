#include "eval/report/schema.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "eval/report/json_reader.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

template <class Item>
void write_key(Json& json, const Item& item) {
  json["benchmark"] = item.benchmark;
  json["task"] = item.task;
  json["length"] = item.length;
  json["index"] = item.index;
  json["method"] = item.method;
}

template <class Item>
void read_key(ObjectReader& in, Item& item) {
  item.benchmark = in.text("benchmark", false);
  item.task = in.text("task", false);
  item.length = in.integer<std::uint32_t>("length");
  item.index = in.integer<std::uint32_t>("index");
  item.method = in.text("method", false);
}

void read_clock(ObjectReader& in, std::string& clock, bool may_be_empty) {
  clock = in.text("clock", may_be_empty);
  if (!clock.empty() && !is_clock(clock)) in.fail("clock", "\"simulated for <profile>\" or \"measured on <machine>\"");
}

/// Empty when the sums of idle accounting hold, else what is wrong.
std::string broken_sum(const SampleTiming& timing) {
  std::int64_t causes = 0;
  for (const auto& [cause, ns] : timing.idle_by_cause) causes += ns;
  if (timing.busy_ns + timing.idle_ns != timing.window_ns)
    return fmt::format("busy_ns {} + idle_ns {} must be window_ns {}", timing.busy_ns, timing.idle_ns,
                       timing.window_ns);
  if (causes != timing.idle_ns)
    return fmt::format("the times of idle_by_cause sum to {}, but idle_ns is {}", causes, timing.idle_ns);
  if (timing.layer0_idle_ns > timing.idle_ns)
    return fmt::format("layer0_idle_ns {} is more than idle_ns {}", timing.layer0_idle_ns, timing.idle_ns);
  if (timing.steps != (timing.steps == 0 ? 0 : 1) + timing.step_ns.size())
    return fmt::format("step_ns lists {} steps after the first, but steps is {}", timing.step_ns.size(), timing.steps);
  return "";
}

constexpr double kMostLogit = 1e39;  // any f32

Json json_of(const Parting::Choice& choice) {
  for (const double logit : choice.logits) TANDEM_CHECK(std::abs(logit) <= kMostLogit, "logit {}", logit);
  return {{"tokens", choice.tokens}, {"logits", choice.logits}};
}

Json json_of(const Parting& parted) {
  return {{"step", parted.step}, {"gap", parted.gap()}, {"full", json_of(parted.full)}, {"own", json_of(parted.own)}};
}

Parting::Choice read_choice(ObjectReader& parted, const char* name) {
  ObjectReader in(parted.object(name), parted.where() + ", " + name);
  Parting::Choice choice;
  const Json &tokens = in.array("tokens"), &logits = in.array("logits");
  if (tokens.size() != 2) in.fail("tokens", "a list of two tokens");
  if (logits.size() != 2) in.fail("logits", "a list of two numbers");
  for (std::size_t i = 0; i < 2; ++i) {
    choice.tokens[i] = in.as_integer<std::int32_t>(tokens[i], "tokens");
    choice.logits[i] = logits[i].is_number() ? logits[i].get<double>() : 2 * kMostLogit;
    if (!(std::abs(choice.logits[i]) <= kMostLogit)) in.fail("logits", "a list of two numbers");
  }
  in.finish();
  return choice;
}

Parting read_parting(ObjectReader& sample) {
  ObjectReader in(sample.object("parted"), sample.where() + ", parted");
  Parting parted;
  parted.step = in.integer<std::uint32_t>("step");
  parted.full = read_choice(in, "full");
  parted.own = read_choice(in, "own");
  const double gap = in.number("gap", -2 * kMostLogit, 2 * kMostLogit);
  if (gap != parted.gap()) in.fail("gap", "the difference of full's logits");
  in.finish();
  return parted;
}

constexpr double kMostNats = 1e30;  // no sum of these overflows

constexpr const char* kBytes[] = {"hbm", "dram", "h2d", "d2h"};

}  // namespace

Json parse_object(std::string_view text, const std::string& where) {
  Json result = parse_ordered_json(text, where);
  if (!result.is_object()) throw_input_error("{}: an object was expected.", where);
  return result;
}

bool is_simulated(std::string_view clock) {
  return clock.starts_with("simulated for ") && clock.size() > 14;
}

bool is_clock(std::string_view clock) {
  return is_simulated(clock) || (clock.starts_with("measured on ") && clock.size() > 12);
}

void write_programs(Json& json, const std::vector<Program>& all) {
  json["tandem_version"] = all.front().tandem_version;
  json["git_commit"] = all.front().git_commit;
  for (std::size_t i = 1; i < all.size(); ++i)
    json["later_programs"].push_back({{"tandem_version", all[i].tandem_version}, {"git_commit", all[i].git_commit}});
}

void write_programs(Json& json, const Manifest& manifest) {
  write_programs(json, manifest.programs());
}

std::vector<Program> read_programs(ObjectReader& in) {
  std::vector<Program> all = {{in.text("tandem_version"), in.text("git_commit")}};
  if (!in.has("later_programs")) return all;
  for (const Json& item : in.array("later_programs")) {
    ObjectReader program(item, in.where() + ", later_programs");
    all.push_back({program.text("tandem_version"), program.text("git_commit")});
    program.finish();
  }
  return all;
}

std::vector<Program> with_program(std::vector<Program> there, const Program& one) {
  if (std::find(there.begin(), there.end(), one) == there.end()) there.push_back(one);
  return there;
}

std::vector<Program> Manifest::programs() const {
  std::vector<Program> all = {{tandem_version, git_commit}};
  all.insert(all.end(), later_programs.begin(), later_programs.end());
  return all;
}

void Manifest::set_programs(const std::vector<Program>& all) {
  tandem_version = all.front().tandem_version;
  git_commit = all.front().git_commit;
  later_programs.assign(all.begin() + 1, all.end());
}

void Manifest::set_samples(std::vector<std::uint32_t> of_tasks) {
  samples = *std::max_element(of_tasks.begin(), of_tasks.end());
  const bool alike = std::all_of(of_tasks.begin(), of_tasks.end(), [&](std::uint32_t n) { return n == samples; });
  task_samples = alike ? std::vector<std::uint32_t>() : std::move(of_tasks);
}

std::uint32_t Manifest::samples_of(std::string_view task) const {
  const auto found = std::find(tasks.begin(), tasks.end(), task);
  if (found == tasks.end()) return 0;
  return task_samples.empty() ? samples : task_samples[static_cast<std::size_t>(found - tasks.begin())];
}

std::uint64_t Manifest::all_samples() const {
  std::uint64_t sum = 0;
  for (const std::string& task : tasks) sum += samples_of(task);
  return sum * lengths.size();
}

std::string to_line(const SampleResult& sample) {
  TANDEM_CHECK(sample.score >= 0 && sample.score <= 1, "score {}", sample.score);
  TANDEM_CHECK(!sample.depth || (*sample.depth >= 0 && *sample.depth <= 1), "depth {}", sample.depth.value_or(0));
  Json json;
  write_key(json, sample);
  json["prompt_tokens"] = sample.prompt_tokens;
  json["tokens"] = sample.tokens;
  json["prediction"] = sample.prediction;
  json["answers"] = sample.answers;
  json["score"] = sample.score;
  json["near_ties"] = Json::array();
  for (const NearTieMark& tie : sample.near_ties) {
    TANDEM_CHECK(tie.margin >= 0 && tie.margin <= 1e30, "margin {}", tie.margin);
    json["near_ties"].push_back({{"step", tie.step}, {"margin", tie.margin}});
  }
  json["depth"] = sample.depth ? Json(*sample.depth) : Json();
  if (sample.document) json["document"] = *sample.document;
  if (!sample.by_rule.empty()) {
    json["rule"] = sample.rule ? Json(*sample.rule) : Json();
    json["by_rule"] = Json::object();
    for (const auto& [rule, score] : sample.by_rule) {
      TANDEM_CHECK(score >= 0 && score <= 1, "score {} by {}", score, rule);
      json["by_rule"][rule] = score;
    }
  }
  if (sample.parted) json["parted"] = json_of(*sample.parted);
  return json_text(json);
}

std::string to_line(const WindowLoss& window) {
  TANDEM_CHECK(window.nll >= 0 && window.nll <= kMostNats, "loss {}", window.nll);
  Json json;
  write_key(json, window);
  json["first_token"] = window.first_token;
  json["scored"] = window.scored;
  json["nll"] = window.nll;
  json["nll_by_position"] = window.nll_by_position;
  return json_text(json);
}

std::string to_line(const SampleTiming& timing) {
  TANDEM_CHECK(is_clock(timing.clock), "clock '{}'", timing.clock);
  TANDEM_CHECK(broken_sum(timing).empty(), "{}", broken_sum(timing));
  Json json;
  write_key(json, timing);
  json["clock"] = timing.clock;
  json["prefill_ns"] = timing.prefill_ns;
  json["setup_ns"] = timing.setup_ns;
  json["first_step_ns"] = timing.first_step_ns;
  json["step_ns"] = timing.step_ns;
  json["window_ns"] = timing.window_ns;
  json["busy_ns"] = timing.busy_ns;
  json["idle_ns"] = timing.idle_ns;
  json["idle_by_cause"] = Json::object();
  for (const auto& [cause, ns] : timing.idle_by_cause) {
    TANDEM_CHECK(!json["idle_by_cause"].contains(cause), "idle cause '{}' is listed twice", cause);
    json["idle_by_cause"][cause] = ns;
  }
  json["layer0_idle_ns"] = timing.layer0_idle_ns;
  json["bytes"] = {
      {"hbm", timing.bytes.hbm}, {"dram", timing.bytes.dram}, {"h2d", timing.bytes.h2d}, {"d2h", timing.bytes.d2h}};
  if (timing.bytes.touched > 0) json["bytes"]["touched"] = timing.bytes.touched;
  if (timing.bytes.peer_link > 0) json["bytes"]["peer_link"] = timing.bytes.peer_link;
  if (timing.bytes.peer_hbm > 0) json["bytes"]["peer_hbm"] = timing.bytes.peer_hbm;
  json["flops"] = timing.flops;
  if (timing.peer_flops > 0) json["peer_flops"] = timing.peer_flops;
  json["steps"] = timing.steps;
  json["device_kv_bytes"] = timing.device_kv_bytes;
  json["host_kv_bytes"] = timing.host_kv_bytes;
  if (timing.peer_kv_bytes > 0) json["peer_kv_bytes"] = timing.peer_kv_bytes;
  json["tokens_attended_device"] = timing.tokens_attended_device;
  json["tokens_attended_host"] = timing.tokens_attended_host;
  return json_text(json);
}

std::string to_json_text(const Manifest& manifest) {
  Json json;
  json["schema_version"] = manifest.schema_version;
  json["command"] = manifest.command;
  write_programs(json, manifest);
  json["model"] = manifest.model;
  json["weights_hash"] = manifest.weights_hash;
  if (manifest.schema_version >= 10) json["config_hash"] = manifest.config_hash;
  json["tokenizer_hash"] = manifest.tokenizer_hash;
  json["methods"] = Json::array();
  for (const MethodEntry& method : manifest.methods) {
    Json options = Json::object();
    for (const auto& [name, value] : method.options) options[name] = value;
    json["methods"].push_back({{"label", method.label}, {"name", method.name}, {"options", options}});
    if (!method.content.empty()) json["methods"].back()["content"] = method.content;
  }
  json["benchmark"] = manifest.benchmark;
  json["tasks"] = manifest.tasks;
  json["lengths"] = manifest.lengths;
  json["samples"] = manifest.samples;
  if (!manifest.task_samples.empty()) json["task_samples"] = manifest.task_samples;
  json["seed"] = manifest.seed;
  json["protocol_id"] = manifest.protocol_id;
  if (manifest.schema_version >= 8) {
    json["precision"] = manifest.precision;
    json["prefill_chunk"] = manifest.prefill_chunk;
  }
  json["hardware_profile"] = manifest.hardware_profile;
  if (manifest.schema_version >= 5) json["hardware_hash"] = manifest.hardware_hash;
  json["clock"] = manifest.clock;
  json["machine"] = {{"cpu_model", manifest.machine.cpu_model},
                     {"device", manifest.machine.device},
                     {"cores", manifest.machine.cores},
                     {"memory_bytes", manifest.machine.memory_bytes}};
  if (manifest.schema_version >= 2) json["isa"] = manifest.isa;
  if (manifest.schema_version >= 14) json["openblas"] = manifest.openblas;
  json["threads"] = manifest.threads;
  json["started_utc"] = manifest.started_utc;
  json["finished_utc"] = manifest.finished_utc;
  return json_text(json, 1) + "\n";
}

SampleResult parse_sample(std::string_view line, const std::string& where) {
  const Json json = parse_object(line, where);
  ObjectReader in(json, where);
  SampleResult sample;
  read_key(in, sample);
  sample.prompt_tokens = in.integer<std::uint32_t>("prompt_tokens");
  for (const Json& token : in.array("tokens")) sample.tokens.push_back(in.as_integer<std::int32_t>(token, "tokens"));
  sample.prediction = in.text("prediction");
  sample.answers = in.texts("answers");
  sample.score = in.number("score", 0, 1);
  for (const Json& item : in.array("near_ties")) {
    ObjectReader tie(item, where + ", near_ties");
    NearTieMark mark;
    mark.step = tie.integer<std::uint32_t>("step");
    mark.margin = tie.number("margin", 0, 1e30);
    tie.finish();
    sample.near_ties.push_back(mark);
  }
  sample.depth = in.number_or_null("depth", 0, 1);
  if (in.has("document")) sample.document = in.integer<std::uint32_t>("document");
  if (in.has("by_rule")) {
    sample.rule = in.text_or_null("rule");
    const Json& scores = in.object("by_rule");
    ObjectReader by_rule(scores, where + ", by_rule");
    for (const auto& [rule, score] : scores.items())
      sample.by_rule.emplace_back(rule, by_rule.number(rule.c_str(), 0, 1));
    by_rule.finish();
  }
  if (in.has("parted")) sample.parted = read_parting(in);
  in.finish();
  return sample;
}

WindowLoss parse_window(std::string_view line, const std::string& where) {
  const Json json = parse_object(line, where);
  ObjectReader in(json, where);
  WindowLoss window;
  read_key(in, window);
  window.first_token = in.integer<std::uint64_t>("first_token");
  window.scored = in.integer<std::uint32_t>("scored");
  window.nll = in.number("nll", 0, kMostNats);
  for (const Json& item : in.array("nll_by_position")) {
    const double nats = item.is_number() ? item.get<double>() : -1;
    if (!(nats >= 0 && nats <= kMostNats)) in.fail("nll_by_position", "a list of numbers, 0 or more");
    window.nll_by_position.push_back(nats);
  }
  const std::size_t stretches = window.nll_by_position.size();
  if (stretches < 1 || stretches > window.scored)
    in.fail("nll_by_position", "a list of one number or more, and no more than tokens are scored");
  in.finish();
  return window;
}

SampleTiming parse_timing(std::string_view line, const std::string& where) {
  const Json json = parse_object(line, where);
  ObjectReader in(json, where);
  SampleTiming timing;
  read_key(in, timing);
  read_clock(in, timing.clock, false);
  // Sums of a line's times must stay inside 64 bits, so single times end at 2^53 ns, which is 104 days.
  constexpr std::int64_t kLongest = std::int64_t{1} << 53;
  const auto time = [&](std::int64_t ns, const char* name) {
    if (ns < 0 || ns > kLongest) in.fail(name, fmt::format("nanoseconds from 0 to {}", kLongest));
    return ns;
  };
  timing.prefill_ns = time(in.duration("prefill_ns"), "prefill_ns");
  timing.setup_ns = time(in.duration("setup_ns"), "setup_ns");
  timing.first_step_ns = time(in.duration("first_step_ns"), "first_step_ns");
  for (const Json& ns : in.array("step_ns"))
    timing.step_ns.push_back(time(in.as_integer<std::int64_t>(ns, "step_ns"), "step_ns"));
  timing.window_ns = time(in.duration("window_ns"), "window_ns");
  timing.busy_ns = time(in.duration("busy_ns"), "busy_ns");
  timing.idle_ns = time(in.duration("idle_ns"), "idle_ns");
  const Json& causes = in.object("idle_by_cause");
  if (causes.size() > 100) in.fail("idle_by_cause", "an object of at most 100 causes");
  for (const auto& item : causes.items())
    timing.idle_by_cause.emplace_back(
        item.key(), time(in.as_integer<std::int64_t>(item.value(), "idle_by_cause"), "idle_by_cause"));
  if (json.contains("layer0_idle_ns")) timing.layer0_idle_ns = time(in.duration("layer0_idle_ns"), "layer0_idle_ns");
  ObjectReader bytes(in.object("bytes"), where + ", bytes");
  std::uint64_t* const counts[] = {&timing.bytes.hbm, &timing.bytes.dram, &timing.bytes.h2d, &timing.bytes.d2h};
  for (int i = 0; i < 4; ++i) *counts[i] = bytes.integer<std::uint64_t>(kBytes[i]);
  if (bytes.has("touched")) timing.bytes.touched = bytes.integer<std::uint64_t>("touched");
  if (bytes.has("peer_link")) timing.bytes.peer_link = bytes.integer<std::uint64_t>("peer_link");
  if (bytes.has("peer_hbm")) timing.bytes.peer_hbm = bytes.integer<std::uint64_t>("peer_hbm");
  bytes.finish();
  timing.flops = in.integer<std::uint64_t>("flops");
  if (in.has("peer_flops")) timing.peer_flops = in.integer<std::uint64_t>("peer_flops");
  timing.steps = in.integer<std::uint32_t>("steps");
  timing.device_kv_bytes = in.integer<std::uint64_t>("device_kv_bytes");
  timing.host_kv_bytes = in.integer<std::uint64_t>("host_kv_bytes");
  if (in.has("peer_kv_bytes")) timing.peer_kv_bytes = in.integer<std::uint64_t>("peer_kv_bytes");
  timing.tokens_attended_device = in.integer<std::uint64_t>("tokens_attended_device");
  timing.tokens_attended_host = in.integer<std::uint64_t>("tokens_attended_host");
  in.finish();
  if (const std::string wrong = broken_sum(timing); !wrong.empty()) throw_input_error("{}: {}.", where, wrong);
  return timing;
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  const Json json = parse_object(text, where);
  ObjectReader in(json, where);
  Manifest manifest;
  manifest.schema_version = in.integer<int>("schema_version");
  if (manifest.schema_version < 1 || manifest.schema_version > kSchemaVersion)
    throw UnknownSchema(fmt::format(
        "{}: the schema version is {}, but this program reads versions 1 to {}. Use the program that made the run.",
        where, manifest.schema_version, kSchemaVersion));
  manifest.command = in.text("command");
  manifest.set_programs(read_programs(in));
  manifest.model = in.text("model");
  manifest.weights_hash = in.text("weights_hash");
  if (manifest.schema_version >= 10) manifest.config_hash = in.text("config_hash");
  manifest.tokenizer_hash = in.text("tokenizer_hash");
  std::set<std::string> labels;
  for (const Json& item : in.array("methods")) {
    ObjectReader method(item, where + ", methods");
    MethodEntry entry{method.text("label", false), method.text("name", false), {}, {}};
    for (const auto& option : method.object("options").items()) {
      if (!option.value().is_string()) method.fail("options", "an object of strings");
      entry.options.emplace_back(option.key(), option.value().get<std::string>());
    }
    if (method.has("content")) entry.content = method.text("content", false);
    method.finish();
    if (!labels.insert(entry.label).second)
      throw_input_error("{}: two methods have the label '{}'.", where, entry.label);
    manifest.methods.push_back(std::move(entry));
  }
  if (manifest.methods.empty()) in.fail("methods", "a list of one or more methods");
  manifest.benchmark = in.text("benchmark");
  manifest.tasks = in.texts("tasks");
  for (const Json& length : in.array("lengths"))
    manifest.lengths.push_back(in.as_integer<std::uint32_t>(length, "lengths"));
  manifest.samples = in.integer<std::uint32_t>("samples");
  if (in.has("task_samples")) {
    for (const Json& samples : in.array("task_samples")) {
      manifest.task_samples.push_back(in.as_integer<std::uint32_t>(samples, "task_samples"));
      if (manifest.task_samples.back() > manifest.samples) in.fail("task_samples", "numbers of at most 'samples'");
    }
    if (manifest.task_samples.size() != manifest.tasks.size()) in.fail("task_samples", "a number for each task");
  }
  manifest.seed = in.integer<std::uint64_t>("seed");
  manifest.protocol_id = in.text("protocol_id");
  if (manifest.schema_version >= 8) {
    manifest.precision = in.text("precision");
    manifest.prefill_chunk = in.integer<std::uint32_t>("prefill_chunk");
  }
  manifest.hardware_profile = in.text("hardware_profile");
  if (manifest.schema_version >= 5) manifest.hardware_hash = in.text("hardware_hash");
  read_clock(in, manifest.clock, true);
  ObjectReader machine(in.object("machine"), where + ", machine");
  manifest.machine.cpu_model = machine.text("cpu_model");
  manifest.machine.device = machine.text("device");
  manifest.machine.cores = machine.integer<std::uint32_t>("cores");
  manifest.machine.memory_bytes = machine.integer<std::uint64_t>("memory_bytes");
  machine.finish();
  if (manifest.schema_version >= 2) manifest.isa = in.text("isa");
  if (manifest.schema_version >= 14) manifest.openblas = in.text("openblas");
  manifest.threads = in.integer<std::uint32_t>("threads");
  manifest.started_utc = in.text("started_utc");
  manifest.finished_utc = in.text("finished_utc");
  in.finish();
  return manifest;
}

}  // namespace tandem::eval
