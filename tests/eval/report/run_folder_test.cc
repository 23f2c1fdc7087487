#include "eval/report/run_folder.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <optional>

#include "engine/common/error.h"
#include "tests/eval/report/file_size_limit.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Two samples with timings under one method.
fs::path finished_run(const TemporaryFolder& root) {
  const fs::path path = root / "run";
  RunFolder folder = RunFolder::create(path, example_manifest());
  for (std::uint32_t i = 0; i < 2; ++i) {
    folder.append(example_sample(i));
    folder.append(example_timing(i));
  }
  return path;
}

TEST(RunFolder, KeepsWhatWasAppendedLineByLine) {
  TemporaryFolder root;
  RunFolder folder = RunFolder::create(root / "a", example_manifest());
  folder.append(example_sample(0));
  folder.append(example_timing(0));
  // Readable at once: an interrupted run loses nothing that was appended.
  const RunFolder reader = RunFolder::open(root / "a");
  EXPECT_EQ(reader.manifest(), example_manifest());
  EXPECT_EQ(reader.samples(), std::vector<SampleResult>{example_sample(0)});
  EXPECT_EQ(reader.timings(), std::vector<SampleTiming>{example_timing(0)});
  EXPECT_EQ(read_bytes(root / "a" / "samples.jsonl"), to_line(example_sample(0)) + "\n");
}

TEST(RunFolder, ReadersDoNotWrite) {
  TemporaryFolder root;
  RunFolder folder = RunFolder::open(finished_run(root));
  EXPECT_THROW(folder.append(example_sample(9)), LogicError);
}

TEST(RunFolder, ManifestIsReplacedInOneStep) {
  TemporaryFolder root;
  RunFolder folder = begun_run(root / "a", example_manifest());
  Manifest manifest = folder.manifest();
  manifest.finished_utc = "2026-01-31T13:00:00Z";
  folder.write_manifest(manifest);
  EXPECT_EQ(RunFolder::open(root / "a").manifest(), manifest);
  EXPECT_FALSE(fs::exists(root / "a" / "manifest.json.new"));
}

TEST(RunFolder, NothingIsWrittenBeforeTheFirstSampleIsFinished) {
  TemporaryFolder root;
  const fs::path path = finished_run(root), fresh = root / "new" / "b";
  write_bytes(path / "equal.json", "earlier");
  const auto before = contents(path);
  {
    RunFolder again = RunFolder::create(path, example_manifest(), /*force=*/true);
    RunFolder made = RunFolder::create(fresh, example_manifest());
    for (RunFolder* folder : {&again, &made}) {
      folder->write("equal.json", "later");
      folder->append(example_sample(3));
      EXPECT_FALSE(folder->begun());
      EXPECT_TRUE(folder->finished().empty());
      EXPECT_TRUE(folder->samples().empty());
    }
    EXPECT_EQ(contents(path), before);
    EXPECT_TRUE(fs::is_empty(fresh));
  }
  EXPECT_EQ(contents(path), before);
  EXPECT_FALSE(fs::exists(root / "new")) << "made for the run, and empty";
  for (const fs::path& out : {path, fresh}) {
    RunFolder folder = RunFolder::create(out, example_manifest(), /*force=*/true);
    folder.write("equal.json", "later");
    folder.append(example_sample(3));
    folder.append(example_timing(3));
    const std::map<std::string, std::string> begun = {{"equal.json", "later"},
                                                      {"manifest.json", to_json_text(example_manifest())},
                                                      {"samples.jsonl", to_line(example_sample(3)) + "\n"},
                                                      {"timings.jsonl", to_line(example_timing(3)) + "\n"}};
    EXPECT_EQ(contents(out), begun);
    EXPECT_EQ(folder.finished().size(), 1u);
  }
}

