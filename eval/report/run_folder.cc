#include "eval/report/run_folder.h"

#include <algorithm>
#include <type_traits>

#include "engine/common/error.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/run_files.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTimings = "timings.jsonl";

template <class Item>
Item parse(std::string_view line, const std::string& where) {
  if constexpr (std::is_same_v<Item, SampleResult>) return parse_sample(line, where);
  if constexpr (std::is_same_v<Item, WindowLoss>) return parse_window(line, where);
  if constexpr (std::is_same_v<Item, SampleTiming>) return parse_timing(line, where);
}

/// A line that is not of this run would silently change a mean, or be left out of it.
template <class Item>
void check_belongs(const Manifest& manifest, const Item& item, const std::string& where) {
  const auto fail = [&](const char* field, const std::string& value) {
    throw_input_error("{}: the {} '{}' is not in the run's manifest.json.", where, field, value);
  };
  const bool known =
      std::ranges::any_of(manifest.methods, [&](const MethodEntry& entry) { return entry.label == item.method; });
  if (!known) fail("method", item.method);
  if (item.benchmark != manifest.benchmark) fail("benchmark", item.benchmark);
  if (std::ranges::find(manifest.tasks, item.task) == manifest.tasks.end()) fail("task", item.task);
  if (std::ranges::find(manifest.lengths, item.length) == manifest.lengths.end())
    fail("length", std::to_string(item.length));
  if (item.index >= manifest.samples_of(item.task)) fail("index", std::to_string(item.index));
  if constexpr (requires { item.clock; }) {
    if (item.clock != manifest.clock) fail("clock", item.clock);
  }
}

