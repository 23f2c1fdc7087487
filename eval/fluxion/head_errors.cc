#include "eval/fluxion/head_errors.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "eval/report/json_reader.h"
#include "eval/report/json_text.h"
#include "eval/report/table.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFile = "errors.jsonl";

Json json_of(const HeadErrorCounts& c) {
  return {{"heads", c.heads}, {"error", c.error}, {"attended", c.attended},
          {"worst", c.worst}, {"none", c.none},   {"above", c.above}};
}

HeadErrorCounts counts_of(ObjectReader& in) {
  HeadErrorCounts c;
  c.heads = in.integer<std::uint64_t>("heads");
  c.error = in.number("error", 0, 1e30);
  c.attended = in.number("attended", 0, 1e30);
  c.worst = in.number("worst", 0, 1e30);
  c.none = in.integer<std::uint64_t>("none");
  const Json& above = in.array("above");
  if (above.size() != c.above.size()) throw_input_error("{}: 'above' has {} numbers.", kFile, above.size());
  for (std::size_t i = 0; i < c.above.size(); ++i) c.above[i] = in.as_integer<std::uint64_t>(above[i], "above");
  return c;
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

HeadErrorLog::HeadErrorLog(const std::filesystem::path& folder) {
  drop_unfinished_line(folder / kFile);
  out_ = LineAppender(folder / kFile);
}

bool has_head_errors(const std::string& spec) {
  return parse_method_spec(spec).name == fluxion_info().name;
}

std::unique_ptr<Method> HeadErrorLog::make(const std::string& spec) {
  if (!has_head_errors(spec)) return make_method(spec);
  const MethodSpec parsed = parse_method_spec(spec);
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
    std::swap(counts, found->second->counts);
  }
  Json line = {{"task", first.task}, {"length", first.length}, {"index", first.index}, {"method", first.method}};
  line.update(json_of(counts));
  out_.append(json_text(line));
}

std::map<std::string, HeadErrorCounts> read_head_errors(const std::filesystem::path& folder, const Manifest& manifest) {
  std::map<SampleKey, HeadErrorCounts> latest;
  std::ifstream in(folder / kFile);
  std::size_t number = 0;
  for (std::string text; std::getline(in, text);) {
    if (in.eof()) break;  // was being written when the run ended
    const std::string where = fmt::format("{}:{}", (folder / kFile).string(), ++number);
    const Json json = parse_object(text, where);
    ObjectReader line(json, where);
    SampleKey key;
    key.task = line.text("task");
    key.length = line.integer<std::uint32_t>("length");
    key.index = line.integer<std::uint32_t>("index");
    key.method = line.text("method");
    latest[key] = counts_of(line);
    line.finish();
  }
  std::map<std::string, HeadErrorCounts> out;
  for (const MethodEntry& method : manifest.methods) {
    for (const auto& [key, counts] : latest) {
      if (key.method == method.label) out[method.label].add(counts);
    }
  }
  return out;
}

std::string head_errors_text(const std::map<std::string, HeadErrorCounts>& errors, const Summary& summary,
                             bool markdown) {
  if (errors.empty()) return "";
  const std::vector<std::string> labels = labels_of(summary, markdown);
  Table table;
  table.head = {"method",
                "error of outputs %, mean",
                "above 5 %",
                "above 10 %",
                "above 20 %",
                "above 50 %",
                "host tokens attended %",
                "heads that attend none %"};
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
             "the "
             "largest output of the layer's heads (Eq. 2 of Fluxion), with the method's own query; \"above\" counts "
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
    entry.update(json_of(found->second));
    json["methods"].push_back(std::move(entry));
  }
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval
