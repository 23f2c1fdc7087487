// Shards of a run become the run that one process would have made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "eval/report/run_folder.h"
#include "eval/run/run_dataset.h"
#include "tests/eval/report/file_size_limit.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// These samples of the example under all its methods, in this order.
std::filesystem::path write_part(const TemporaryFolder& root, const char* name, const Manifest& manifest,
                                 const std::vector<std::uint32_t>& indices) {
  RunFolder folder = RunFolder::create(root / name, manifest);
  for (const std::uint32_t index : indices) {
    for (const MethodEntry& method : manifest.methods) {
      folder.append(example_sample(index, method.label));
      folder.append(example_timing(index, method.label));
    }
  }
  return root / name;
}

std::string refusal(const std::vector<std::filesystem::path>& runs, const std::filesystem::path& out) {
  try {
    merge_runs(runs, out, false);
  } catch (const InputError& error) {
    EXPECT_FALSE(std::filesystem::exists(out));
    return error.what();
  }
  return "merged";
}

TEST(Shard, TakesEveryBatchOnce) {
  for (std::uint32_t of = 1; of < 6; ++of) {
    for (std::uint64_t batch = 0; batch < 23; ++batch) {
      int takers = 0;
      for (std::uint32_t number = 1; number <= of; ++number) takers += Shard{number, of}.has(batch) ? 1 : 0;
      EXPECT_EQ(takers, 1);
    }
  }
}

TEST(MergeRuns, GivesTheBytesOfOneRun) {
  const TemporaryFolder root;
  const Manifest manifest = example_manifest();
  const auto whole = write_part(root, "whole", manifest, {0, 1, 2, 3});
  Manifest later = manifest;
  later.started_utc = "2026-01-30T12:00:00Z";
  later.programs[0].git_commit = "def";
  const auto a = write_part(root, "a", manifest, {3, 1}), b = write_part(root, "b", later, {2, 0, 1});
  const Merged merged = merge_runs(std::vector{a, b}, root / "both", false);
  EXPECT_EQ(merged.there, 8u);
  EXPECT_EQ(merged.all, 8u);
  for (const char* file : {"samples.jsonl", "timings.jsonl"})
    EXPECT_EQ(read_bytes(root / "both" / file), read_bytes(whole / file)) << file;
  const Manifest both = RunFolder::open(root / "both").manifest();
  EXPECT_EQ(both.started_utc, "2026-01-30T12:00:00Z");
  EXPECT_EQ(both.finished_utc, "");
  ASSERT_EQ(both.programs.size(), 2u);
  EXPECT_EQ(both.programs[1].git_commit, "def");
}

TEST(MergeRuns, IsAsOldAsTheOldestRun) {
  const TemporaryFolder root;
  Manifest newer = example_manifest(), older = newer;
  older.schema_version = kDocumentsSince - 1;
  Manifest between = newer;
  between.schema_version = kPartedSince - 1;
  older.programs[0].git_commit = "old";
  const auto with_documents = [&](const char* name, const Manifest& manifest,
                                  const std::vector<std::uint32_t>& indices) {
    RunFolder folder = RunFolder::create(root / name, manifest);
    for (const std::uint32_t index : indices) {
      SampleResult sample = example_sample(index);
      if (manifest.schema_version >= kDocumentsSince) sample.document = index / 2;
      if (manifest.schema_version >= kPartedSince) sample.parted = Parting{index, {}, {}};
      folder.append(sample);
      folder.append(example_timing(index));
    }
    return root / name;
  };
  const auto a = with_documents("a", newer, {0, 1}), b = with_documents("b", older, {1, 2, 3}),
             c = with_documents("c", newer, {2, 3}), d = with_documents("d", between, {1, 2, 3});
  for (const auto& parts : {std::vector{a, b}, std::vector{b, a}}) {
    const Merged merged = merge_runs(parts, root / "both", /*force=*/true);
    EXPECT_EQ(merged.there, 4u) << "sample 1 is the same in both";
    EXPECT_TRUE(merged.documents_dropped);
    const RunFolder both = RunFolder::open(root / "both");
    EXPECT_EQ(both.manifest().schema_version, older.schema_version);
    EXPECT_EQ(both.manifest().programs.size(), 2u);
    for (const SampleResult& sample : both.samples()) EXPECT_FALSE(sample.document || sample.parted) << sample.index;
  }
  EXPECT_FALSE(merge_runs(std::vector{a, d}, root / "between", false).documents_dropped);
  for (const SampleResult& sample : RunFolder::open(root / "between").samples()) {
    EXPECT_EQ(sample.document, sample.index / 2);
    EXPECT_FALSE(sample.parted) << sample.index;
  }
  EXPECT_FALSE(merge_runs(std::vector{a, c}, root / "new", false).documents_dropped);
  const RunFolder whole = RunFolder::open(root / "new");
  EXPECT_EQ(whole.manifest().schema_version, kSchemaVersion);
  for (const SampleResult& sample : whole.samples()) {
    EXPECT_EQ(sample.document, sample.index / 2);
    EXPECT_TRUE(sample.parted) << sample.index;
  }
}

TEST(MergeRuns, SaysWhatIsMissing) {
  const TemporaryFolder root;
  const auto a = write_part(root, "a", example_manifest(), {3});
  const Merged merged = merge_runs(std::vector{a}, root / "both", false);
  EXPECT_EQ(merged.there, 2u);
  EXPECT_EQ(merged.all, 8u);
}

TEST(MergeRuns, RefusesWhatIsNotOneRun) {
  const TemporaryFolder root;
  const Manifest manifest = example_manifest();
  const auto a = write_part(root, "a", manifest, {0, 1});
  Manifest other = manifest;
  other.command += " --seed 7";
  const auto out = root / "out";
  EXPECT_THAT(refusal({a, write_part(root, "command", other, {2})}, out),
              AllOf(HasSubstr("'" + a.string() + "' and '" + (root / "command").string() + "' are not shards"),
                    HasSubstr("another command")));
  other = manifest;
  other.isa = "avx512";
  EXPECT_THAT(refusal({a, write_part(root, "isa", other, {2})}, out), HasSubstr("instruction set"));
  other = manifest;
  other.weights_hash = "w2";
  EXPECT_THAT(refusal({a, write_part(root, "weights", other, {2})}, out), HasSubstr("other weights"));
  RunFolder changed = RunFolder::create(root / "changed", manifest);
  SampleResult sample = example_sample(1);
  sample.score = 0.25;
  changed.append(sample);
  changed.append(example_timing(1));
  EXPECT_THAT(refusal({a, root / "changed"}, out), HasSubstr("is not the same"));
  const auto damaged = write_part(root, "damaged", manifest, {2});
  write_bytes(damaged / "samples.jsonl", read_bytes(damaged / "samples.jsonl") + "{\"half\":");
  EXPECT_THAT(refusal({a, damaged}, out), HasSubstr("damaged/samples.jsonl"));
  EXPECT_THAT(refusal({a, root / "nothing"}, out), HasSubstr("There is no folder"));
  EXPECT_THROW(merge_runs(std::vector{a}, a.parent_path(), false), InputError) << "a folder that holds other things";
}

TEST(MergeRuns, DoesNotReplaceWhatItJoins) {
  const TemporaryFolder root;
  const auto a = write_part(root, "a", example_manifest(), {0}), b = write_part(root, "b", example_manifest(), {1});
  const std::string before = read_bytes(b / "samples.jsonl");
  std::filesystem::create_directory_symlink(b, root / "link");
  for (const auto& out : {b, b / "", root / "link", root / "a" / ".." / "b"})
    EXPECT_THAT(
        [&] {
          merge_runs(std::vector{a, b}, out, true);
        },
        ::testing::ThrowsMessage<InputError>(HasSubstr("one of the runs to join")))
        << out;
  EXPECT_EQ(read_bytes(b / "samples.jsonl"), before);
}

TEST(MergeRuns, RefusesARunThatIsNamedTwice) {
  const TemporaryFolder root;
  const auto a = write_part(root, "a", example_manifest(), {0}), b = write_part(root, "b", example_manifest(), {1}),
             out = root / "whole";
  std::filesystem::create_directory_symlink(a, root / "link");
  for (const auto& again : {a, a / "", root / "link"})
    EXPECT_THAT(
        [&] {
          merge_runs(std::vector{a, b, again}, out, false);
        },
        ::testing::ThrowsMessage<InputError>(HasSubstr("' is given twice.")))
        << again;
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(MergeRuns, AFullDiskLeavesAllAsItWas) {
  const TemporaryFolder root;
  const auto a = write_part(root, "a", example_manifest(), {0, 1}),
             b = write_part(root, "b", example_manifest(), {2, 3}),
             earlier = write_part(root, "earlier", example_manifest(), {3});
  const std::string before = read_bytes(earlier / "samples.jsonl");
  {
    // Room for the manifest and some samples.
    const std::size_t room = read_bytes(a / "manifest.json").size() + 64;
    ASSERT_LT(room, 2 * read_bytes(a / "samples.jsonl").size());
    const FileSizeLimit limit(room);
    EXPECT_THROW(merge_runs(std::vector{a, b}, root / "new", false), RunError);
    EXPECT_THROW(merge_runs(std::vector{a, b}, earlier, true), RunError);
  }
  EXPECT_FALSE(std::filesystem::exists(root / "new"));
  EXPECT_FALSE(std::filesystem::exists(earlier / "samples.jsonl.new"));
  EXPECT_EQ(read_bytes(earlier / "samples.jsonl"), before);
  EXPECT_EQ(RunFolder::open(earlier).finished().size(), 2u);
}

}  // namespace
}  // namespace tandem::eval
