#include "engine/device/profile.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char *kProfiles = "hardware/profiles", *kDevices = "hardware/devices", *kLinks = "hardware/links";

// One list of all fields serves reading, writing and the check that each has a source. `visit` gets the group, the
// name, the number and, of an optional field, the number that stands for "not given" (a curve is empty then). Of
// `peer`, all or none is there.
using Missing = std::optional<double>;
constexpr double kOptional = 0;
template <class Profile, class Visit>
void visit_fields(Profile& p, bool has_peer, const Visit& visit) {
  const auto field = [&](const char* group, const char* key, auto& number, Missing missing = {}) {
    visit(group, key, number, missing);
  };
  field("device", "memory_gb", p.device.memory_gb);
  field("device", "hbm_gbps", p.device.hbm_gbps);
  field("device", "stream_efficiency", p.device.stream_efficiency);
  field("device", "weights_efficiency", p.device.weights_efficiency, kOptional);
  field("device", "product_ns", p.device.product_ns, kOptional);
  field("device", "attention_efficiency", p.device.attention_efficiency);
  field("device", "attention_ns", p.device.attention_ns, kOptional);
  field("device", "select_efficiency", p.device.select_efficiency);
  field("device", "gemm_tflops", p.device.gemm_tflops);
  field("device", "prefill_attention_tflops", p.device.prefill_attention_tflops, kOptional);
  field("device", "launch_ns", p.device.launch_ns);
  field("device", "segment_launch_ns", p.device.segment_launch_ns);
  field("device", "op_floor_ns", p.device.op_floor_ns);
  field("device", "layer_ns", p.device.layer_ns, kOptional);
  field("device", "cpu_threads", p.device.cpu_threads, kOptional);
  field("link", "h2d_curve", p.link.h2d_curve);
  field("link", "d2h_curve", p.link.d2h_curve);
  field("link", "h2d_gather_curve", p.link.h2d_gather_curve, kOptional);
  field("link", "piece_ns", p.link.piece_ns);
  field("link", "transfer_ns", p.link.transfer_ns, kOptional);
  if (has_peer) field("peer", "gbps", p.peer.gbps);
  if (has_peer) field("peer", "latency_ns", p.peer.latency_ns);
  field("host", "memory_gb", p.host.memory_gb, kOptional);
  field("host", "threads", p.host.threads);
  field("host", "dram_gbps", p.host.dram_gbps);
  field("host", "attention_gbps_per_thread", p.host.attention_gbps_per_thread);
  field("host", "attention_efficiency", p.host.attention_efficiency);
  field("host", "attention_contiguous_gbps_per_thread", p.host.attention_contiguous_gbps_per_thread, kOptional);
  field("host", "attention_contiguous_efficiency", p.host.attention_contiguous_efficiency, kOptional);
  field("host", "select_efficiency", p.host.select_efficiency, 1);
  field("host", "select_gbps_per_thread", p.host.select_gbps_per_thread);
  field("host", "stream_gbps_per_thread", p.host.stream_gbps_per_thread);
  field("host", "gflops_per_thread", p.host.gflops_per_thread);
  field("handoff", "device_to_host_ns", p.handoff.device_to_host_ns);
  field("handoff", "host_to_device_ns", p.handoff.host_to_device_ns);
  field("handoff", "stream_ns", p.handoff.stream_ns, kOptional);
  field("control", "submit_ns", p.control.submit_ns);
  field("control", "policy_ns", p.control.policy_ns);
  field("control", "operation_ns", p.control.operation_ns, kOptional);
  field("control", "layer_ns", p.control.layer_ns, kOptional);
}

