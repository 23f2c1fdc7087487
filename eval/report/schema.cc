#include "eval/report/schema.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fmt/chrono.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <thread>
#include <unistd.h>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "eval/report/json_fields.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

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

constexpr double kMostMargin = 1e30;
constexpr double kMostNats = 1e30;  // no sum of these overflows

// Each of these serves writing and reading.

constexpr auto kVisitKey = [](auto& f, auto& item) {
  f.filled("benchmark", item.benchmark);
  f.filled("task", item.task);
  f.field("length", item.length);
  f.field("index", item.index);
  f.filled("method", item.method);
};

constexpr auto kVisitClock = [](auto& f, auto& clock) {
  f.field("clock", clock);
  f.require(clock.empty() || is_clock(clock), "clock", "\"simulated for <profile>\" or \"measured on <machine>\"");
};

void visit_choice(ObjectWriter& out, const Parting::Choice& choice) {
  for (const double logit : choice.logits) TANDEM_CHECK(std::abs(logit) <= kMostLogit, "logit {}", logit);
  out.field("tokens", choice.tokens);
  out.field("logits", choice.logits);
}

void visit_choice(ObjectReader& in, Parting::Choice& choice) {
  const Json &tokens = in.array("tokens"), &logits = in.array("logits");
  in.require(tokens.size() == 2, "tokens", "a list of two tokens");
  in.require(logits.size() == 2, "logits", "a list of two numbers");
  for (std::size_t i = 0; i < 2; ++i) {
    choice.tokens[i] = in.as_integer<std::int32_t>(tokens[i], "tokens");
    choice.logits[i] = logits[i].is_number() ? logits[i].get<double>() : 2 * kMostLogit;
    in.require(std::abs(choice.logits[i]) <= kMostLogit, "logits", "a list of two numbers");
  }
}

constexpr auto kVisitParting = [](auto& f, auto& parted) {
  double gap = parted.gap();
  f.field("step", parted.step);
  f.number("gap", gap, -2 * kMostLogit, 2 * kMostLogit);
  f.object("full", [&](auto& in) { visit_choice(in, parted.full); });
  f.object("own", [&](auto& in) { visit_choice(in, parted.own); });
  f.require(gap == parted.gap(), "gap", "the difference of full's logits");
};

constexpr auto kVisitSample = [](auto& f, auto& sample) {
  kVisitKey(f, sample);
  f.field("prompt_tokens", sample.prompt_tokens);
  f.field("tokens", sample.tokens);
  f.field("prediction", sample.prediction);
  f.field("answers", sample.answers);
  f.number("score", sample.score, 0, 1);
  f.list("near_ties", sample.near_ties, [](auto& in, auto& tie) {
    in.field("step", tie.step);
    in.number("margin", tie.margin, 0, kMostMargin);
  });
  f.number("depth", sample.depth, 0, 1);
  f.optional("document", sample.document);
  if (f.present("by_rule", !sample.by_rule.empty())) {
    f.field("rule", sample.rule);
    f.entries("by_rule", sample.by_rule,
              [](auto& in, const char* rule, const auto& /*score*/) { return in.number(rule, 0, 1); });
  }
  if (f.present("parted", sample.parted.has_value()))
    f.object("parted", [&](auto& in) {
      if constexpr (kReads<decltype(f)>) sample.parted.emplace();
      kVisitParting(in, *sample.parted);
    });
};

void visit_nats(ObjectWriter& out, const std::vector<double>& nats) {
  out.field("nll_by_position", nats);
}

void visit_nats(ObjectReader& in, std::vector<double>& nats) {
  for (const Json& item : in.array("nll_by_position")) {
    nats.push_back(item.is_number() ? item.get<double>() : -1);
    in.require(nats.back() >= 0 && nats.back() <= kMostNats, "nll_by_position", "a list of numbers, 0 or more");
  }
}

constexpr auto kVisitWindow = [](auto& f, auto& window) {
  kVisitKey(f, window);
  f.field("first_token", window.first_token);
  f.field("scored", window.scored);
  f.number("nll", window.nll, 0, kMostNats);
  visit_nats(f, window.nll_by_position);
  const std::size_t stretches = window.nll_by_position.size();
  f.require(stretches >= 1 && stretches <= window.scored, "nll_by_position",
            "a list of one number or more, and no more than tokens are scored");
};

// Sums of a line's times must stay inside 64 bits, so single times end at 2^53 ns, which is 104 days.
constexpr std::int64_t kLongest = std::int64_t{1} << 53;
constexpr const char* kTimes = "nanoseconds from 0 to 9007199254740992";

constexpr auto kVisitTiming = [](auto& f, auto& timing) {
  const auto is_time = [](std::int64_t ns) { return ns >= 0 && ns <= kLongest; };
  const auto time = [&](const char* name, auto& ns) {
    f.field(name, ns);
    f.require(ns >= 0, name, "0 or more");
    f.require(is_time(ns), name, kTimes);
  };
  kVisitKey(f, timing);
  kVisitClock(f, timing.clock);
  f.require(!timing.clock.empty(), "clock", "a string that is not empty");
  time("prefill_ns", timing.prefill_ns);
  time("setup_ns", timing.setup_ns);
  time("first_step_ns", timing.first_step_ns);
  f.field("step_ns", timing.step_ns);
  f.require(std::ranges::all_of(timing.step_ns, is_time), "step_ns", kTimes);
  time("window_ns", timing.window_ns);
  time("busy_ns", timing.busy_ns);
  time("idle_ns", timing.idle_ns);
  f.entries("idle_by_cause", timing.idle_by_cause, [&](auto& /*in*/, const char* /*cause*/, const auto& ns) {
    const auto value = f.template as_integer<std::int64_t>(ns, "idle_by_cause");
    f.require(is_time(value), "idle_by_cause", kTimes);
    return value;
  });
  f.require(timing.idle_by_cause.size() <= 100, "idle_by_cause", "an object of at most 100 causes");
  if (f.present("layer0_idle_ns", true)) time("layer0_idle_ns", timing.layer0_idle_ns);
  if (f.present("bringing_ns", timing.bringing_ns > 0)) {
    time("bringing_ns", timing.bringing_ns);
    time("waited_ns", timing.waited_ns);
  }
  f.object("bytes", [&](auto& in) {
    in.field("hbm", timing.bytes.hbm);
    in.field("dram", timing.bytes.dram);
    in.field("h2d", timing.bytes.h2d);
    in.field("d2h", timing.bytes.d2h);
    in.optional("touched", timing.bytes.touched);
    in.optional("looked_up", timing.bytes.looked_up);
    in.optional("missed", timing.bytes.missed);
    in.optional("late", timing.bytes.late);
    in.optional("cancelled", timing.bytes.cancelled);
    in.optional("peer_link", timing.bytes.peer_link);
    in.optional("peer_hbm", timing.bytes.peer_hbm);
  });
  f.field("flops", timing.flops);
  f.optional("peer_flops", timing.peer_flops);
  f.field("steps", timing.steps);
  f.field("device_kv_bytes", timing.device_kv_bytes);
  f.field("host_kv_bytes", timing.host_kv_bytes);
  f.optional("peer_kv_bytes", timing.peer_kv_bytes);
  f.field("tokens_attended_device", timing.tokens_attended_device);
  f.field("tokens_attended_host", timing.tokens_attended_host);
  f.optional("reused_tokens", timing.reused_tokens);
};

constexpr auto kVisitProgram = [](auto& f, auto& program) {
  f.field("tandem_version", program.tandem_version);
  f.field("git_commit", program.git_commit);
};

/// The first, and others where there are any.
constexpr auto kVisitPrograms = [](auto& f, auto& programs) {
  kVisitProgram(f, programs.front());
  if (!f.present("later_programs", programs.size() > 1)) return;
  if constexpr (kReads<decltype(f)>)
    f.list("later_programs", programs, kVisitProgram);
  else
    f.list("later_programs", std::span(programs).subspan(1), kVisitProgram);
};

constexpr auto kVisitMethod = [](auto& f, auto& method) {
  f.filled("label", method.label);
  f.filled("name", method.name);
  f.entries("options", method.options, [&](auto& /*in*/, const char* /*name*/, const auto& value) {
    f.require(value.is_string(), "options", "an object of strings");
    return value.template get<std::string>();
  });
  if (f.present("content", !method.content.empty())) f.filled("content", method.content);
};

constexpr auto kVisitManifest = [](auto& f, auto& manifest) {
  const int version = manifest.schema_version;
  f.field("schema_version", manifest.schema_version);
  f.field("command", manifest.command);
  kVisitPrograms(f, manifest.programs);
  f.field("model", manifest.model);
  f.field("weights_hash", manifest.weights_hash);
  if (version >= 10) f.field("config_hash", manifest.config_hash);
  f.field("tokenizer_hash", manifest.tokenizer_hash);
  f.list("methods", manifest.methods, kVisitMethod);
  f.require(!manifest.methods.empty(), "methods", "a list of one or more methods");
  f.field("benchmark", manifest.benchmark);
  f.field("tasks", manifest.tasks);
  f.field("lengths", manifest.lengths);
  f.field("samples", manifest.samples);
  if (f.present("task_samples", !manifest.task_samples.empty())) {
    f.field("task_samples", manifest.task_samples);
    const bool fewer = std::ranges::all_of(manifest.task_samples, [&](auto n) { return n <= manifest.samples; });
    f.require(fewer, "task_samples", "numbers of at most 'samples'");
    f.require(manifest.task_samples.size() == manifest.tasks.size(), "task_samples", "a number for each task");
  }
  f.field("seed", manifest.seed);
  f.field("protocol_id", manifest.protocol_id);
  if (version >= 8) {
    f.field("precision", manifest.precision);
    f.field("prefill_chunk", manifest.prefill_chunk);
  }
  f.field("hardware_profile", manifest.hardware_profile);
  if (version >= 5) f.field("hardware_hash", manifest.hardware_hash);
  kVisitClock(f, manifest.clock);
  f.object("machine", [&](auto& in) {
    in.field("cpu_model", manifest.machine.cpu_model);
    in.field("device", manifest.machine.device);
    in.field("cores", manifest.machine.cores);
    in.field("memory_bytes", manifest.machine.memory_bytes);
  });
  if (version >= 2) f.field("isa", manifest.isa);
  if (version >= 14) f.field("openblas", manifest.openblas);
  f.field("threads", manifest.threads);
  f.field("started_utc", manifest.started_utc);
  f.field("finished_utc", manifest.finished_utc);
};

template <class Item>
Item read_item(std::string_view text, const std::string& where, const auto& visit) {
  const Json json = parse_object(text, where);
  ObjectReader in(json, where);
  Item item;
  visit(in, item);
  in.finish();
  return item;
}

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
  json.update(written(all, kVisitPrograms));
}

std::vector<Program> read_programs(ObjectReader& in) {
  std::vector<Program> all(1);
  kVisitPrograms(in, all);
  return all;
}

std::vector<Program> with_program(std::vector<Program> there, const Program& one) {
  if (std::ranges::find(there, one) == there.end()) there.push_back(one);
  return there;
}

void Manifest::set_samples(std::vector<std::uint32_t> of_tasks) {
  samples = *std::ranges::max_element(of_tasks);
  const bool alike = std::ranges::all_of(of_tasks, [&](std::uint32_t n) { return n == samples; });
  task_samples = alike ? std::vector<std::uint32_t>() : std::move(of_tasks);
}

std::uint32_t Manifest::samples_of(std::string_view task) const {
  const auto found = std::ranges::find(tasks, task);
  if (found == tasks.end()) return 0;
  return task_samples.empty() ? samples : task_samples[static_cast<std::size_t>(found - tasks.begin())];
}

std::uint64_t Manifest::all_samples() const {
  std::uint64_t sum = 0;
  for (const std::string& task : tasks) sum += samples_of(task);
  return sum * lengths.size();
}

Machine this_machine() {
  Machine machine;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; machine.cpu_model.empty() && std::getline(in, line);)
    if (const std::size_t colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      machine.cpu_model = line.substr(colon + 2);
  if (machine.cpu_model.empty()) machine.cpu_model = "unknown";
  machine.cores = std::max(1u, std::thread::hardware_concurrency());
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && size > 0)
    machine.memory_bytes = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size);
  return machine;
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

std::string to_line(const SampleResult& sample) {
  TANDEM_CHECK(sample.score >= 0 && sample.score <= 1, "score {}", sample.score);
  TANDEM_CHECK(!sample.depth || (*sample.depth >= 0 && *sample.depth <= 1), "depth {}", sample.depth.value_or(0));
  for (const NearTieMark& tie : sample.near_ties)
    TANDEM_CHECK(tie.margin >= 0 && tie.margin <= kMostMargin, "margin {}", tie.margin);
  for (const auto& [rule, score] : sample.by_rule)
    TANDEM_CHECK(score >= 0 && score <= 1, "score {} by {}", score, rule);
  return json_text(written(sample, kVisitSample));
}

std::string to_line(const WindowLoss& window) {
  TANDEM_CHECK(window.nll >= 0 && window.nll <= kMostNats, "loss {}", window.nll);
  return json_text(written(window, kVisitWindow));
}

std::string to_line(const SampleTiming& timing) {
  TANDEM_CHECK(is_clock(timing.clock), "clock '{}'", timing.clock);
  TANDEM_CHECK(broken_sum(timing).empty(), "{}", broken_sum(timing));
  return json_text(written(timing, kVisitTiming));
}

std::string to_json_text(const Manifest& manifest) {
  return json_text(written(manifest, kVisitManifest), 1) + "\n";
}

template <class Item>
Item parse_line(std::string_view line, const std::string& where) {
  if constexpr (std::is_same_v<Item, SampleResult>) return read_item<Item>(line, where, kVisitSample);
  if constexpr (std::is_same_v<Item, WindowLoss>) return read_item<Item>(line, where, kVisitWindow);
  if constexpr (std::is_same_v<Item, SampleTiming>) {
    const Item timing = read_item<Item>(line, where, kVisitTiming);
    if (const std::string wrong = broken_sum(timing); !wrong.empty()) throw_input_error("{}: {}.", where, wrong);
    return timing;
  }
}
template SampleResult parse_line(std::string_view line, const std::string& where);
template WindowLoss parse_line(std::string_view line, const std::string& where);
template SampleTiming parse_line(std::string_view line, const std::string& where);

Manifest parse_manifest(std::string_view text, const std::string& where) {
  const Json json = parse_object(text, where);
  ObjectReader in(json, where);
  Manifest manifest;
  manifest.schema_version = in.integer<int>("schema_version");
  if (manifest.schema_version < 1 || manifest.schema_version > kSchemaVersion)
    throw UnknownSchema(fmt::format(
        "{}: the schema version is {}, but this program reads versions 1 to {}. Use the program that made the run.",
        where, manifest.schema_version, kSchemaVersion));
  kVisitManifest(in, manifest);
  in.finish();
  std::set<std::string> labels;
  for (const MethodEntry& method : manifest.methods)
    if (!labels.insert(method.label).second)
      throw_input_error("{}: two methods have the label '{}'.", where, method.label);
  return manifest;
}

}  // namespace tandem::eval