TEST(RunFolder, AnEarlierRunIsReplacedOnlyOnRequest) {
  TemporaryFolder root;
  const fs::path path = finished_run(root);
  EXPECT_THAT([&] { RunFolder::create(path, example_manifest()); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("--resume"), HasSubstr("--force"))));
  EXPECT_EQ(RunFolder::open(path).samples().size(), 2u);
  write_bytes(path / "notes.txt", "mine");
  fs::create_directory(path / "plot.png");
  begun_run(path, example_manifest(), true);
  EXPECT_TRUE(RunFolder::open(path).samples().empty());
  EXPECT_EQ(read_bytes(path / "notes.txt"), "mine");
  EXPECT_TRUE(fs::is_directory(path / "plot.png"));
  fs::remove(path / "timings.jsonl");
  fs::create_directory(path / "timings.jsonl");
  const std::string manifest = read_bytes(path / "manifest.json");
  EXPECT_THAT([&] { begun_run(path, example_manifest(), true); },
              ThrowsMessage<RunError>(HasSubstr("timings.jsonl' is a folder")));
  EXPECT_EQ(read_bytes(path / "manifest.json"), manifest) << "nothing was begun";
}

TEST(RunFolder, ForceRemovesWhatIsOfTheEarlierRun) {
  TemporaryFolder root;
  const fs::path path = finished_run(root);
  const std::string trace = trace_file(2, "hybrid:budget=0.2");
  EXPECT_EQ(trace, "trace-2-hybrid_budget_0.2.json");
  EXPECT_LT(trace_file(1, std::string(5000, 'x')).size(), 100u);
  const char* own[] = {"report.txt",    "flops.json", "leval.json", "longbench.json", "reasoning.json",
                       "errors.json",   "report.md",  "ruler.json", "errors.jsonl",   "windows.jsonl",
                       "report.md.new", "plot.svg",   "pareto.svg", "report.html",    trace.c_str()};
  const char* foreign[] = {"trace-2-full.json", "trace-3-hgca.json", "trace-12.json", "samples.jsonl.bak",
                           "sweep.json"};
  for (const char* name : own) write_bytes(path / name, "earlier");
  for (const char* name : foreign) write_bytes(path / name, "mine");
  write_bytes(root / "precious", "mine");
  fs::remove(path / "report.md");
  fs::create_symlink(root / "precious", path / "report.md");
  begun_run(path, example_manifest(), true);
  for (const char* name : own) EXPECT_FALSE(fs::exists(fs::symlink_status(path / name))) << name;
  for (const char* name : foreign) EXPECT_EQ(read_bytes(path / name), "mine") << name;
  EXPECT_EQ(read_bytes(root / "precious"), "mine");
}

TEST(RunFolder, NothingIsWrittenThroughALink) {
  TemporaryFolder root;
  write_bytes(root / "precious", "mine");
  const fs::path path = finished_run(root);
  const std::string samples = read_bytes(path / "samples.jsonl");
  fs::create_symlink(root / "precious", path / "manifest.json.new");
  fs::create_symlink(root / "precious", path / "summary.json");
  EXPECT_THAT([&] { RunFolder::resume(path, example_manifest()); },
              ThrowsMessage<InputError>(HasSubstr("is a link, and no link in a run's folder is followed")));
  for (const char* name : {"manifest.json.new", "summary.json"}) fs::remove(path / name);
  {
    RunFolder folder = RunFolder::resume(path, example_manifest());
    for (const char* name : {"summary.json.new", "summary.json"}) fs::create_symlink(root / "precious", path / name);
    folder.write("summary.json", "{}");
    folder.append(example_sample(2));
    folder.append(example_timing(2));
  }
  EXPECT_EQ(read_bytes(path / "summary.json"), "{}");
  EXPECT_EQ(read_bytes(root / "precious"), "mine");
  fs::rename(path / "samples.jsonl", root / "elsewhere");
  fs::create_symlink(root / "elsewhere", path / "samples.jsonl");
  EXPECT_THAT([&] { RunFolder::resume(path, example_manifest()); },
              ThrowsMessage<InputError>(HasSubstr("samples.jsonl' is a link")));
  EXPECT_TRUE(read_bytes(root / "elsewhere").starts_with(samples));
}

TEST(RunFolder, AFolderThatIsMovedRemovedOrEmptiedIsNoticed) {
  const auto lost = [](const std::function<void(const fs::path&)>& harm, bool begun, const char* says) {
    TemporaryFolder root;
    const fs::path path = root / "run";
    std::optional<RunFolder> folder = RunFolder::create(path, example_manifest());
    const auto append = [&](std::uint32_t index) {
      folder->append(example_sample(index));
      folder->append(example_timing(index));
    };
    if (begun) append(0);
    harm(path);
    EXPECT_THAT([&] { append(1); }, ThrowsMessage<FolderLost>(AllOf(HasSubstr(path.string()), HasSubstr(says))));
    fs::path moved = path;
    moved += ".moved";
    if (!fs::exists(moved) || !begun) return;
    EXPECT_THROW(folder->write("report.md", "?"), FolderLost);
    EXPECT_EQ(read_bytes(moved / "samples.jsonl"),
              to_line(example_sample(0)) + "\n" + to_line(example_sample(1)) + "\n")
        << "it went along";
    folder.reset();
    EXPECT_EQ(RunFolder::resume(moved, example_manifest()).finished().size(), 1u);
  };
  const auto move = [](const fs::path& path) {
    fs::path to = path;
    fs::rename(path, to += ".moved");
  };
  for (const bool begun : {false, true}) {
    lost(move, begun, "was moved to");
    lost([&](const fs::path& path) { move(path), fs::create_directory(path); }, begun, "was moved to");
    lost([](const fs::path& path) { fs::remove_all(path); }, begun, "was removed");
    lost([](const fs::path& path) { fs::remove_all(path), fs::create_directory(path); }, begun, "was removed");
  }
  lost([](const fs::path& path) { fs::remove(path / "samples.jsonl"); }, true, "samples.jsonl' was removed");
  lost([](const fs::path& path) { fs::remove(path / "timings.jsonl"); }, true, "timings.jsonl' was removed");
  lost([](const fs::path& path) { fs::resize_file(path / "samples.jsonl", 0); }, true, "was changed by somebody");
  lost([](const fs::path& path) { write_bytes(path / "timings.jsonl", "another's"); }, true, "was changed by somebody");
}

TEST(RunFolder, IsFoundThroughLinksAndDots) {
  TemporaryFolder root;
  fs::create_directories(root / "real" / "inner");
  fs::create_directory_symlink(root / "real" / "inner", root / "link");
  const fs::path beside = root / "link" / ".." / "run" / "";
  {
    RunFolder folder = begun_run(beside, example_manifest());
    EXPECT_EQ(folder.path(), root.path() / "real" / "run") << "beside what the link names";
    EXPECT_THAT([&] { RunFolder::check_new(root / "real" / "." / "run", true); },
                ThrowsMessage<InputError>(HasSubstr("Another process is writing")));
  }
  { begun_run(root / "nothing" / ".." / "run", example_manifest()); }
  EXPECT_FALSE(fs::exists(root / "nothing"));
  EXPECT_TRUE(fs::exists(root / "run" / "manifest.json"));
  fs::create_directory_symlink(root / "gone", root / "dangling");
  write_bytes(root / "file", "mine");
  for (const char* name : {"dangling", "file", "file/x", "file/x/y"}) {
    EXPECT_THROW(RunFolder::check_new(root / name, true), InputError) << name;
    EXPECT_THROW(RunFolder::create(root / name, example_manifest(), true), InputError) << name;
  }
  EXPECT_THROW(RunFolder::create(root / std::string(300, 'x'), example_manifest()), InputError);
  EXPECT_FALSE(fs::exists(root / "gone"));
  EXPECT_EQ(read_bytes(root / "file"), "mine");
}

// flock is of an open file, so that one process stands for two.
TEST(RunFolder, TwoDoNotWriteIntoOne) {
  TemporaryFolder root;
  const fs::path path = root / "run";
  {
    RunFolder first = RunFolder::create(path, example_manifest());
    first.append(example_sample(0));
    first.append(example_timing(0));
    for (const bool force : {false, true})
      EXPECT_THAT([&] { RunFolder::create(path, example_manifest(), force); },
                  ThrowsMessage<InputError>(HasSubstr("Another process is writing")));
    EXPECT_THAT([&] { RunFolder::resume(path, example_manifest()); },
                ThrowsMessage<InputError>(HasSubstr("Another process is writing")));
    EXPECT_EQ(RunFolder::open(path).samples().size(), 1u) << "to read is no matter";
    const RunFolder moved = std::move(first);
    EXPECT_THROW(RunFolder::resume(path, example_manifest()), InputError);
  }
  EXPECT_EQ(RunFolder::resume(path, example_manifest()).finished().size(), 1u);
}