/// What some machine could have, small boards and the next decade's servers included: what lies outside is a number in
/// another unit, from which a prediction would be nonsense. The first field that a path ends with counts.
struct Plausible {
  std::string_view field;
  double low, high;
  const char* unit;
};
constexpr Plausible kPlausible[] = {{"device.memory_gb", 0.1, 1e4, "10^9 bytes"},
                                    {"host.memory_gb", 0.1, 1e5, "10^9 bytes"},
                                    {"hbm_gbps", 10, 1e5, "10^9 bytes per second"},
                                    {"_tflops", 0.05, 2e4, "10^12 operations per second"},
                                    {"_curve", 1e-4, 5e3, "10^9 bytes per second"},
                                    {"gbps_per_thread", 0.01, 1e3, "10^9 bytes per second"},
                                    {"gflops_per_thread", 0.05, 2e4, "10^9 operations per second"},
                                    {"dram_gbps", 1, 2e4, "10^9 bytes per second"},
                                    {"peer.gbps", 0.01, 2e4, "10^9 bytes per second"},
                                    {"_efficiency", 1e-4, 1, "a share"}};

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  template <class... Args>
  [[noreturn]] void fail(const std::string& field, fmt::format_string<Args...> format, Args&&... args) const {
    throw_input_error("{}: field '{}' {}", file_, field, fmt::format(format, std::forward<Args>(args)...));
  }

  const Json& member(const Json& object, const std::string& path, const std::string& key) const {
    const auto found = object.find(key);
    if (found == object.end()) fail(path, "is missing. Add it; hardware/profiles has complete files to copy from.");
    return *found;
  }

  std::string text(const Json& value, const std::string& path) const {
    if (!value.is_string() || value.get<std::string>().empty())
      fail(path, "is {}; it must be a text.", json_excerpt(value));
    return value.get<std::string>();
  }

  void read(const Json& value, const std::string& path, double& out) const {
    if (!value.is_number()) fail(path, "is {}; it must be a number.", json_excerpt(value));
    out = value.get<double>();
    if (!(out > 0) || !std::isfinite(out)) fail(path, "is {}; it must be greater than 0.", json_excerpt(value));
    if (path.ends_with("_efficiency") && out > 1) fail(path, "is {}; a share lies in (0, 1].", json_excerpt(value));
    for (const Plausible& range : kPlausible) {
      if (!path.ends_with(range.field)) continue;
      if (out >= range.low && out <= range.high) return;
      fail(path, "is {}; no hardware has that: it must lie in {} .. {}, in {}.", json_excerpt(value), range.low,
           range.high, range.unit);
    }
  }
  void read(const Json& value, const std::string& path, Nanos& out) const {
    if (!value.is_number_integer()) fail(path, "is {}; it must be a whole number of nanoseconds.", json_excerpt(value));
    if (value < 0 || value > 1'000'000'000) fail(path, "is {}; it must lie in 0 .. 1000000000.", json_excerpt(value));
    out = value.get<Nanos>();
  }
  void read(const Json& value, const std::string& path, std::uint32_t& out) const {
    if (!value.is_number_integer() || value < 1 || value > 65536) {
      fail(path, "is {}; it must be a whole number in 1 .. 65536.", json_excerpt(value));
    }
    out = value.get<std::uint32_t>();
  }
  void read(const Json& value, const std::string& path, std::vector<LinkPoint>& out) const {
    if (!value.is_array() || value.empty())
      fail(path, "must be a list of [piece bytes, GB/s], not {}.", json_excerpt(value));
    out.clear();
    for (const Json& pair : value) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer()) {
        fail(path, "has the entry {}; each entry is [piece bytes, GB/s].", json_excerpt(pair));
      }
      LinkPoint point;
      if (pair[0] < 1 || pair[0] > (std::int64_t{1} << 32))
        fail(path, "has a piece of {} bytes; it must lie in 1 .. 2^32.", json_excerpt(pair[0]));
      point.piece_bytes = pair[0].get<std::uint64_t>();
      read(pair[1], path, point.gbps);
      if (!out.empty() && point.piece_bytes <= out.back().piece_bytes)
        fail(path, "is not sorted: {} bytes come after {}.", point.piece_bytes, out.back().piece_bytes);
      out.push_back(point);
    }
  }

 private:
  std::string file_;
};

void refuse_unknown(const Reader& reader, const Json& object, const std::string& prefix,
                    const std::vector<std::string>& known) {
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(known, key) == known.end())
      reader.fail(prefix + key, "is not known.{}", did_you_mean(key, known));
}

/// Names of the files of a folder of hardware, without .json, sorted.
std::vector<std::string> shipped_names(const char* folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_path(folder)))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

Json shipped_json(const char* folder, const std::string& name) {
  const std::filesystem::path path = data_path(folder) / (name + ".json");
  return parse_ordered_json(read_file(path, kMostOfAFile), path.string());
}

