#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <iterator>
#include <map>
#include <thread>
#include <unistd.h>

#include "engine/common/error.h"
#include "eval/report/schema.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSamples = "samples.jsonl";
constexpr const char* kTimings = "timings.jsonl";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kAside = ".replaced";  // folder of the earlier run while --force is not done yet
// What a run and its report leave in the folder; nothing else is ever removed.
constexpr const char* kOwnFiles[] = {kManifest,  kSamples,   kTimings,     "summary.json", "report.md",
                                     "plot.png", "plot.svg", "trace.json", "target.json",  "manifest.json.new"};

std::string read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw_input_error("The file '{}' cannot be read ({}).", file.string(), std::strerror(errno));
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Lines with their numbers' order; the last one must be ended by a newline too.
std::vector<std::string_view> split_lines(std::string_view text, const std::string& file) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos)
      throw_input_error("{}:{}: the last line is not finished: the run was interrupted. Continue it with --resume.",
                        file, lines.size() + 1);
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

template <class Item, class Parse>
std::vector<Item> read_lines(const fs::path& file, Parse parse) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  const std::string text = read_file(file);
  std::vector<Item> items;
  std::map<SampleKey, std::size_t> seen;
  for (const std::string_view line : split_lines(text, file.string())) {
    const std::string where = fmt::format("{}:{}", file.string(), items.size() + 1);
    items.push_back(parse(line, where));
    const auto [at, inserted] = seen.emplace(items.back().key(), items.size());
    if (!inserted) throw_input_error("{}: the same sample is already on line {}.", where, at->second);
  }
  return items;
}

/// Shortens `file` to its first `lines` lines.
void keep_lines(const fs::path& file, std::size_t lines) {
  const std::string text = read_file(file);
  std::size_t size = 0;
  for (std::size_t i = 0; i < lines; ++i) size = text.find('\n', size) + 1;
  if (size == text.size()) return;
  std::error_code error;
  fs::resize_file(file, size, error);
  if (error)
    throw_input_error("The file '{}' cannot be shortened to continue the run ({}).", file.string(), error.message());
}

void drop_unfinished_line(const fs::path& file) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return;
  const std::string text = read_file(file);
  keep_lines(file, static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')));
}

std::ofstream open_for_append(const fs::path& file) {
  std::ofstream out(file, std::ios::binary | std::ios::app);
  if (!out)
    throw_input_error("The file '{}' cannot be written ({}). Choose another folder.", file.string(),
                      std::strerror(errno));
  return out;
}

/// The earlier run's files go into a folder of their own until the new run is kept.
void set_aside(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path / kAside, error);
  fs::create_directory(path / kAside, error);
  for (const char* name : kOwnFiles) {
    if (error || !fs::exists(path / name, error)) continue;
    fs::rename(path / name, path / kAside / name, error);
  }
  if (error) throw_input_error("The run in '{}' cannot be put aside ({}).", path.string(), error.message());
}

void bring_back(const fs::path& path) {
  std::error_code ignored;
  for (const char* name : kOwnFiles) {
    if (fs::exists(path / kAside / name, ignored)) fs::rename(path / kAside / name, path / name, ignored);
  }
  fs::remove_all(path / kAside, ignored);
}

}  // namespace

void write_file(const fs::path& file, std::string_view text) {
  fs::path part = file;
  part += ".new";
  std::error_code error;
  {
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.close();
    if (!out) throw_run_error("The file '{}' cannot be written ({}).", part.string(), std::strerror(errno));
  }
  fs::rename(part, file, error);
  if (error) throw_run_error("The file '{}' cannot be replaced ({}).", file.string(), error.message());
}

RunFolder::RunFolder(fs::path path, Manifest manifest, bool writable)
    : path_(std::move(path)), manifest_(std::move(manifest)), writable_(writable) {
  if (!writable) return;
  samples_ = open_for_append(path_ / kSamples);
  timings_ = open_for_append(path_ / kTimings);
}

