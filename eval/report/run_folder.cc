#include "eval/report/run_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unistd.h>

#include "engine/common/error.h"
#include "eval/report/aside.h"
#include "eval/report/links.h"
#include "eval/report/resume_check.h"
#include "eval/report/run_files.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTimings = "timings.jsonl";

SampleResult parse(std::string_view line, const std::string& where, const SampleResult*) {
  return parse_sample(line, where);
}
WindowLoss parse(std::string_view line, const std::string& where, const WindowLoss*) {
  return parse_window(line, where);
}
SampleTiming parse(std::string_view line, const std::string& where, const SampleTiming*) {
  return parse_timing(line, where);
}

/// A line that is not of this run would silently change a mean, or be left out of it.
template <class Item>
void check_belongs(const Manifest& manifest, const Item& item, const std::string& where) {
  const auto fail = [&](const char* field, const std::string& value) {
    throw_input_error("{}: the {} '{}' is not in the run's manifest.json.", where, field, value);
  };
  const bool known = std::any_of(manifest.methods.begin(), manifest.methods.end(),
                                 [&](const MethodEntry& entry) { return entry.label == item.method; });
  if (!known) fail("method", item.method);
  if (item.benchmark != manifest.benchmark) fail("benchmark", item.benchmark);
  if (std::find(manifest.tasks.begin(), manifest.tasks.end(), item.task) == manifest.tasks.end())
    fail("task", item.task);
  if (std::find(manifest.lengths.begin(), manifest.lengths.end(), item.length) == manifest.lengths.end())
    fail("length", std::to_string(item.length));
  if (item.index >= manifest.samples_of(item.task)) fail("index", std::to_string(item.index));
  if constexpr (requires { item.clock; }) {
    if (item.clock != manifest.clock) fail("clock", item.clock);
  }
}

template <class Item>
Item parse_own(const Manifest& manifest, std::string_view line, const std::string& where) {
  Item item = parse(line, where, static_cast<const Item*>(nullptr));
  check_belongs(manifest, item, where);
  return item;
}

template <class Item>
LineParser parser_of(const Manifest& manifest) {
  return [&manifest](std::string_view line, const std::string& where) {
    const Item item = parse_own<Item>(manifest, line, where);
    return Line{item.key(), to_line(item)};
  };
}

const char* results_file(const Manifest& manifest) {
  return manifest.benchmark == kPerplexity ? "windows.jsonl" : "samples.jsonl";
}

LineParser results_parser(const Manifest& manifest) {
  return manifest.benchmark == kPerplexity ? parser_of<WindowLoss>(manifest) : parser_of<SampleResult>(manifest);
}

template <class Item>
std::vector<Item> items_of(const fs::path& file, const Manifest& manifest) {
  std::vector<Item> items;
  read_lines(file, [&](std::string_view line, const std::string& where) {
    items.push_back(parse_own<Item>(manifest, line, where));
    return Line{items.back().key(), ""};
  });
  return items;
}

std::set<SampleKey> keys_of(const std::vector<Line>& lines) {
  std::set<SampleKey> keys;
  for (const Line& line : lines) keys.insert(line.key);
  return keys;
}

/// Whether the run in front of an earlier one that lies aside has a finished sample, or may have.
bool has_finished(const fs::path& path) {
  if (!holds_run(path)) return true;  // no run's manifest, or a damaged one: its lines stay, whatever they are
  try {
    return !RunFolder::open(path).finished().empty();
  } catch (const InputError&) {  // a later program's: which of its lines are sound that one knows
    std::error_code ignored;
    const auto has_bytes = [&](const char* name) {
      return fs::is_regular_file(path / name, ignored) && fs::file_size(path / name, ignored) > 0;
    };
    return has_bytes("samples.jsonl") || has_bytes("windows.jsonl");
  }
}

void undo_a_killed_run(const fs::path& path) {
  undo_a_killed_beginning(
      path, [&] { return has_finished(path); }, [&] { return own_files(path); });
}

/// InputError for what must not be replaced; the folder is locked and whole.
void check_free(const fs::path& path, bool force) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  if (!fs::is_directory(path, error))
    throw_input_error("'{}' is a file, but the run needs a folder there. Choose another name.", path.string());
  const bool empty = fs::is_empty(path, error);
  if (error) throw_input_error("The folder '{}' cannot be read ({}).", path.string(), error.message());
  if (empty) return;
  if (!holds_run(path))
    throw_input_error(
        "The folder '{}' is not empty and holds no run{}. Choose another one; --force replaces only runs.",
        path.string(), fs::exists(path / kManifest, error) ? ": its manifest.json is damaged, or no run's" : "");
  if (!force)
    throw_input_error(
        "The folder '{}' already holds a run. Continue it with --resume, replace it with --force or choose "
        "another folder.",
        path.string());
}

}  // namespace