/// Fills in what a group leaves to the part that it names.
void take_part(const Reader& reader, Json& profile, const char* group, const char* folder) {
  const auto own = profile.find(group);
  if (own == profile.end() || !own->is_object() || !own->contains("of")) return;
  const std::string path = std::string(group) + ".of", name = reader.text((*own)["of"], path);
  const std::vector<std::string> names = shipped_names(folder);
  if (std::ranges::find(names, name) == names.end())
    reader.fail(path, "is '{}'.{} There are: {}.", name, did_you_mean(name, names), join_names(names));
  own->erase("of");
  const Json part = shipped_json(folder, name);
  if (!profile.contains("ranges")) profile["ranges"] = Json::object();
  Json &sources = profile["sources"], &ranges = profile["ranges"];
  for (const auto& [key, value] : part.at(group).items()) {
    if (own->contains(key)) continue;
    (*own)[key] = value;
    const std::string field = std::string(group) + "." + key;
    if (sources.is_object()) sources[field] = part.at("sources").at(field);
    if (ranges.is_object() && part.contains("ranges") && part["ranges"].contains(field))
      ranges[field] = part["ranges"][field];
  }
}

/// Reads a range; it must hold the field's own value.
void read_range(const Reader& reader, const Json& json, const std::string& path, double value, FieldRange& range) {
  if (!json.is_object()) reader.fail(path, "is {}; it must be an object with low, high and why.", json_excerpt(json));
  refuse_unknown(reader, json, path + ".", {"low", "high", "why"});
  const auto number = [&](const char* key) {
    const Json& end = reader.member(json, path + "." + key, key);
    if (!end.is_number()) reader.fail(path + "." + key, "is {}; it must be a number.", json_excerpt(end));
    return end.get<double>();
  };
  range = {number("low"), number("high"), reader.text(reader.member(json, path + ".why", "why"), path + ".why")};
  if (!(range.low > 0 && range.low <= value && value <= range.high && std::isfinite(range.high)))
    reader.fail(path, "is {} to {}; the low end lies above 0, and the number, {}, between the two.", range.low,
                range.high, value);
}

/// The number that a range must hold; 1 for a curve, whose range is a factor, and 0 for one that is not given.
double ranged_value(const std::vector<LinkPoint>& curve) {
  return curve.empty() ? 0 : 1;
}
double ranged_value(auto number) {
  return static_cast<double>(number);
}

/// `share` of the way from a number to another, on a log scale; to 0 evenly.
double on_the_way(double from, double to, double share) {
  if (share == 1) return to;
  return to > 0 ? from * std::pow(to / from, share) : from * (1 - share);
}
template <class Number>
void move_field(Number& field, double end, double share) {
  const double moved = on_the_way(static_cast<double>(field), end, share);
  field = static_cast<Number>(std::is_integral_v<Number> ? std::round(moved) : moved);
}
void move_field(std::vector<LinkPoint>& field, double factor, double share) {
  for (LinkPoint& point : field) point.gbps *= on_the_way(1, factor, share);
}

/// visit_fields() without the optional ones that are not given.
template <class Profile, class Visit>
void visit_given(Profile& profile, const Visit& visit) {
  visit_fields(profile, profile.peer.gbps > 0, [&](const char* group, const char* key, auto& value, Missing missing) {
    if (!missing || ranged_value(value) != *missing) visit(std::string(group) + "." + key, group, key, value);
  });
}

}  // namespace

static void to_json(Json& json, const LinkPoint& point) {
  json = {point.piece_bytes, point.gbps};
}