TEST(RunFolder, ForeignFoldersAreNeverTouched) {
  TemporaryFolder root;
  fs::create_directories(root / "photos");
  write_bytes(root / "photos" / "samples.jsonl", "precious");
  write_bytes(root / "photos" / "manifest.json.new", "precious, too");
  EXPECT_THROW(RunFolder::check_new(root / "photos", true), InputError);
  for (const bool force : {false, true})
    EXPECT_THAT([&] { RunFolder::create(root / "photos", example_manifest(), force); },
                ThrowsMessage<InputError>(HasSubstr("holds no run")));
  EXPECT_EQ(read_bytes(root / "photos" / "samples.jsonl"), "precious");
  EXPECT_EQ(read_bytes(root / "photos" / "manifest.json.new"), "precious, too");
  EXPECT_THROW(RunFolder::create(root / "photos" / "samples.jsonl", example_manifest(), true), InputError);
  EXPECT_THROW(RunFolder::create(root / "photos" / "samples.jsonl" / "x", example_manifest()), InputError);
}

TEST(RunFolder, OnlyARunsManifestMakesAFolderARun) {
  TemporaryFolder root;
  fs::create_directories(root / "app");
  for (const char* manifest : {R"({"name": "My app", "icons": []})", R"({"schema_version": 1, "command": "make"})",
                               "{\"schema_version\"", "[]"}) {
    write_bytes(root / "app" / "manifest.json", manifest);
    write_bytes(root / "app" / "report.md", "precious");
    for (const bool force : {false, true})
      EXPECT_THAT([&] { RunFolder::create(root / "app", example_manifest(), force); },
                  ThrowsMessage<InputError>(HasSubstr("its manifest.json is damaged, or no run's")));
    EXPECT_EQ(read_bytes(root / "app" / "manifest.json"), manifest);
    EXPECT_EQ(read_bytes(root / "app" / "report.md"), "precious");
  }
  // What a later program wrote is a run too.
  write_bytes(root / "app" / "manifest.json", R"({"schema_version": 99, "command": "tandem compare", "more": 1})");
  begun_run(root / "app", example_manifest(), true);
  EXPECT_FALSE(fs::exists(root / "app" / "report.md"));
}

TEST(RunFolder, EveryProgramThatMadeSamplesIsNamed) {
  TemporaryFolder root;
  const fs::path path = root / "run";
  Manifest mine = example_manifest();
  const auto resumed_by = [&](const char* commit, int samples) {
    mine.programs[0].git_commit = commit;
    RunFolder folder = RunFolder::resume(path, mine);
    for (int i = 0; i < samples; ++i) {
      const auto index = static_cast<std::uint32_t>(folder.finished().size());
      folder.append(example_sample(index % 4, index < 4 ? "full" : "hybrid:budget=0.2"));
      folder.append(example_timing(index % 4, index < 4 ? "full" : "hybrid:budget=0.2"));
    }
    std::string commits;
    const RunFolder opened = RunFolder::open(path);
    for (const Program& program : opened.manifest().programs) commits += program.git_commit + " ";
    return commits;
  };
  { begun_run(path, mine); }
  const std::string begun = read_bytes(path / "manifest.json");
  EXPECT_EQ(resumed_by("abc", 0), "abc ");
  EXPECT_EQ(read_bytes(path / "manifest.json"), begun);
  EXPECT_EQ(resumed_by("def", 2), "def ") << "the first made nothing";
  EXPECT_EQ(resumed_by("abc", 3), "def abc ");
  EXPECT_EQ(resumed_by("def", 0), "def abc ");
  EXPECT_EQ(resumed_by("ghi", 3), "def abc ghi ");
  EXPECT_EQ(resumed_by("jkl", 0), "def abc ghi ") << "nothing was missing";
}

TEST(RunFolder, ARunIsUnfinishedAgainOnlyWhereSamplesAreMissing) {
  TemporaryFolder root;
  const fs::path path = root / "run";
  {
    RunFolder folder = RunFolder::create(path, example_manifest());
    for (const SampleKey& key : keys_in_order(example_manifest(), 1)) {
      folder.append(example_sample(key.index, key.method));
      folder.append(example_timing(key.index, key.method));
    }
    Manifest manifest = folder.manifest();
    manifest.finished_utc = "2026-01-31T13:00:00Z";
    folder.write_manifest(manifest);
  }
  EXPECT_EQ(RunFolder::resume(path, example_manifest()).manifest().finished_utc, "2026-01-31T13:00:00Z");
  write_bytes(path / "samples.jsonl", "?" + read_bytes(path / "samples.jsonl"));
  { RunFolder::resume(path, example_manifest()); }
  EXPECT_EQ(RunFolder::open(path).manifest().finished_utc, "");
}