void RunFolder::check_new(const fs::path& path, bool force) {
  const FolderLock lock(path);
  undo_a_killed_run(path);
  check_free(path, force);
}

RunFolder::RunFolder(fs::path path, Manifest manifest, Use use, FolderLock lock)
    : path_(std::move(path)),
      lock_(std::move(lock)),
      manifest_(std::move(manifest)),
      use_(use),
      writable_(use != Use::read) {
  if (!writable_) return;
  results_ = LineAppender(path_ / results_file(manifest_));
  timings_ = LineAppender(path_ / kTimings);
}

RunFolder RunFolder::create(const fs::path& path, const Manifest& manifest, bool force) {
  std::error_code error;
  FolderLock lock(path);  // of nothing where there is no folder yet
  undo_a_killed_run(path);
  const bool existed = fs::is_directory(path, error);
  if (!lock.held()) lock = FolderLock(path);  // somebody may have made it meanwhile
  check_free(path, force);
  const bool replaces = existed && !fs::is_empty(path, error);
  if (replaces) set_aside(path, own_files(path));
  fs::create_directories(path, error);
  if (error)
    throw_input_error("The folder '{}' cannot be made ({}). Choose another one.", path.string(), error.message());
  if (!lock.held()) lock = FolderLock(path);
  if (access(path.c_str(), W_OK) != 0)
    throw_input_error("The folder '{}' cannot be written to ({}). Choose another one.", path.string(),
                      std::strerror(errno));
  try {
    // First: without it the folder is no run and cannot be resumed.
    write_file(path / kManifest, to_json_text(manifest));
    return RunFolder(path, manifest, Use::begun, std::move(lock));
  } catch (...) {
    remove_files(path, own_files(path));
    if (replaces) bring_back(path);
    if (!existed) fs::remove(path, error);
    throw;
  }
}

RunFolder RunFolder::open(const fs::path& path) {
  const fs::path file = path / kManifest;
  std::error_code refused;
  if (!fs::exists(path, refused) && !refused) throw_input_error("There is no folder '{}'.", path.string());
  if (!fs::exists(file, refused)) {
    if (refused) throw_input_error("The folder '{}' cannot be read ({}).", path.string(), refused.message());
    throw_input_error("The folder '{}' holds no run: there is no file manifest.json in it.", path.string());
  }
  refuse_links(path);
  try {
    return RunFolder(path, parse_manifest(read_if_there(file), file.string()), Use::read, {});
  } catch (const UnknownSchema&) {
    throw;
  } catch (const InputError& error) {
    throw_input_error(
        "{} Without its manifest nobody knows what the samples in '{}' are: put a copy of the file back, or run the "
        "command again into another folder.",
        error.what(), path.string());
  }
}

RunFolder RunFolder::resume(const fs::path& path, const Manifest& mine) {
  FolderLock lock(path);
  undo_a_killed_run(path);
  const Manifest there = open(path).manifest();
  check_resumable(path, there, mine);
  std::vector<std::string> repairs;
  const fs::path results_path = path / results_file(there);
  std::vector<Line> results = set_damaged_aside(results_path, results_parser(there), repairs);
  std::vector<Line> timings = set_damaged_aside(path / kTimings, parser_of<SampleTiming>(there), repairs);
  if (!there.clock.empty()) {
    const std::set<SampleKey> tried = keys_of(results), timed = keys_of(timings);
    std::erase_if(results, [&](const Line& line) { return !timed.contains(line.key); });
    std::erase_if(timings, [&](const Line& line) { return !tried.contains(line.key); });
  }
  rewrite_lines(results_path, results);
  rewrite_lines(path / kTimings, timings);
  RunFolder folder(path, there, Use::kept, std::move(lock));
  folder.repairs_ = std::move(repairs);
  folder.continued_by(mine);
  return folder;
}