RunFolder RunFolder::create(const fs::path& path, const Manifest& manifest, bool force) {
  std::error_code error;
  // All that a run leaves which was killed before it had its manifest.
  if (!fs::exists(path / kManifest, error)) fs::remove(path / (std::string(kManifest) + ".new"), error);
  if (fs::exists(path, error) && !fs::is_directory(path, error))
    throw_input_error("'{}' is a file, but the run needs a folder there. Choose another name.", path.string());
  if (fs::is_directory(path, error) && !fs::is_empty(path, error)) {
    if (error) throw_input_error("The folder '{}' cannot be read ({}).", path.string(), error.message());
    if (!fs::exists(path / kManifest, error))
      throw_input_error(
          "The folder '{}' is not empty and holds no run. Choose another one; --force replaces only runs.",
          path.string());
    if (!force)
      throw_input_error(
          "The folder '{}' already holds a run. Continue it with --resume, replace it with --force or choose "
          "another folder.",
          path.string());
    set_aside(path);
  }
  fs::create_directories(path, error);
  if (error)
    throw_input_error("The folder '{}' cannot be made ({}). Choose another one.", path.string(), error.message());
  if (access(path.c_str(), W_OK) != 0)
    throw_input_error("The folder '{}' cannot be written to ({}). Choose another one.", path.string(),
                      std::strerror(errno));
  write_file(path / kManifest, to_json_text(manifest));  // first: without it the folder is no run and cannot be resumed
  return RunFolder(path, manifest, true);
}

RunFolder RunFolder::open(const fs::path& path) {
  const fs::path file = path / kManifest;
  std::error_code ignored;
  if (!fs::exists(file, ignored))
    throw_input_error("The folder '{}' holds no run: there is no file manifest.json in it.", path.string());
  return RunFolder(path, parse_manifest(read_file(file), file.string()), false);
}

RunFolder RunFolder::resume(const fs::path& path) {
  const RunFolder old = open(path);
  drop_unfinished_line(path / kSamples);
  drop_unfinished_line(path / kTimings);
  if (!old.manifest().clock.empty()) {
    const std::vector<SampleResult> samples = old.samples();
    const std::vector<SampleTiming> timings = old.timings();
    std::size_t both = 0;
    while (both < std::min(samples.size(), timings.size()) && samples[both].key() == timings[both].key()) ++both;
    std::error_code ignored;
    if (fs::exists(path / kSamples, ignored)) keep_lines(path / kSamples, both);
    if (fs::exists(path / kTimings, ignored)) keep_lines(path / kTimings, both);
  }
  return RunFolder(path, old.manifest(), true);
}

void RunFolder::write_manifest(const Manifest& manifest) {
  manifest_ = manifest;
  write_file(path_ / kManifest, to_json_text(manifest));
}

void RunFolder::append_line(const char* file, std::ofstream& out, const std::string& line) {
  TANDEM_CHECK(writable_, "{} was opened to read", path_.string());
  std::error_code ignored;
  const std::uintmax_t before = fs::file_size(path_ / file, ignored);
  out << line << '\n';
  out.flush();
  if (out) return;
  const int why = errno;
  // The stream still holds what it could not write, and would write all of it behind the part that it could as soon as
  // there is room. It is closed while there is none, and the part is cut off.
  writable_ = false;
  samples_.close();
  timings_.close();
  if (!ignored) fs::resize_file(path_ / file, before, ignored);
  throw_run_error("The file '{}' cannot be written ({}). What was finished is kept; continue with --resume.",
                  (path_ / file).string(), std::strerror(why));
}

void RunFolder::append(const SampleResult& sample) {
  append_line(kSamples, samples_, to_line(sample));
}
void RunFolder::append(const SampleTiming& timing) {
  append_line(kTimings, timings_, to_line(timing));
}

void RunFolder::keep() {
  std::error_code ignored;
  fs::remove_all(path_ / kAside, ignored);
}

void RunFolder::discard() {
  std::error_code ignored;
  const bool replaced = fs::exists(path_ / kAside, ignored);
  if (!replaced && fs::file_size(path_ / kSamples, ignored) != 0) return;
  writable_ = false;
  samples_.close();
  timings_.close();
  for (const char* name : kOwnFiles) fs::remove(path_ / name, ignored);
  if (replaced) {
    bring_back(path_);
  } else {
    fs::remove(path_, ignored);  // refuses a folder that holds something else
  }
}

std::vector<SampleResult> RunFolder::samples() const {
  return read_lines<SampleResult>(path_ / kSamples, parse_sample);
}
std::vector<SampleTiming> RunFolder::timings() const {
  return read_lines<SampleTiming>(path_ / kTimings, parse_timing);
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
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace tandem::eval
