#include "eval/fluxion/head_errors.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/common/json.h"
#include "eval/report/json_fields.h"
#include "eval/report/table.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFile = "errors.jsonl";

void visit_counts(auto& fields, auto& c) {
  constexpr double kMost = 1e30;
  fields.field("heads", c.heads);
  fields.number("error", c.error, 0, kMost);
  fields.number("attended", c.attended, 0, kMost);
  fields.number("worst", c.worst, 0, kMost);
  fields.field("none", c.none);
  fields.field("above", c.above);
  fields.require(c.above.size() == c.kLimits.size(), "above", fmt::format("a list of {} numbers", c.kLimits.size()));
}

struct Entry {
  SampleKey first;  // sample of the batch
  HeadErrorCounts counts;
};

void visit_entry(auto& fields, auto& entry) {
  fields.field("task", entry.first.task);
  fields.field("length", entry.first.length);
  fields.field("index", entry.first.index);
  fields.field("method", entry.first.method);
  visit_counts(fields, entry.counts);
}

std::string to_line(const Entry& entry) {
  return json_text(written(entry, [](auto& fields, auto& item) { visit_entry(fields, item); }));
}

bool is_watched(const MethodEntry& method) {
  return method.name == fluxion_info().name;
}

Entry parse_entry(const Manifest& manifest, std::string_view text, const std::string& where) {
  const Json json = parse_object(text, where);
  ObjectReader line(json, where);
  Entry entry;
  visit_entry(line, entry);
  line.finish();
  SampleKey& key = entry.first;
  key.benchmark = manifest.benchmark;
  const bool watched = std::ranges::any_of(
      manifest.methods, [&](const MethodEntry& method) { return method.label == key.method && is_watched(method); });
  if (!watched || std::ranges::count(manifest.tasks, key.task) == 0 ||
      std::ranges::count(manifest.lengths, key.length) == 0 || key.index >= manifest.samples_of(key.task))
    throw_input_error("{}: sample {} of {} at length {} under '{}' is not one of the run's manifest.json.", where,
                      key.index, key.task, key.length, key.method);
  return entry;
}

LineParser parser_of(const Manifest& manifest) {
  return [&manifest](std::string_view text, const std::string& where) {
    const Entry entry = parse_entry(manifest, text, where);
    return Line{entry.first, to_line(entry)};
  };
}

}  // namespace

void HeadErrorCounts::add(const HeadErrors& errors) {
  heads += errors.relative.size();
  for (const double x : errors.relative) {
    error += x;
    worst = std::max(worst, x);
    for (std::size_t i = 0; i < kLimits.size(); ++i) above[i] += x > kLimits[i] ? 1 : 0;
  }
  for (const double share : errors.attended) {
    attended += share;
    none += share == 0 ? 1 : 0;
  }
}

void HeadErrorCounts::add(const HeadErrorCounts& other) {
  heads += other.heads;
  error += other.error;
  attended += other.attended;
  worst = std::max(worst, other.worst);
  none += other.none;
  for (std::size_t i = 0; i < above.size(); ++i) above[i] += other.above[i];
}

HeadErrorLog::HeadErrorLog(const RunFolder& run, std::uint32_t batch) : run_(run), batch_(batch) {
  if (!run.begun()) return;
  const Manifest& manifest = run.manifest();
  std::vector<Line> lines = set_damaged_aside(run.output(), kFile, parser_of(manifest), repairs_);
  const std::set<SampleKey> finished = run.finished();
  std::set<SampleKey> said;
  for (const Line& line : lines) said.insert(line.key);
  // A batch of which anything is missing is decoded again with every method.
  const auto is_whole = [&](SampleKey key) {
    const std::uint32_t first = key.index, count = std::min(batch, manifest.samples - first);
    for (const MethodEntry& method : manifest.methods) {
      key.method = method.label;
      key.index = first;
      if (is_watched(method) && !said.contains(key)) return false;
      for (; key.index < first + count; ++key.index)
        if (!finished.contains(key)) return false;
    }
    return first % batch == 0;
  };
  std::erase_if(lines, [&](const Line& line) { return !is_whole(line.key); });
  rewrite_lines(run.output(), kFile, lines);
  for (const Line& line : lines) there_.insert(line.key);
}

bool HeadErrorLog::lacks(const SampleKey& first) const {
  return has_head_errors(first.method) && !there_.contains(first);
}

void HeadErrorLog::arrange() {
  if (!run_.begun()) return;
  out_.reset();
  arrange_lines(run_.output(), kFile, parser_of(run_.manifest()), keys_in_order(run_.manifest(), batch_));
}

bool has_head_errors(const std::string& spec) {
  return parse_method_spec(spec).name == fluxion_info().name;
}

std::unique_ptr<Method> HeadErrorLog::make(const std::string& spec) {
  const MethodSpec parsed = parse_method_spec(spec);
  if (parsed.name != fluxion_info().name) return make_method(spec);
  const auto seen = std::make_shared<Seen>();
  seen_[spec] = seen;
  return make_watched_fluxion(parsed, [seen](const HeadErrors& errors) {
    const std::lock_guard lock(seen->mutex);
    seen->counts.add(errors);
  });
}

void HeadErrorLog::decoded(const SampleKey& first) {
  const auto found = seen_.find(first.method);
  if (found == seen_.end()) return;
  HeadErrorCounts counts;
  {
    const std::lock_guard lock(found->second->mutex);
    counts = std::exchange(found->second->counts, {});
  }
  if (!out_) out_.emplace(run_.output(), kFile);
  out_->append(to_line(Entry{first, counts}));
}

std::map<std::string, HeadErrorCounts> read_head_errors(const std::filesystem::path& folder, const Manifest& manifest) {
  std::map<std::string, HeadErrorCounts> out;
  read_lines(folder / kFile, [&](std::string_view text, const std::string& where) {
    const Entry entry = parse_entry(manifest, text, where);
    out[entry.first.method].add(entry.counts);
    return Line{entry.first, ""};
  });
  return out;
}

std::string head_errors_text(const std::map<std::string, HeadErrorCounts>& errors, const Summary& summary,
                             bool markdown) {
  if (errors.empty()) return "";
  const std::vector<std::string> labels = labels_of(summary, markdown);
  Table table;
  table.head = {"method", "error of outputs %, mean"};
  for (const double limit : HeadErrorCounts::kLimits) table.head.push_back(fmt::format("above {:g} %", 100 * limit));
  table.head.insert(table.head.end(), {"host tokens attended %", "heads that attend none %"});
  for (std::size_t i = 0; i < summary.methods.size(); ++i) {
    const auto found = errors.find(summary.methods[i].label);
    if (found == errors.end() || found->second.heads == 0) continue;
    const HeadErrorCounts& c = found->second;
    const auto percent = [&](double sum) { return fmt::format("{:.2f}", 100 * sum / double(c.heads)); };
    std::vector<std::string> row = {labels[i], percent(c.error)};
    for (const std::uint64_t above : c.above) row.push_back(percent(double(above)));
    row.push_back(percent(c.attended));
    row.push_back(percent(double(c.none)));
    table.rows.push_back(std::move(row));
  }
  if (table.rows.empty()) return "";
  return section("Errors of heads", markdown) +
         note(
             "Of every query head of every layer and step: how far its output is off for what it did not attend, by "
             "the largest output of the layer's heads (Eq. 2 of Fluxion), with the method's own query; \"above\" "
             "counts "
             "heads. Measured by brute force over all KV, which is not counted as cost.",
             markdown) +
         text_of(table, markdown);
}

std::string head_errors_json(const std::map<std::string, HeadErrorCounts>& errors, const Manifest& manifest) {
  Json json;
  json["limits"] = HeadErrorCounts::kLimits;
  json["methods"] = Json::array();
  for (const MethodEntry& method : manifest.methods) {
    const auto found = errors.find(method.label);
    if (found == errors.end()) continue;
    Json entry = {{"method", method.label}};
    entry.update(written(found->second, [](auto& fields, auto& counts) { visit_counts(fields, counts); }));
    if (found->second.heads == 0) entry["worst"] = nullptr;  // of none
    json["methods"].push_back(std::move(entry));
  }
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval
