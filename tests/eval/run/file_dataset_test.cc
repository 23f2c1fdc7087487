#include "eval/run/file_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/files.h"

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

std::vector<std::uint32_t> numbers(std::vector<std::string_view> texts) {
  return number_documents(texts);
}

TEST(Documents, AreNumberedWhereOneIsThereTwice) {
  EXPECT_THAT(numbers({"b", "a", "b", "c", "a"}), ElementsAre(0u, 1u, 0u, 2u, 1u));
  EXPECT_THAT(numbers({"a", "a", "b"}), ElementsAre(0u, 0u, 1u));
}

TEST(Documents, OfOneQuestionEachNeedNoNumbers) {
  EXPECT_THAT(numbers({"a", "b", "c"}), IsEmpty());
  EXPECT_THAT(numbers({}), IsEmpty());
}

TEST(Documents, MayBeOneAlone) {
  EXPECT_THAT(numbers({"a", "a", "a"}), ElementsAre(0u, 0u, 0u));
  EXPECT_THAT(numbers({"a"}), IsEmpty());
}

TEST(UnreadFiles, AreTheOthersOfTheFoldersSorted) {
  const testing::TemporaryFolder folder;
  fs::create_directories(folder / "more/inner");
  fs::create_directory(folder / "folder.jsonl");
  for (const char* name : {"b.jsonl", "a.jsonl", "read.jsonl", "notes.txt", "more/c.jsonl", "more/inner/d.jsonl"})
    testing::write_bytes(folder / name, "");
  fs::create_symlink("nowhere", folder / "more/link.jsonl");
  EXPECT_THAT(unread_files({folder.path(), folder / "more", folder / "absent", folder.path()}, {folder / "read.jsonl"}),
              ElementsAre(folder / "a.jsonl", folder / "b.jsonl", folder / "more/c.jsonl", folder / "more/link.jsonl"));
  EXPECT_THAT(unread_files({folder / "absent"}, {}), IsEmpty());
}

TEST(UnreadFiles, AreNamedInOneSentence) {
  const auto note = [](const std::vector<fs::path>& files) {
    return unread_note("--data", "d", files, "so it must be");
  };
  EXPECT_EQ(note({}), "");
  EXPECT_EQ(note({"d/more/a.jsonl"}), "--data: not read from 'd': more/a.jsonl; so it must be.");
  EXPECT_EQ(note({"d/a.jsonl", "d/b/"}), "--data: not read from 'd': a.jsonl, b/ (cannot be opened); so it must be.");
  EXPECT_EQ(note({"d/1", "d/2", "d/3", "d/4", "d/5"}), "--data: not read from 'd': 1, 2, 3, 4, 5; so it must be.");
  EXPECT_EQ(note({"d/1", "d/2", "d/3", "d/4", "d/5", "d/6", "d/7"}),
            "--data: not read from 'd': 1, 2, 3, 4, 5 and 2 more; so it must be.");
}

}  // namespace
}  // namespace tandem::eval