void RunFolder::continued_by(const Manifest& mine) {
  const Program program{mine.tandem_version, mine.git_commit};
  const std::size_t there = finished().size();
  if (there == manifest_.all_samples() * manifest_.methods.size()) return;
  remove_plots(path_);
  Manifest manifest = manifest_;
  manifest.command = mine.command;  // the room for KV may be another: that of before may not have been enough
  manifest.finished_utc.clear();    // a damaged line may have made it unfinished again
  manifest.set_programs(with_program(there == 0 ? std::vector<Program>() : manifest.programs(), program));
  if (manifest != manifest_) write_manifest(manifest);
}

void RunFolder::write_manifest(const Manifest& manifest) {
  manifest_ = manifest;
  write_file(path_ / kManifest, to_json_text(manifest));
}

void RunFolder::stop_appending() {
  writable_ = false;
  results_.close();
  timings_.close();
}

void RunFolder::append_line(LineAppender& out, const std::string& line) {
  TANDEM_CHECK(writable_, "{} is not open to append", path_.string());
  try {
    out.append(line);
  } catch (...) {
    stop_appending();
    throw;
  }
}

void RunFolder::append(const SampleResult& sample) {
  TANDEM_CHECK(manifest_.benchmark != kPerplexity, "{} holds windows", path_.string());
  append_line(results_, to_line(sample));
}
void RunFolder::append(const WindowLoss& window) {
  TANDEM_CHECK(manifest_.benchmark == kPerplexity, "{} holds samples", path_.string());
  append_line(results_, to_line(window));
}
void RunFolder::append(const SampleTiming& timing) {
  append_line(timings_, to_line(timing));
}

std::set<SampleKey> RunFolder::finished() const {
  std::set<SampleKey> keys = keys_of(scan_lines(path_ / results_file(manifest_), results_parser(manifest_)).sound);
  if (manifest_.clock.empty()) return keys;
  const std::set<SampleKey> timed = keys_of(scan_lines(path_ / kTimings, parser_of<SampleTiming>(manifest_)).sound);
  std::erase_if(keys, [&](const SampleKey& key) { return !timed.contains(key); });
  return keys;
}

void RunFolder::arrange(const std::vector<SampleKey>& order) {
  TANDEM_CHECK(writable_, "{} is not open to append", path_.string());
  stop_appending();
  arrange_lines(path_ / results_file(manifest_), results_parser(manifest_), order);
  arrange_lines(path_ / kTimings, parser_of<SampleTiming>(manifest_), order);
}

void RunFolder::keep() {
  TANDEM_CHECK(use_ != Use::read, "{} was opened to read", path_.string());
  use_ = Use::kept;
  drop_aside(path_);
}

void RunFolder::discard() {
  TANDEM_CHECK(use_ == Use::begun, "{} holds samples that are not this run's to remove", path_.string());
  stop_appending();
  use_ = Use::read;
  if (lies_aside(path_) || finished().empty()) put_back();
}

void RunFolder::undo() {
  TANDEM_CHECK(use_ == Use::begun, "{} holds samples that are not this run's to remove", path_.string());
  stop_appending();
  use_ = Use::read;
  put_back();
}

void RunFolder::put_back() {
  std::error_code ignored;
  remove_files(path_, own_files(path_));
  if (lies_aside(path_)) {
    bring_back(path_);
  } else {
    fs::remove(path_, ignored);  // refuses a folder that holds something else
  }
  lock_ = FolderLock();
}

std::vector<SampleResult> RunFolder::samples() const {
  return items_of<SampleResult>(path_ / "samples.jsonl", manifest_);
}
std::vector<WindowLoss> RunFolder::windows() const {
  return items_of<WindowLoss>(path_ / "windows.jsonl", manifest_);
}
std::vector<SampleTiming> RunFolder::timings() const {
  return items_of<SampleTiming>(path_ / kTimings, manifest_);
}

std::vector<SampleKey> keys_in_order(const Manifest& manifest, std::uint32_t batch) {
  TANDEM_CHECK(batch > 0, "batches of no samples");
  std::vector<SampleKey> keys;
  keys.reserve(manifest.all_samples() * manifest.methods.size());
  for (const std::uint32_t length : manifest.lengths) {
    for (const std::string& task : manifest.tasks) {
      const std::uint32_t samples = manifest.samples_of(task);
      for (std::uint32_t first = 0; first < samples; first += std::min(batch, samples - first)) {
        for (const MethodEntry& method : manifest.methods) {
          for (std::uint32_t i = first; i < first + std::min(batch, samples - first); ++i)
            keys.push_back({manifest.benchmark, task, length, i, method.label});
        }
      }
    }
  }
  return keys;
}

}  // namespace tandem::eval
