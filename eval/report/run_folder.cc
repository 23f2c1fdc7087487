#include "eval/report/run_folder.h"

#include <algorithm>

#include "engine/common/error.h"
#include "eval/report/manifest_difference.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTimings = "timings.jsonl";

/// A line that is not of this run would silently change a mean, or be left out of it.
void check_belongs(const Manifest& manifest, const auto& item, const std::string& where) {
  const auto fail = [&](const char* field, const std::string& value) {
    throw_input_error("{}: the {} '{}' is not in the run's manifest.json.", where, field, value);
  };
  if (std::ranges::find(manifest.methods, item.method, &MethodEntry::label) == manifest.methods.end())
    fail("method", item.method);
  if (item.benchmark != manifest.benchmark) fail("benchmark", item.benchmark);
  if (std::ranges::find(manifest.tasks, item.task) == manifest.tasks.end()) fail("task", item.task);
  if (std::ranges::find(manifest.lengths, item.length) == manifest.lengths.end())
    fail("length", std::to_string(item.length));
  if (item.index >= manifest.samples_of(item.task)) fail("index", std::to_string(item.index));
  if constexpr (requires { item.clock; }) {
    if (item.clock != manifest.clock) fail("clock", item.clock);
  }
}

/// `items`: where to keep the items themselves, in place of their lines; may be null.
template <class Item>
LineParser parser_of(const Manifest& manifest, std::vector<Item>* items = nullptr) {
  return [&manifest, items](std::string_view text, const std::string& where) {
    Item item = parse_line<Item>(text, where);
    check_belongs(manifest, item, where);
    Line line{item.key(), items == nullptr ? to_line(item) : ""};
    if (items != nullptr) items->push_back(std::move(item));
    return line;
  };
}

/// A file of lines.
struct LinesFile {
  const char* name;
  LineParser parse;
};

constexpr std::size_t kResultsFile = 0, kTimingsFile = 1;

std::array<LinesFile, 2> files_of(const Manifest& m) {
  const bool losses = m.benchmark == kPerplexity;
  return {{{losses ? "windows.jsonl" : "samples.jsonl", losses ? parser_of<WindowLoss>(m) : parser_of<SampleResult>(m)},
           {kTimings, parser_of<SampleTiming>(m)}}};
}

template <class Item>
std::vector<Item> items_of(const RunFolder& run, const char* name) {
  std::vector<Item> items;
  if (run.begun()) read_lines(run.path() / name, parser_of<Item>(run.manifest(), &items));
  return items;
}

using Lines = std::array<std::vector<Line>, 2>;

Lines sound_lines(const fs::path& folder, const Manifest& manifest) {
  const auto files = files_of(manifest);
  return {scan_lines(folder / files[0].name, files[0].parse).sound,
          scan_lines(folder / files[1].name, files[1].parse).sound};
}

/// Samples that have a result and, where the run takes timings, a timing.
std::set<SampleKey> whole_samples(const Manifest& manifest, const Lines& lines) {
  std::set<SampleKey> keys, timed;
  for (const Line& line : lines[1]) timed.insert(line.key);
  for (const Line& line : lines[0])
    if (manifest.clock.empty() || timed.contains(line.key)) keys.insert(line.key);
  return keys;
}

/// Makes the run's files hold those of `lines` that are of these samples.
void keep(const OutputFolder& output, const Manifest& manifest, Lines lines, const std::set<SampleKey>& samples) {
  const auto files = files_of(manifest);
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::erase_if(lines[i], [&](const Line& line) { return !samples.contains(line.key); });
    rewrite_lines(output, files[i].name, lines[i]);
  }
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
  folder.begin_with({results, timings});
  return folder;
}

