// A stranger's run folder shows nothing but what lies in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "eval/report/run_folder.h"
#include "tests/eval/report/example_run.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Links, AFileOfARunThatIsOneIsRefusedWhereverItLeads) {
  const TemporaryFolder root;
  const fs::path run = write_run(root);
  for (const char* name : {"manifest.json", "samples.jsonl", "timings.jsonl"}) {
    fs::rename(run / name, root / "elsewhere");
    fs::create_symlink(root / "elsewhere", run / name);
    EXPECT_THAT([&] { RunFolder::open(run); },
                ThrowsMessage<InputError>(AllOf(HasSubstr(name), HasSubstr("is a link, and no link"))));
    fs::remove(run / name);
    fs::rename(root / "elsewhere", run / name);
  }
  EXPECT_NO_THROW(RunFolder::open(run));
  for (const char* name : {"report.md", "plot.png", "target.json"}) {
    fs::create_symlink("/etc/passwd", run / name);
    EXPECT_THROW(RunFolder::open(run), InputError) << name;
    fs::remove(run / name);
  }
  fs::create_symlink("nowhere", run / "dangling");
  EXPECT_THROW(RunFolder::open(run), InputError);
  fs::remove(run / "dangling");
}

TEST(Links, TheFolderItselfMayBeOne) {
  const TemporaryFolder root;
  fs::create_directory_symlink(write_run(root), root / "link");
  EXPECT_NO_THROW(RunFolder::open(root / "link"));
  EXPECT_NO_THROW(refuse_links(root / "none")) << "who reads it says that it is not there";
}

}  // namespace
}  // namespace tandem::eval