HardwareProfile parse_profile(std::string_view text, const std::string& name, const std::string& file) {
  const Reader reader(file);
  Json json = parse_ordered_json(text, file);
  if (!json.is_object()) throw_input_error("{}: a profile is a JSON object, not {}.", file, json.type_name());
  take_part(reader, json, "device", kDevices);
  take_part(reader, json, "link", kLinks);

  HardwareProfile profile;
  profile.name = name;
  profile.title = reader.text(reader.member(json, "title", "title"), "title");
  std::map<std::string, std::vector<std::string>> fields;
  std::map<std::string, double> values;
  const auto read = [&](const std::string& group, const std::string& key, auto& value, Missing missing) {
    if (missing && !(json.contains(group) && json[group].is_object() && json[group].contains(key))) return;
    const Json& object = reader.member(json, group, group);
    if (!object.is_object()) reader.fail(group, "is {}; it must be an object.", json_excerpt(object));
    fields[group].push_back(key);
    const std::string path = group + "." + key;
    reader.read(reader.member(object, path, key), path, value);
    values[path] = ranged_value(value);
  };
  visit_fields(profile, json.contains("peer"), read);
  std::vector<std::string> groups = {"name", "title", "peer", "sources", "ranges"}, paths;
  for (const auto& [group, keys] : fields) {
    groups.push_back(group);
    refuse_unknown(reader, json[group], group + ".", keys);
    for (const std::string& key : keys) paths.push_back(group + "." + key);
  }
  refuse_unknown(reader, json, "", groups);

  const Json& sources = reader.member(json, "sources", "sources");
  if (!sources.is_object()) reader.fail("sources", "must be an object: field -> where the number comes from.");
  for (const auto& [path, source] : sources.items()) profile.sources[path] = reader.text(source, "sources." + path);
  refuse_unknown(reader, sources, "sources.", paths);
  for (const std::string& path : paths)
    if (!profile.sources.contains(path))
      reader.fail("sources." + path, "is missing: say where the number comes from, or \"assumed: why\".");
  if (json.contains("ranges")) {
    const Json& ranges = json["ranges"];
    if (!ranges.is_object()) reader.fail("ranges", "must be an object: field -> low, high, why.");
    refuse_unknown(reader, ranges, "ranges.", paths);
    for (const auto& [path, range] : ranges.items())
      read_range(reader, range, "ranges." + path, values.at(path), profile.ranges[path]);
  }
  return profile;
}

HardwareProfile with_field(HardwareProfile profile, const std::string& field, double end, double share) {
  bool found = false;
  visit_given(profile, [&](const std::string& path, const char*, const char*, auto& number) {
    if (path != field) return;
    move_field(number, end, share);
    found = true;
  });
  TANDEM_CHECK(found, "the profile '{}' has no field '{}'", profile.name, field);
  return profile;
}

std::string profile_to_json(const HardwareProfile& profile) {
  Json json;
  json["name"] = profile.name;
  json["title"] = profile.title;
  Json sources = Json::object();
  visit_given(profile, [&](const std::string& path, const char* group, const char* key, const auto& value) {
    json[group][key] = value;
    if (const auto found = profile.sources.find(path); found != profile.sources.end()) sources[path] = found->second;
  });
  json["sources"] = std::move(sources);
  for (const auto& [field, range] : profile.ranges)
    json["ranges"][field] = {{"low", range.low}, {"high", range.high}, {"why", range.why}};
  return json_text(json, 2) + "\n";
}

std::vector<std::string> profile_names() {
  return shipped_names(kProfiles);
}

std::vector<DeviceFacts> device_facts() {
  std::vector<DeviceFacts> out;
  for (const std::string& name : shipped_names(kDevices)) {
    const Json json = shipped_json(kDevices, name);
    const Json like = shipped_json(kProfiles, json.at("like").get<std::string>());
    out.push_back({name, json.at("hardware").get<std::vector<std::string>>(), json.at("l2_mb").get<double>(),
                   like.at("link").value("of", "")});
  }
  return out;
}

HardwareProfile profile_of_device(const std::string& device) {
  const Json facts = shipped_json(kDevices, device);
  Json json = shipped_json(kProfiles, facts.at("like").get<std::string>());
  json["title"] = facts.at("title");
  json["device"] = {{"of", device}};
  for (const char* group : {"sources", "ranges"}) {
    if (!json.contains(group)) continue;
    Json& fields = json[group];
    for (auto field = fields.begin(); field != fields.end();)
      field = field.key().starts_with("device.") ? fields.erase(field) : std::next(field);
  }
  return parse_profile(json_text(json), device, device);
}

HardwareProfile load_profile(std::string_view name_or_path) {
  const std::string given(name_or_path);
  const bool is_path = given.find('/') != std::string::npos || given.ends_with(".json");
  std::filesystem::path path = given;
  if (!is_path) {
    const std::vector<std::string> names = profile_names();
    if (std::ranges::find(names, given) == names.end())
      throw_input_error("There is no hardware profile '{}'.{} There are: {}. A path to a JSON file works too.", given,
                        did_you_mean(given, names), join_names(names));
    path = data_path(kProfiles) / (given + ".json");
  }
  const std::string text = read_file(path, kMostOfAFile, fmt::format("The hardware profile {}", path.string()));
  return parse_profile(text, path.stem().string(), path.string());
}

}  // namespace tandem
