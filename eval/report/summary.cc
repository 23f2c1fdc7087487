#include "eval/report/summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "eval/report/manifest_difference.h"
#include "eval/ruler_tasks/protocol.h"

namespace tandem::eval {
namespace {

/// Empty task and length 0: of all. `baseline`: null for its own cells.
AccuracyCell cell_of(const Scores& own, const Scores* baseline, const std::string& task, std::uint32_t length,
                     const Repeated& repeated) {
  AccuracyCell cell{task, length, {}, false, {}, 0};
  Scores mine = own;
  std::erase_if(mine, [&](const auto& entry) {
    const auto& [own_task, own_length, index] = entry.first;
    return (!task.empty() && own_task != task) || (length != 0 && own_length != length);
  });
  if (mine.empty()) return cell;
  const PairedScores all = paired_scores(mine, mine, repeated);
  cell.accuracy = estimate_mean(all.second, all.weights);
  cell.units = std::exchange(cell.accuracy.n, all.samples);
  if (baseline == nullptr) return cell;
  const PairedScores both = paired_scores(*baseline, mine, repeated);
  if (both.samples == 0) return cell;
  cell.difference = compare_paired(both.first, both.second, both.weights);
  cell.difference.difference.n = both.samples;
  cell.has_difference = true;
  return cell;
}

/// length 0: of all.
std::optional<LatencySummary> latency_of(const std::vector<SampleTiming>& timings, std::uint32_t length) {
  LatencySummary out;
  std::vector<double> later;
  double touched = 0;
  bool counts_touched = true;
  const auto ms = [](std::int64_t ns) { return double(ns) * 1e-6; };
  for (const SampleTiming& t : timings) {
    if (t.steps == 0 || (length != 0 && t.length != length)) continue;
    ++out.samples;
    out.steps += t.steps;
    out.prefill_ms += ms(t.prefill_ns);
    out.setup_ms += ms(t.setup_ns);
    out.first_step_ms += ms(t.first_step_ns);
    for (const std::int64_t ns : t.step_ns) later.push_back(ms(ns));
    out.step_ms += ms(t.window_ns);
    out.busy_ms += ms(t.busy_ns);
    out.idle_ms += ms(t.idle_ns);
    out.layer0_idle_ms += ms(t.layer0_idle_ns);
    for (const auto& [cause, ns] : t.idle_by_cause) out.idle_ms_by_cause[cause] += ms(ns);
    out.hbm += double(t.bytes.hbm);
    out.dram += double(t.bytes.dram);
    out.h2d += double(t.bytes.h2d);
    out.d2h += double(t.bytes.d2h);
    out.peer_link += double(t.bytes.peer_link);
    out.peer_hbm += double(t.bytes.peer_hbm);
    out.looked_up += double(t.bytes.looked_up);
    out.missed += double(t.bytes.missed);
    out.late += double(t.bytes.late);
    out.cancelled += double(t.bytes.cancelled);
    out.bringing_ms += ms(t.bringing_ns);
    out.waited_ms += ms(t.waited_ns);
    touched += double(t.bytes.touched);
    counts_touched = counts_touched && t.bytes.touched > 0;
    out.attended_device += double(t.tokens_attended_device);
    out.attended_host += double(t.tokens_attended_host);
    out.peak_device_kv = std::max(out.peak_device_kv, t.device_kv_bytes);
    out.peak_host_kv = std::max(out.peak_host_kv, t.host_kv_bytes);
    out.peak_peer_kv = std::max(out.peak_peer_kv, t.peer_kv_bytes);
  }
  if (out.samples == 0) return std::nullopt;
  for (double* per_sample : {&out.prefill_ms, &out.setup_ms, &out.first_step_ms}) *per_sample /= double(out.samples);
  out.ttft_ms = out.prefill_ms + out.setup_ms + out.first_step_ms;
  for (double* per_step :
       {&out.step_ms, &out.busy_ms, &out.idle_ms, &out.layer0_idle_ms, &out.hbm, &out.dram, &out.h2d, &out.d2h,
        &out.peer_link, &out.peer_hbm, &out.looked_up, &out.missed, &out.late, &out.cancelled, &out.bringing_ms,
        &out.waited_ms, &out.attended_device, &out.attended_host}) {
    *per_step /= double(out.steps);
  }
  for (auto& [cause, value] : out.idle_ms_by_cause) value /= double(out.steps);
  if (counts_touched) out.touched = touched / double(out.steps);
  if (!later.empty()) {
    out.tpot_ms = mean(later);
    out.tpot_p50_ms = percentile(later, 0.5);
    out.tpot_p90_ms = percentile(later, 0.9);
    out.tpot_p99_ms = percentile(later, 0.99);
  }
  return out;
}

nlohmann::ordered_json json_of(const LatencySummary& l) {
  nlohmann::ordered_json json = {
      {"samples", l.samples},
      {"steps", l.steps},
      {"ttft_ms", l.ttft_ms},
      {"prefill_ms", l.prefill_ms},
      {"setup_ms", l.setup_ms},
      {"first_step_ms", l.first_step_ms},
      {"tpot_ms", json_or_null(l.tpot_ms)},
      {"tpot_p50_ms", json_or_null(l.tpot_p50_ms)},
      {"tpot_p90_ms", json_or_null(l.tpot_p90_ms)},
      {"tpot_p99_ms", json_or_null(l.tpot_p99_ms)},
      {"step_ms", l.step_ms},
      {"busy_ms", l.busy_ms},
      {"idle_ms", l.idle_ms},
      {"idle_ms_by_cause", l.idle_ms_by_cause},
      {"bytes_per_token", {{"hbm", l.hbm}, {"dram", l.dram}, {"h2d", l.h2d}, {"d2h", l.d2h}}},
      {"attended_per_step",
       {{"device", l.attended_device}, {"host", l.attended_host}, {"host_share", json_or_null(l.host_share())}}},
      {"peak_kv_bytes", {{"device", l.peak_device_kv}, {"host", l.peak_host_kv}}}};
  if (l.touched) json["bytes_per_token"]["touched"] = *l.touched;
  if (l.looked_up > 0) {
    json["bytes_per_token"]["looked_up"] = l.looked_up;
    json["bytes_per_token"]["missed"] = l.missed;
    json["bytes_per_token"]["late"] = l.late;
    json["bytes_per_token"]["cancelled"] = l.cancelled;
    json["hit_rate"] = json_or_null(l.hit_rate());
    json["overlap"] = json_or_null(l.overlap());
  }
  if (l.peer_link > 0) {
    json["bytes_per_token"]["peer_link"] = l.peer_link;
    json["bytes_per_token"]["peer_hbm"] = l.peer_hbm;
  }
  if (l.peak_peer_kv > 0) json["peak_kv_bytes"]["peer"] = l.peak_peer_kv;
  if (l.left_out > 0) json["samples_of_smaller_batches"] = l.left_out;
  return json;
}

}  // namespace

static void to_json(nlohmann::ordered_json& json, const AccuracyCell& cell) {
  if (!cell.task.empty()) json["task"] = cell.task;
  if (cell.length != 0) json["length"] = cell.length;
  json.update(estimate_json(cell.accuracy, "accuracy"));
  if (cell.units != cell.accuracy.n) json["units"] = cell.units;
  if (!cell.has_difference) return;
  json["difference"] = estimate_json(cell.difference.difference, "value");
  if (!cell.difference.has_p) return;
  json["difference"]["mcnemar_mid_p"] = cell.difference.p;
  json["difference"]["detectable"] = cell.difference.detectable;
}

static void to_json(nlohmann::ordered_json& json, const LengthLatency& at) {
  json["length"] = at.length;
  json.update(json_of(at.latency));
}

static void to_json(nlohmann::ordered_json& json, const MethodSummary& method) {
  json["method"] = method.label;
  json["overall"] = method.overall;
  json["lengths"] = method.lengths;
  json["cells"] = method.cells;
  write_latency(json, method);
  json["near_ties"] = method.near_ties;
  json["near_tie_samples"] = method.near_tie_samples;
  if (!method.parted.empty()) json["parted_samples"] = method.parted.size();
}

Repeated repeated_in(const Manifest& manifest, const std::vector<SampleResult>& samples) {
  const std::vector<std::string> tasks = ruler_repeating_tasks(manifest.protocol_id, manifest.tasks);
  Repeated repeated{{tasks.begin(), tasks.end()}, repeats_of(manifest), {}};
  for (const SampleResult& sample : samples)
    if (sample.document) repeated.documents[{sample.task, sample.length, sample.index}] = *sample.document;
  return repeated;
}

PairedScores paired_scores(const Scores& first, const Scores& second, const Repeated& repeated) {
  struct Unit {
    double first = 0, second = 0, samples = 0;  // sums of scores
  };
  std::map<std::pair<bool, Scores::key_type>, Unit> units;  // by question, and apart from these by document
  PairedScores scores;
  for (const auto& [place, score] : second) {
    const auto other = first.find(place);
    if (other == first.end()) continue;
    Scores::key_type question = place;
    if (repeated.tasks.contains(std::get<0>(place))) std::get<1>(question) = 0;
    std::get<2>(question) /= repeated.answers;
    const auto about = repeated.documents.find(place);
    const bool one_of_several = about != repeated.documents.end();
    if (one_of_several) std::get<2>(question) = about->second;
    Unit& unit = units[{one_of_several, question}];
    unit.first += other->second;
    unit.second += score;
    unit.samples += 1;
    ++scores.samples;
  }
  for (const auto& [question, unit] : units) {
    scores.first.push_back(unit.first / unit.samples);
    scores.second.push_back(unit.second / unit.samples);
    scores.weights.push_back(unit.samples);
  }
  return scores;
}

nlohmann::ordered_json json_or_null(const std::optional<double>& figure) {
  return figure ? nlohmann::ordered_json(*figure) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json estimate_json(const Estimate& estimate, const char* name) {
  return {{"n", estimate.n},
          {name, estimate.value},
          {"interval", {estimate.interval.low, estimate.interval.high}},
          {"interval_kind", to_string(estimate.kind)}};
}

std::vector<std::uint32_t> lengths_attended_whole(const Manifest& manifest, const MethodEntry& method,
                                                  const std::vector<SampleTiming>& timings, const Contexts& contexts) {
  if (!has_budget(method.name)) return {};
  std::map<std::uint32_t, bool> whole;
  for (const SampleTiming& t : timings) {
    const auto context = contexts.find({t.task, t.length, t.index});
    if (t.method != method.label || t.steps == 0 || context == contexts.end()) continue;
    // Step s attends the context and the s tokens that were generated before.
    const std::uint64_t steps = t.steps, all = steps * context->second + steps * (steps - 1) / 2;
    const bool attends_all = t.tokens_attended_device + t.tokens_attended_host >= all;
    const auto [at, is_first] = whole.emplace(t.length, attends_all);
    at->second = at->second && attends_all;
  }
  std::vector<std::uint32_t> lengths;
  for (const std::uint32_t length : manifest.lengths)
    if (const auto found = whole.find(length); found != whole.end() && found->second) lengths.push_back(length);
  return lengths;
}

bool has_times(const Manifest& manifest, const std::vector<SampleTiming>& timings, const std::string& method,
               std::uint64_t samples) {
  return manifest.clock.empty() || static_cast<std::uint64_t>(std::ranges::count_if(
                                       timings, [&](const SampleTiming& t) { return t.method == method; })) == samples;
}

void add_latency(const Manifest& manifest, const std::vector<SampleTiming>& timings, MethodSummary& method) {
  const std::uint32_t batch = batch_of(manifest);
  std::vector<SampleTiming> own, of_whole_batches;
  for (const SampleTiming& t : timings) {
    if (t.method != method.label) continue;
    own.push_back(t);
    // A step of fewer sequences is a shorter one.
    if (manifest.samples_of(t.task) >= t.index - t.index % batch + std::uint64_t{batch}) of_whole_batches.push_back(t);
  }
  const std::uint64_t all = own.size();
  if (!of_whole_batches.empty()) own = std::move(of_whole_batches);
  method.latency = latency_of(own, 0);
  if (method.latency) method.latency->left_out = all - own.size();
  for (const std::uint32_t length : manifest.lengths)
    if (std::optional<LatencySummary> latency = latency_of(own, length))
      method.by_length.push_back({length, std::move(*latency)});
}

void add_reuse(const Contexts& contexts, const std::vector<SampleTiming>& timings, Summary& summary) {
  std::set<Scores::key_type> counted;
  for (const SampleTiming& t : timings) {
    const auto prompt = contexts.find({t.task, t.length, t.index});
    if (prompt == contexts.end() || !counted.insert(prompt->first).second) continue;  // methods share a prompt
    summary.prefill_tokens += prompt->second - std::min(prompt->second, 1u);          // the last is the first step's
    summary.reused_tokens += t.reused_tokens;
  }
}

Summary summarise(const RunFolder& folder) {
  Summary summary;
  summary.manifest = folder.manifest();
  const std::vector<SampleResult> samples = folder.samples();
  const std::vector<SampleTiming> timings = folder.timings();
  if (samples.empty()) throw_input_error("{} holds no finished sample.", (folder.path() / "samples.jsonl").string());
  std::map<std::string, Scores> scores;
  Contexts contexts;
  for (const SampleResult& s : samples) {
    scores[s.method][{s.task, s.length, s.index}] = s.score;
    contexts[{s.task, s.length, s.index}] = s.prompt_tokens;
  }
  const Manifest& m = summary.manifest;
  const Scores* const baseline = &scores[m.methods.front().label];
  const Repeated repeated = repeated_in(m, samples);
  for (const std::string& task : m.tasks)
    if (std::ranges::any_of(repeated.documents, [&](const auto& entry) { return std::get<0>(entry.first) == task; }))
      summary.about_documents.push_back(task);
  const std::uint64_t wanted = m.all_samples();
  summary.complete = true;
  for (const MethodEntry& entry : m.methods) {
    const Scores& own = scores[entry.label];
    summary.complete = summary.complete && own.size() == wanted && has_times(m, timings, entry.label, wanted);
    if (own.empty()) continue;
    MethodSummary method;
    method.label = entry.label;
    const auto cell = [&](const std::string& task, std::uint32_t length) {
      return cell_of(own, &own == baseline ? nullptr : baseline, task, length, repeated);
    };
    const auto add = [&](std::vector<AccuracyCell>& cells, const std::string& task, std::uint32_t length) {
      if (AccuracyCell one = cell(task, length); one.accuracy.n > 0) cells.push_back(std::move(one));
    };
    method.overall = cell("", 0);
    for (const std::string& task : m.tasks)
      for (const std::uint32_t length : m.lengths) add(method.cells, task, length);
    for (const std::uint32_t length : m.lengths) add(method.lengths, "", length);
    add_latency(m, timings, method);
    method.attends_everything_at = lengths_attended_whole(m, entry, timings, contexts);
    for (const SampleResult& s : samples) {
      if (s.method != entry.label) continue;
      method.near_ties += s.near_ties.size();
      method.near_tie_samples += s.near_ties.empty() ? 0 : 1;
      if (s.parted) method.parted.push_back(s);
    }
    summary.methods.push_back(std::move(method));
  }
  add_reuse(contexts, timings, summary);
  return summary;
}

std::optional<LatencySummary> mean_of_lengths(const MethodSummary& method) {
  using L = LatencySummary;
  constexpr double L::*kMeans[] = {
      &L::ttft_ms,       &L::prefill_ms, &L::setup_ms,       &L::first_step_ms, &L::step_ms,
      &L::busy_ms,       &L::idle_ms,    &L::layer0_idle_ms, &L::hbm,           &L::dram,
      &L::h2d,           &L::d2h,        &L::peer_link,      &L::peer_hbm,      &L::attended_device,
      &L::attended_host, &L::looked_up,  &L::missed,         &L::late,          &L::cancelled,
      &L::bringing_ms,   &L::waited_ms,
  };
  const std::vector<LengthLatency>& lengths = method.by_length;
  if (lengths.size() < 2) return method.latency;
  L out;
  if (method.latency) out.left_out = method.latency->left_out;
  std::vector<double> tpot, touched;
  for (const LengthLatency& at : lengths) {
    const L& l = at.latency;
    out.samples += l.samples;
    out.steps += l.steps;
    for (double L::*const field : kMeans) out.*field += l.*field / double(lengths.size());
    for (const auto& [cause, ms] : l.idle_ms_by_cause) out.idle_ms_by_cause[cause] += ms / double(lengths.size());
    if (const std::optional<double> time = l.tpot_ms) tpot.push_back(*time);
    if (const std::optional<double> bytes = l.touched) touched.push_back(*bytes);
    out.peak_device_kv = std::max(out.peak_device_kv, l.peak_device_kv);
    out.peak_host_kv = std::max(out.peak_host_kv, l.peak_host_kv);
    out.peak_peer_kv = std::max(out.peak_peer_kv, l.peak_peer_kv);
  }
  if (!tpot.empty()) out.tpot_ms = mean(tpot);
  if (touched.size() == lengths.size()) out.touched = mean(touched);
  return out;
}

std::optional<double> mean_idle_share(const MethodSummary& m) {
  std::vector<double> shares;
  for (const LengthLatency& at : m.by_length)
    if (const std::optional<double> share = at.latency.idle_share()) shares.push_back(*share);
  return shares.empty() ? std::nullopt : std::optional(mean(shares));
}

void write_origin(nlohmann::ordered_json& json, const Manifest& m) {
  json["command"] = m.command;
  write_programs(json, m.programs);
  json["model"] = m.model;
  json["weights_hash"] = m.weights_hash;
  json["benchmark"] = m.benchmark;
  json["protocol_id"] = m.protocol_id;
  json["seed"] = m.seed;
  json["batch"] = batch_of(m);
  json["precision"] = m.precision;
  json["clock"] = m.clock;
  if (!m.hardware_hash.empty()) json["hardware_hash"] = m.hardware_hash;
  json["machine"] = {{"cpu_model", m.machine.cpu_model}, {"device", m.machine.device}, {"cores", m.machine.cores}};
  json["isa"] = m.isa;
  if (!m.clock.empty() && !is_simulated(m.clock)) json["threads"] = m.threads;
}

void write_latency(nlohmann::ordered_json& json, const MethodSummary& method) {
  json["latency"] = method.latency ? json_of(*method.latency) : nlohmann::ordered_json(nullptr);
  json["latency_by_length"] = method.by_length;
  if (!method.attends_everything_at.empty()) json["attends_everything_at"] = method.attends_everything_at;
}

void write_reuse(nlohmann::ordered_json& json, const Summary& summary) {
  if (summary.reused_tokens > 0)
    json["prefix_cache"] = {{"prefill_tokens", summary.prefill_tokens}, {"reused_tokens", summary.reused_tokens}};
}

std::string to_json_text(const Summary& summary) {
  nlohmann::ordered_json json;
  json["schema_version"] = kSchemaVersion;
  write_origin(json, summary.manifest);
  json["complete"] = summary.complete;
  json["methods"] = summary.methods;
  write_reuse(json, summary);
  return json_text(json, 2) + "\n";
}

}  // namespace tandem::eval