void RunFolder::begin_with(const std::array<std::string, 2>& lines) {
  TANDEM_CHECK(output_.held() && !begun_, "{} is not to begin", path_.string());
  if (check_) check_();
  const auto own = files_of(manifest_);
  std::vector<std::pair<std::string, std::string>> files = std::move(at_begin_);
  for (std::size_t i = 0; i < own.size(); ++i) files.emplace_back(own[i].name, lines[i]);
  output_.replace(files, to_json_text(manifest_), run_files());
  begun_ = true;
  open_appenders();
  for (std::size_t i = 0; i < own.size(); ++i) {  // opening makes a file that somebody removed in this moment
    if (appenders_[i].bytes() == lines[i].size()) continue;
    if (appenders_[i].bytes() == 0) output_.remove(own[i].name);
    throw FolderLost(
        fmt::format("The file '{}' was removed while it was being written.", (path_ / own[i].name).string()));
  }
  waiting_.clear();
}

void RunFolder::open_appenders() {
  const auto files = files_of(manifest_);
  for (std::size_t i = 0; i < files.size(); ++i) appenders_[i] = LineAppender(output_, files[i].name);
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
  const auto files = files_of(there);
  Lines lines;
  for (std::size_t i = 0; i < files.size(); ++i)
    lines[i] = set_damaged_aside(output, files[i].name, files[i].parse, repairs);
  const std::set<SampleKey> found = whole_samples(there, lines);
  keep(output, there, std::move(lines), found);
  RunFolder folder(path, there, std::move(output));
  folder.repairs_ = std::move(repairs);
  folder.found_ = found;
  folder.open_appenders();
  folder.continued_by(mine);
  return folder;
}

void RunFolder::continued_by(const Manifest& mine) {
  const std::size_t there = found_.size();
  if (there == manifest_.all_samples() * manifest_.methods.size()) return;
  for (const char* plot : {"plot.png", "plot.svg", "pareto.png", "pareto.svg", "equal.png", "equal.svg", kPage})
    output_.remove(plot);
  Manifest manifest = manifest_;
  manifest.command = mine.command;  // the room for KV may be another: that of before may not have been enough
  manifest.finished_utc.clear();    // a damaged line may have made it unfinished again
  manifest.programs = with_program(there == 0 ? std::vector<Program>() : manifest.programs, mine.programs.front());
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

void RunFolder::append_line(std::size_t file, const std::string& line) {
  TANDEM_CHECK(output_.held(), "{} was opened to read", path_.string());
  if (!begun_ && file == kTimingsFile) return begin_with({waiting_, line + "\n"});
  if (!begun_) {
    waiting_ += line + "\n";
    if (manifest_.clock.empty()) begin_with({waiting_, ""});
    return;
  }
  if (check_) check_();
  try {
    appenders_[file].append(line);
  } catch (...) {
    appenders_ = {};
    throw;
  }
  output_.check_there();
}

void RunFolder::append(const SampleResult& sample) {
  TANDEM_CHECK(manifest_.benchmark != kPerplexity, "{} holds windows", path_.string());
  append_line(kResultsFile, to_line(sample));
}
void RunFolder::append(const WindowLoss& window) {
  TANDEM_CHECK(manifest_.benchmark == kPerplexity, "{} holds samples", path_.string());
  append_line(kResultsFile, to_line(window));
}
void RunFolder::append(const SampleTiming& timing) {
  append_line(kTimingsFile, to_line(timing));
}

std::set<SampleKey> RunFolder::finished() const {
  if (!begun_) return {};
  const auto files = files_of(manifest_);
  Lines lines;
  for (std::size_t i = 0; i < (manifest_.clock.empty() ? kTimingsFile : files.size()); ++i)
    lines[i] = scan_lines(path_ / files[i].name, files[i].parse).sound;
  return whole_samples(manifest_, lines);
}

void RunFolder::arrange(const std::vector<SampleKey>& order) {
  TANDEM_CHECK(output_.held(), "{} was opened to read", path_.string());
  if (!begun_) return;
  output_.check_there();
  appenders_ = {};
  for (const LinesFile& file : files_of(manifest_)) arrange_lines(output_, file.name, file.parse, order);
}

void RunFolder::take_back() {
  appenders_ = {};
  waiting_.clear();
  if (!begun_) return;
  output_.check_there();
  keep(output_, manifest_, sound_lines(path_, manifest_), found_);
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