TEST(RunFolder, PlotsGoWhereSamplesAreMissing) {
  TemporaryFolder root;
  const fs::path path = root / "run";
  Manifest manifest = example_manifest();
  manifest.methods.pop_back();
  {
    RunFolder folder = RunFolder::create(path, manifest);
    for (const SampleKey& key : keys_in_order(manifest, 1)) {
      folder.append(example_sample(key.index));
      folder.append(example_timing(key.index));
    }
  }
  const char* plots[] = {"plot.png", "plot.svg", "equal.png", "equal.svg"};
  for (const char* name : plots) write_bytes(path / name, "of these samples");
  { RunFolder::resume(path, manifest); }
  for (const char* name : plots) EXPECT_TRUE(fs::exists(path / name)) << name;
  write_bytes(path / "samples.jsonl", "?" + read_bytes(path / "samples.jsonl"));
  { RunFolder::resume(path, manifest); }
  for (const char* name : plots) EXPECT_FALSE(fs::exists(path / name)) << name;
}

TEST(RunFolder, UnwritableFolderIsASentence) {
  EXPECT_THAT([] { RunFolder::create("/proc/tandem-run", example_manifest()); },
              ThrowsMessage<InputError>(HasSubstr("/proc/tandem-run")));
  EXPECT_THAT([] { RunFolder::create("/sys", example_manifest(), true); },
              ThrowsMessage<InputError>(HasSubstr("/sys")));
}

TEST(RunFolder, AFullDiskIsASentence) {
  TemporaryFolder root;
  {
    RunFolder folder = RunFolder::create(root / "a", example_manifest());
    folder.append(example_sample(0));
    folder.append(example_timing(0));
    const FileSizeLimit limit(100);
    EXPECT_THAT([&] { folder.append(example_sample(1)); },
                ThrowsMessage<RunError>(AllOf(HasSubstr("samples.jsonl"), HasSubstr("cannot be written"))));
    EXPECT_THAT([&] { folder.write_manifest(example_manifest()); },
                ThrowsMessage<RunError>(HasSubstr("manifest.json")));
  }
  EXPECT_FALSE(fs::exists(root / "a" / "manifest.json.new"));             // it would take the room that is missing
  EXPECT_EQ(RunFolder::open(root / "a").manifest(), example_manifest());  // the old one is still whole
  EXPECT_EQ(RunFolder::resume(root / "a", example_manifest()).samples().size(), 1u);
}

TEST(RunFolder, MissingRunIsASentence) {
  TemporaryFolder root;
  EXPECT_THAT([&] { RunFolder::open(root / "nothing"); }, ThrowsMessage<InputError>(HasSubstr("There is no folder")));
  fs::create_directory(root / "empty");
  EXPECT_THAT([&] { RunFolder::open(root / "empty"); }, ThrowsMessage<InputError>(HasSubstr("no file manifest.json")));
  EXPECT_THROW(RunFolder::resume(root / "nothing", example_manifest()), InputError);
}

TEST(RunFolder, BrokenLinesAreNamedByFileAndLine) {
  TemporaryFolder root;
  const fs::path path = finished_run(root);
  const std::string good = read_bytes(path / "samples.jsonl");
  const auto expect = [&](const std::string& text, const char* line, const char* message) {
    write_bytes(path / "samples.jsonl", text);
    EXPECT_THAT([&] { RunFolder::open(path).samples(); },
                ThrowsMessage<InputError>(AllOf(HasSubstr(line), HasSubstr(message))));
  };
  expect(good + "nonsense\n", "samples.jsonl:3", "not valid JSON");
  expect(good + "\n", "samples.jsonl:3", "not valid JSON");
  expect(good + to_line(example_sample(1)) + "\n", "samples.jsonl:3", "already on line 2");
  expect(good + "{\"benchmark\"", "samples.jsonl:3", "not finished");
  expect(std::string("\0\n", 2), "samples.jsonl:1", "not valid JSON");
  fs::remove(path / "samples.jsonl");
  EXPECT_TRUE(RunFolder::open(path).samples().empty());
}

