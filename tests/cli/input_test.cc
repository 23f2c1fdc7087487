#include "cli/input.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "engine/common/error.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReadText : public ::testing::Test {
 protected:
  std::string file(const char* name) const { return (folder_.path() / name).string(); }
  static std::string refused(const std::string& name, std::size_t most = kLongestText) {
    try {
      read_text(name, "--text 'it'", most);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing is wrong";
  }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(ReadText, FilesUpToTheLimit) {
  const std::string words = std::string("Some words\n\0more", 16);
  std::ofstream(file("words"), std::ios::binary) << words;
  EXPECT_EQ(read_text(file("words"), ""), words);
  EXPECT_EQ(read_text(file("words"), "", 16), words);
  EXPECT_THAT(refused(file("words"), 15), HasSubstr("--text 'it' has 16 bytes; at most 15 are read."));
  std::ofstream(file("empty")).flush();
  EXPECT_EQ(read_text(file("empty"), ""), "");
}

/// What read_text() makes of a pipe that is open already, as a shell's <(command), into which `text` is written.
std::string through_pipe(const std::string& text, std::size_t most) {
  int ends[2];
  if (pipe(ends) != 0) return "?";
  std::thread writer([&] {
    std::string_view rest = text;
    for (ssize_t n = 1; n > 0 && !rest.empty(); rest.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(n, 0))))
      n = write(ends[1], rest.data(), rest.size());
    close(ends[1]);
  });
  std::string read;
  try {
    read = read_text("/dev/fd/" + std::to_string(ends[0]), "--text 'it'", most);
  } catch (const InputError& error) {
    read = error.what();
  }
  for (char left[4096]; ::read(ends[0], left, sizeof left) > 0;) {
  }
  close(ends[0]);
  writer.join();
  return read;
}

TEST(ReadPipe, OpenPipesUpToTheLimit) {
  const std::string much(3'000'000, 'x');
  EXPECT_EQ(through_pipe(much, kLongestText), much);
  EXPECT_EQ(through_pipe("", kLongestText), "");
  EXPECT_THAT(through_pipe(much, 1 << 20), HasSubstr("--text 'it' is longer than 1048576 bytes"));
}

TEST_F(ReadText, WhatCannotBeReadOrHasNoEndIsASentence) {
  EXPECT_THAT(refused(file("absent")), AllOf(HasSubstr("--text 'it' cannot be read"), HasSubstr("No such file")));
  EXPECT_THAT(refused(file("")), HasSubstr("cannot be read (not a regular file)"));
  EXPECT_THAT(refused("/dev/zero"), HasSubstr("--text 'it' cannot be read (not a regular file)"));
  ASSERT_EQ(mkfifo(file("pipe").c_str(), 0600), 0);
  EXPECT_THAT(refused(file("pipe")), HasSubstr("--text 'it' cannot be read (not a regular file)"))
      << "nobody will write into it";
}

/// The lines that `text` as standard input has.
std::vector<std::string> lines_of(const std::string& text) {
  int ends[2];
  if (pipe(ends) != 0 || write(ends[1], text.data(), text.size()) != static_cast<ssize_t>(text.size())) return {"?"};
  close(ends[1]);
  const int before = dup(STDIN_FILENO);
  dup2(ends[0], STDIN_FILENO);
  close(ends[0]);
  std::vector<std::string> lines;
  InputLines input;
  for (std::string line; input.next(line);) lines.push_back(line);
  std::string line;
  EXPECT_FALSE(input.next(line)) << "the end stays the end";
  dup2(before, STDIN_FILENO);
  close(before);
  return lines;
}

TEST(InputLines, AreThoseOfGetline) {
  EXPECT_THAT(lines_of("one\ntwo\n"), ElementsAre("one", "two"));
  EXPECT_THAT(lines_of("one\n\ntwo"), ElementsAre("one", "", "two"));
  EXPECT_THAT(lines_of("\n"), ElementsAre(""));
  EXPECT_THAT(lines_of(""), ElementsAre());
  const std::string much(10'000, 'x');
  EXPECT_THAT(lines_of(much + "\nend"), ElementsAre(much, "end"));
}

}  // namespace
}  // namespace tandem::cli
