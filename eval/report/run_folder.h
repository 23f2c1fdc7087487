// A run's folder: results (samples.jsonl, or windows.jsonl of a perplexity) and timings. Lines are appended whole and
// flushed one by one, so that an interrupted run loses at most the sample it was working on; a damaged line costs its
// sample, which is run again, and nothing else.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "eval/report/folder_lock.h"
#include "eval/report/line_file.h"
#include "eval/report/schema.h"

namespace tandem::eval {

class RunFolder {
 public:
  /// A new run. The folder may exist if it is empty. `force` replaces an earlier run in it: its files are put
  /// aside until keep(), files of other names stay; a non-empty folder without a run's manifest.json is refused even
  /// then, and so is one that another process is writing into. An earlier run that a killed process had put aside
  /// before it had a finished sample comes back first, here and in check_new() and resume(). Where the new run's
  /// manifest cannot be written, the earlier run is back when the error is thrown.
  static RunFolder create(const std::filesystem::path& path, const Manifest& manifest, bool force = false);

  /// InputError where create() would refuse the folder for what is in it: to be asked before slow work.
  static void check_new(const std::filesystem::path& path, bool force);
  /// An existing run, to read.
  static RunFolder open(const std::filesystem::path& path);
  /// An existing run, to continue with the command of `mine`. InputError where that cannot go on (resume_check.h);
  /// nothing is changed then. Takes out the line that was being written, samples without a timing (or the reverse), and
  /// damaged lines, which are kept beside in samples.jsonl.damaged and timings.jsonl.damaged. Where samples are
  /// missing, the manifest names the program of `mine` too, and is without finished_utc, and plots of the others are
  /// gone. The caller runs what finished() lacks, and ends with arrange().
  static RunFolder resume(const std::filesystem::path& path, const Manifest& mine);

  const std::filesystem::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  void write_manifest(const Manifest& manifest);  // replaces the file in one step

  /// What resume() took out and what becomes of it: a text of one line per damaged line.
  const std::vector<std::string>& repairs() const { return repairs_; }

  /// Throw RunError when the disk is full. Only after create() or resume().
  void append(const SampleResult& sample);
  void append(const WindowLoss& window);
  void append(const SampleTiming& timing);

  /// Samples that have all their lines: a timing too, where the run takes timings.
  std::set<SampleKey> finished() const;

  /// Ends the appending and puts the lines in this order, so that samples that were run again stand where they stood.
  void arrange(const std::vector<SampleKey>& order);

  /// After create(), exactly one of these ends the run's beginning. keep: what it has is worth keeping, an earlier run
  /// that `force` replaced is gone for good. discard: the earlier run comes back; without one, a run that has no
  /// finished sample is removed, and the folder if nothing else is in it. undo: all is as before create(), whatever
  /// samples are finished. Only what create() made can be discarded or undone, and only before keep().
  void keep();
  void discard();
  void undo();

  /// All lines. Throw InputError with file and line for one that is malformed, repeated, or not of this run: another
  /// clock, a method, task, length or index that its manifest does not have.
  std::vector<SampleResult> samples() const;
  std::vector<WindowLoss> windows() const;
  std::vector<SampleTiming> timings() const;

 private:
  enum class Use : std::uint8_t { read, begun, kept };  // begun: may still be discarded
  RunFolder(std::filesystem::path path, Manifest manifest, Use use, FolderLock lock);
  void append_line(LineAppender& out, const std::string& line);
  void continued_by(const Manifest& mine);
  void stop_appending();
  void put_back();

  std::filesystem::path path_;
  FolderLock lock_;
  Manifest manifest_;
  Use use_;
  bool writable_;
  LineAppender results_, timings_;
  std::vector<std::string> repairs_;
};

/// The order of a run's lines: lengths, tasks, batches of samples, methods, samples of the batch.
std::vector<SampleKey> keys_in_order(const Manifest& manifest, std::uint32_t batch);

}  // namespace tandem::eval