TEST(RunFolder, ResumedRunEqualsAnUninterruptedOne) {
  TemporaryFolder root;
  const fs::path path = finished_run(root);
  const std::string samples = read_bytes(path / "samples.jsonl"), timings = read_bytes(path / "timings.jsonl");
  const std::string third = to_line(example_sample(2)), third_timing = to_line(example_timing(2));
  // Cut at every byte of the third sample's two lines, in the order in which they are written.
  for (std::size_t cut = 0; cut <= third.size() + third_timing.size() + 1; cut += 7) {
    const std::size_t in_sample = std::min(cut, third.size() + 1), in_timing = cut - in_sample;
    write_bytes(path / "samples.jsonl", samples + (third + "\n").substr(0, in_sample));
    write_bytes(path / "timings.jsonl", timings + third_timing.substr(0, in_timing));
    RunFolder folder = RunFolder::resume(path, example_manifest());
    ASSERT_EQ(folder.samples().size(), 2u) << cut;
    folder.append(example_sample(2));
    folder.append(example_timing(2));
    EXPECT_EQ(read_bytes(path / "samples.jsonl"), samples + third + "\n");
    EXPECT_EQ(read_bytes(path / "timings.jsonl"), timings + third_timing + "\n");
  }
}

TEST(RunFolder, ResumeOfARunWithoutTimingsKeepsItsSamples) {
  TemporaryFolder root;
  Manifest manifest = example_manifest();
  manifest.clock.clear();
  { RunFolder::create(root / "a", manifest).append(example_sample(0)); }
  EXPECT_EQ(RunFolder::resume(root / "a", manifest).samples().size(), 1u);
}

TEST(RunFolder, ThisProcesssSamplesAreTakenBack) {
  TemporaryFolder root;
  const fs::path path = finished_run(root);
  const auto before = contents(path);
  write_bytes(path / "trace-1-full.json", "earlier");
  {
    RunFolder folder = RunFolder::resume(path, example_manifest());
    for (const char* method : {"full", "hybrid:budget=0.2"}) {
      folder.append(example_sample(2, method));
      folder.append(example_timing(2, method));
    }
    folder.append(example_sample(3));
    write_bytes(path / trace_file(2, "hybrid:budget=0.2"), "of this process");
    folder.take_back();
    EXPECT_EQ(folder.finished().size(), 2u);
  }
  EXPECT_TRUE(fs::remove(path / "trace-1-full.json"));
  EXPECT_EQ(contents(path), before);
  RunFolder fresh = RunFolder::create(root / "b", example_manifest());
  fresh.before_each_line([] { throw_run_error("no"); });
  fresh.append(example_sample(2));
  EXPECT_THROW(fresh.append(example_timing(2)), RunError);
  EXPECT_FALSE(fresh.begun());
  fresh.before_each_line({});
  fresh.append(example_timing(2));
  fresh.take_back();
  EXPECT_TRUE(fresh.finished().empty());
  EXPECT_TRUE(fs::exists(root / "b" / "manifest.json")) << "to go on with";
}

TEST(RunFolder, ATaskOfFewerSamplesHasNoMore) {
  Manifest manifest = example_manifest();
  manifest.tasks = {"a", "b"};
  manifest.samples = 3;
  manifest.task_samples = {1, 3};
  const std::vector<SampleKey> keys = keys_in_order(manifest, 2);
  ASSERT_EQ(keys.size(), 8u);
  EXPECT_EQ(keys[1].task, "a");
  EXPECT_EQ(keys[2].task, "b");
  EXPECT_EQ(keys.back().index, 2u);
  TemporaryFolder root;
  RunFolder folder = RunFolder::create(root / "run", manifest);
  SampleResult sample = example_sample();
  sample.task = "a";
  sample.index = 1;
  folder.append(sample);
  folder.append(example_timing());
  EXPECT_THROW(folder.samples(), InputError);
}

TEST(Machine, IsDescribed) {
  const Machine machine = this_machine();
  EXPECT_FALSE(machine.cpu_model.empty());
  EXPECT_GT(machine.cores, 0u);
  EXPECT_GT(machine.memory_bytes, 1u << 20);
  EXPECT_THAT(utc_now(),
              ::testing::MatchesRegex("20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z"));
}

}  // namespace
}  // namespace tandem::eval