template <class Item>
Item parse_own(const Manifest& manifest, std::string_view line, const std::string& where) {
  Item item = parse<Item>(line, where);
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
std::vector<Item> items_of(const RunFolder& run, const char* name) {
  std::vector<Item> items;
  if (!run.begun()) return items;
  const Manifest& manifest = run.manifest();
  read_lines(run.path() / name, [&](std::string_view line, const std::string& where) {
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

/// InputError for what must not be replaced.
void check_free(const OutputFolder& folder, bool force) {
  const std::string path = folder.path().string();
  if (folder.is_free(run_files())) return;
  if (!holds_run(folder.path()))
    throw_input_error(
        "The folder '{}' is not empty and holds no run{}. Choose another one; --force replaces only runs.", path,
        folder.has(kManifest) ? ": its manifest.json is damaged, or no run's" : "");
  if (!force)
    throw_input_error(
        "The folder '{}' already holds a run. Continue it with --resume, replace it with --force or choose "
        "another folder.",
        path);
}

}  // namespace

void RunFolder::check_new(const fs::path& path, bool force) {
  std::error_code ignored;
  check_can_be_made(path);
  if (!fs::exists(normalised(path), ignored)) return;
  const OutputFolder folder = OutputFolder::lock(path);
  folder.finish_replacement(run_files());
  check_free(folder, force);
}

RunFolder::RunFolder(fs::path path, Manifest manifest, OutputFolder output)
    : path_(std::move(path)), manifest_(std::move(manifest)), output_(std::move(output)) {}

RunFolder RunFolder::create(const fs::path& path, const Manifest& manifest, bool force) {
  OutputFolder output = OutputFolder::make(path);
  output.finish_replacement(run_files());
  check_free(output, force);
  const fs::path found = output.path();
  RunFolder folder(found, manifest, std::move(output));
  folder.begun_ = false;
  return folder;
}

RunFolder RunFolder::create_whole(const fs::path& path, const Manifest& manifest, const std::string& results,
                                  const std::string& timings, bool force) {
  RunFolder folder = create(path, manifest, force);
  folder.begin_with(results, timings);
  return folder;
}

void RunFolder::begin_with(const std::string& results, const std::string& timings) {
  TANDEM_CHECK(output_.held() && !begun_, "{} is not to begin", path_.string());
  if (check_) check_();
  std::vector<std::pair<std::string, std::string>> files = std::move(at_begin_);
  files.emplace_back(results_file(manifest_), results);
  files.emplace_back(kTimings, timings);
  output_.replace(files, to_json_text(manifest_), run_files());
  begun_ = true;
  open_appenders();
  // Opening makes a file that somebody removed in this moment.
  const std::pair<const char*, std::size_t> written[] = {{results_file(manifest_), results.size()},
                                                         {kTimings, timings.size()}};
  for (const auto& [name, bytes] : written) {
    std::error_code ignored;
    const std::uintmax_t there = fs::file_size(path_ / name, ignored);
    if (there == bytes) continue;
    if (there == 0) output_.remove(name);
    throw FolderLost(fmt::format("The file '{}' was removed while it was being written.", (path_ / name).string()));
  }
  waiting_.clear();
}

void RunFolder::open_appenders() {
  results_ = LineAppender(output_, results_file(manifest_));
  timings_ = LineAppender(output_, kTimings);
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
    return RunFolder(path, parse_manifest(read_if_there(file), file.string()), {});
  } catch (const UnknownSchema&) {
    throw;
  } catch (const InputError& error) {
    throw_input_error(
        "{} Without its manifest nobody knows what the samples in '{}' are: put a copy of the file back, or run the "
        "command again into another folder.",
        error.what(), path.string());
  }
}

RunFolder RunFolder::resume(const fs::path& given, const Manifest& mine) {
  OutputFolder output = OutputFolder::lock(given);
  const fs::path path = output.path();
  output.finish_replacement(run_files());
  const Manifest there = open(path).manifest();
  check_resumable(path, there, mine);
  std::vector<std::string> repairs;
  const char* results_name = results_file(there);
  std::vector<Line> results = set_damaged_aside(output, results_name, results_parser(there), repairs);
  std::vector<Line> timings = set_damaged_aside(output, kTimings, parser_of<SampleTiming>(there), repairs);
  if (!there.clock.empty()) {
    const std::set<SampleKey> tried = keys_of(results), timed = keys_of(timings);
    std::erase_if(results, [&](const Line& line) { return !timed.contains(line.key); });
    std::erase_if(timings, [&](const Line& line) { return !tried.contains(line.key); });
  }
  rewrite_lines(output, results_name, results);
  rewrite_lines(output, kTimings, timings);
  RunFolder folder(path, there, std::move(output));
  folder.repairs_ = std::move(repairs);
  folder.found_ = keys_of(results);
  folder.open_appenders();
  folder.continued_by(mine);
  return folder;
}

void RunFolder::continued_by(const Manifest& mine) {
  const Program program{mine.tandem_version, mine.git_commit};
  const std::size_t there = found_.size();
  if (there == manifest_.all_samples() * manifest_.methods.size()) return;
  remove_plots(output_);
  Manifest manifest = manifest_;
  manifest.command = mine.command;  // the room for KV may be another: that of before may not have been enough
  manifest.finished_utc.clear();    // a damaged line may have made it unfinished again
  manifest.set_programs(with_program(there == 0 ? std::vector<Program>() : manifest.programs(), program));
  if (manifest != manifest_) write_manifest(manifest);
}

void RunFolder::write(const std::string& name, const std::string& text) {
  if (begun_) return output_.write(name, text);
  at_begin_.emplace_back(name, text);
}

void RunFolder::write_manifest(const Manifest& manifest) {
  manifest_ = manifest;
  if (begun_) output_.write(kManifest, to_json_text(manifest));
}

void RunFolder::stop_appending() {
  results_.close();
  timings_.close();
}

void RunFolder::append_line(LineAppender& out, const std::string& line) {
  if (check_) check_();
  try {
    out.append(line);
  } catch (...) {
    stop_appending();
    throw;
  }
  output_.check_there();
}

void RunFolder::append_result(const std::string& line) {
  TANDEM_CHECK(output_.held(), "{} was opened to read", path_.string());
  if (begun_) return append_line(results_, line);
  waiting_ += line + "\n";
  if (manifest_.clock.empty()) begin_with(waiting_, "");
}

void RunFolder::append(const SampleResult& sample) {
  TANDEM_CHECK(manifest_.benchmark != kPerplexity, "{} holds windows", path_.string());
  append_result(to_line(sample));
}
void RunFolder::append(const WindowLoss& window) {
  TANDEM_CHECK(manifest_.benchmark == kPerplexity, "{} holds samples", path_.string());
  append_result(to_line(window));
}
void RunFolder::append(const SampleTiming& timing) {
  TANDEM_CHECK(output_.held(), "{} was opened to read", path_.string());
  if (begun_) return append_line(timings_, to_line(timing));
  begin_with(waiting_, to_line(timing) + "\n");
}

std::set<SampleKey> RunFolder::finished() const {
  if (!begun_) return {};
  std::set<SampleKey> keys = keys_of(scan_lines(path_ / results_file(manifest_), results_parser(manifest_)).sound);
  if (manifest_.clock.empty()) return keys;
  const std::set<SampleKey> timed = keys_of(scan_lines(path_ / kTimings, parser_of<SampleTiming>(manifest_)).sound);
  std::erase_if(keys, [&](const SampleKey& key) { return !timed.contains(key); });
  return keys;
}

void RunFolder::arrange(const std::vector<SampleKey>& order) {
  TANDEM_CHECK(output_.held(), "{} was opened to read", path_.string());
  if (!begun_) return;
  output_.check_there();
  stop_appending();
  arrange_lines(output_, results_file(manifest_), results_parser(manifest_), order);
  arrange_lines(output_, kTimings, parser_of<SampleTiming>(manifest_), order);
}

void RunFolder::take_back() {
  stop_appending();
  waiting_.clear();
  if (!begun_) return;
  output_.check_there();
  const auto keep_found = [&](const char* name, const LineParser& parse) {
    std::vector<Line> lines = scan_lines(path_ / name, parse).sound;
    std::erase_if(lines, [&](const Line& line) { return !found_.contains(line.key); });
    rewrite_lines(output_, name, lines);
  };
  keep_found(results_file(manifest_), results_parser(manifest_));
  keep_found(kTimings, parser_of<SampleTiming>(manifest_));
  for (std::size_t m = 0; m < manifest_.methods.size(); ++m) {
    const std::string& label = manifest_.methods[m].label;
    if (std::ranges::none_of(found_, [&](const SampleKey& key) { return key.method == label; }))
      output_.remove(trace_file(m + 1, label));
  }
}

std::vector<SampleResult> RunFolder::samples() const {
  return items_of<SampleResult>(*this, "samples.jsonl");
}
std::vector<WindowLoss> RunFolder::windows() const {
  return items_of<WindowLoss>(*this, "windows.jsonl");
}
std::vector<SampleTiming> RunFolder::timings() const {
  return items_of<SampleTiming>(*this, kTimings);
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
