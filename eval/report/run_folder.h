// A run's folder: results (samples.jsonl, or windows.jsonl of a perplexity) and timings. Nothing is written before the
// first sample is finished. Then lines are appended whole, one by one: an interrupted run loses at most the sample it
// was working on, and a damaged line costs its sample alone, which is run again.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eval/report/line_file.h"
#include "eval/report/output_folder.h"
#include "eval/report/schema.h"

namespace tandem::eval {

class RunFolder {
 public:
  /// A new run in a folder that is empty or missing. `force` replaces an earlier run when the first sample is finished:
  /// files that its manifest leads to go, all others stay. Until that sample the folder is as it was; one that this
  /// object made goes with it. InputError for a folder with other files, or that another process writes into.
  static RunFolder create(const std::filesystem::path& path, const Manifest& manifest, bool force = false);

  /// A new run of these lines with their newlines, whole or not at all. Throws as create(), RunError on a full disk.
  static RunFolder create_whole(const std::filesystem::path& path, const Manifest& manifest, const std::string& results,
                                const std::string& timings, bool force);

  /// InputError where create() would refuse the folder, which is not made: to be asked before slow work.
  static void check_new(const std::filesystem::path& path, bool force);
  /// An existing run, to read.
  static RunFolder open(const std::filesystem::path& path);
  /// An existing run, to continue with the command of `mine`. InputError, with nothing changed, where check_resumable()
  /// refuses it. Takes out unfinished lines, samples without a timing (or the reverse), and damaged lines, which are
  /// kept in *.damaged. Where samples are missing, the manifest names the program of `mine` too and has no
  /// finished_utc, and plots are gone. The caller runs what finished() lacks, and ends with arrange().
  static RunFolder resume(const std::filesystem::path& path, const Manifest& mine);

  const std::filesystem::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  /// For the run's further files. Only after create() or resume(), and once the run has begun().
  const OutputFolder& output() const { return output_; }

  /// Whether the manifest is written: by the first finished sample, which replaces an earlier run.
  bool begun() const { return begun_; }

  /// Replaces a file in one step. Before the run has begun, the file is kept in memory.
  void write(const std::string& name, const std::string& text);
  void write_manifest(const Manifest& manifest);

  /// What resume() took out and what becomes of it: a text of one line per damaged line.
  const std::vector<std::string>& repairs() const { return repairs_; }

  /// Only after create() or resume(). Before the run has begun, a result waits for its timing, if the run takes any.
  /// RunError when the disk is full: a run that has not begun then leaves all as it was. FolderLost where somebody
  /// moved, removed or changed the folder or a file.
  void append(const SampleResult& sample);
  void append(const WindowLoss& window);
  void append(const SampleTiming& timing);

  /// Called before each write of lines, the one that begins the run included; what it throws keeps the lines out.
  void before_each_line(std::function<void()> check) { check_ = std::move(check); }
  /// Removes the samples of this process, and its methods' traces. Those that resume() found stay.
  void take_back();

  /// Samples that have all their lines: a timing too, where the run takes timings.
  std::set<SampleKey> finished() const;

  /// Ends the appending and puts the lines in this order, so that samples that were run again stand where they stood.
  void arrange(const std::vector<SampleKey>& order);

  /// All lines. InputError with file and line for one that is malformed, repeated, or not of this run's manifest.
  std::vector<SampleResult> samples() const;
  std::vector<WindowLoss> windows() const;
  std::vector<SampleTiming> timings() const;

 private:
  RunFolder(std::filesystem::path path, Manifest manifest, OutputFolder output);
  void begin_with(const std::array<std::string, 2>& lines);
  void open_appenders();
  void append_line(std::size_t file, const std::string& line);
  void continued_by(const Manifest& mine);

  std::filesystem::path path_;
  Manifest manifest_;
  OutputFolder output_;  // holds nothing where the run was opened to read
  bool begun_ = true;
  std::array<LineAppender, 2> appenders_;  // of results and timings
  std::function<void()> check_;
  std::set<SampleKey> found_;                                  // by resume()
  std::string waiting_;                                        // lines that begin_with() writes, and
  std::vector<std::pair<std::string, std::string>> at_begin_;  // files: name, text
  std::vector<std::string> repairs_;
};

/// The order of a run's lines: lengths, tasks, batches of samples, methods, samples of the batch.
std::vector<SampleKey> keys_in_order(const Manifest& manifest, std::uint32_t batch);

/// Shards of a run (eval/run/run_dataset.h), or any runs of one command that have different samples, as one.
struct Merged {
  std::uint64_t there = 0, all = 0;  // samples, counted with every method
  bool documents_dropped = false;    // some runs are of before version 11, and say not which document a sample is about
};

/// Joins runs into one in `out`, in the run's order: on a simulated clock the bytes that one process would have
/// written; of the oldest of their schema versions. InputError where check_resumable() refuses, a sample differs
/// between two runs, `out` is one of them or a line is damaged; else as RunFolder::create(). On an error `out` is as it
/// was.
Merged merge_runs(std::span<const std::filesystem::path> runs, const std::filesystem::path& out, bool force);

/// The report as one page with its plots, to look at or to send.
inline constexpr const char* kPage = "report.html";

/// The report's tables as a terminal shows them; `tandem report` prints it.
inline constexpr const char* kTextReport = "report.txt";

/// The trace of the run's method `number`, from 1 on: its label makes the name readable, the number makes it unique.
std::string trace_file(std::size_t number, std::string_view label);

/// Whether the folder's manifest.json is a run's of this program, of whatever version: only such a run is replaced.
bool holds_run(const std::filesystem::path& folder);

/// Whether no report may replace the file: by its name and place it is part of a run or a sweep.
bool is_part_of_run(const std::filesystem::path& file);

/// InputError where an entry of the folder is a link: a stranger's run could show any file of this machine.
void refuse_links(const std::filesystem::path& folder);

/// Files of a run and its report, by its manifest of whatever version. No others are ever removed.
const FileSet& run_files();

}  // namespace tandem::eval
