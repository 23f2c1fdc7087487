#include "engine/common/read_file.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/common/error.h"
#include "tests/files.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

class ReadFile : public ::testing::Test {
 protected:
  std::string refused(const fs::path& file, std::size_t most = kMostOfAFile, const char* what = "") const {
    try {
      read_file(file, most, what);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing is wrong";
  }

  testing::TemporaryFolder folder_;
};

TEST_F(ReadFile, AllBytesUpToTheLimit) {
  const fs::path file = folder_ / "file", link = folder_ / "link";
  const std::string bytes = std::string("a\0b\n", 4) + std::string(20'000'000, 'x');  // more than one piece
  testing::write_bytes(file, bytes);
  fs::create_symlink("file", link);
  EXPECT_EQ(read_file(file), bytes);
  EXPECT_EQ(read_file(link), bytes);
  EXPECT_EQ(read_file(file, bytes.size()), bytes);
  EXPECT_EQ(refused(file, bytes.size() - 1), file.string() + " has 20000004 bytes; at most 20000003 are read.");
  testing::write_bytes(file, "");
  EXPECT_EQ(read_file(file), "");
}

TEST_F(ReadFile, WhatIsNoRegularFileIsASentenceAndWaitsForNobody) {
  const fs::path pipe = folder_ / "pipe", socket_file = folder_ / "socket";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int server = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{AF_UNIX, {}};
  socket_file.string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  for (const fs::path& file : {pipe, fs::path("/dev/zero"), fs::path("/dev/null")}) {
    const fs::path link = folder_ / "link";
    fs::remove(link);
    fs::create_symlink(file, link);
    EXPECT_EQ(refused(file), file.string() + " cannot be read (not a regular file).");
    EXPECT_EQ(refused(link), link.string() + " cannot be read (not a regular file).");
  }
  EXPECT_EQ(refused(socket_file), socket_file.string() + " cannot be read (No such device or address).");
  EXPECT_EQ(refused(folder_.path()), folder_.path().string() + " cannot be read (not a regular file).");
  EXPECT_EQ(refused(folder_ / "absent", 9, "--text 'it'"), "--text 'it' cannot be read (No such file or directory).");
  fs::create_symlink("round", folder_ / "round");
  EXPECT_THAT(refused(folder_ / "round"), HasSubstr("cannot be read (Too many levels of symbolic links)"));
  EXPECT_THAT(refused(fs::path(std::string(5000, 'x'))), HasSubstr("cannot be read (File name too long)"));
  close(server);
}

TEST_F(ReadFile, MoreThanTheMemoryIsASentence) {
  const fs::path file = folder_ / "sparse";
  testing::write_bytes(file, "");
  fs::resize_file(file, std::uintmax_t{1} << 43);  // takes no place on the disk
  EXPECT_THAT(refused(file), HasSubstr("has 8796093022208 bytes; at most 67108864 are read"));
  EXPECT_THAT(refused(file, ~std::size_t{0}), AllOf(StartsWith(file.string() + " has 8796093022208 bytes; there are "),
                                                    HasSubstr(" bytes of free memory.")));
}

TEST_F(ReadFile, FewerBytesThanItSaidAreASentence) {
  const fs::path file = "/sys/kernel/mm/transparent_hugepage/enabled";  // says 4096, and has a line
  if (!path_exists(file) || fs::file_size(file) < 100) GTEST_SKIP() << file << " is not here";
  EXPECT_EQ(refused(file), file.string() + " became shorter while it was read.");
}

TEST_F(ReadFile, APointerOfGitLfsIsNoFile) {
  testing::write_bytes(folder_ / "file", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n");
  EXPECT_THAT(refused(folder_ / "file"), HasSubstr("is a pointer of Git LFS, not the file itself"));
}

TEST(PathExists, RefusedNamesDoNotAndLinksDoWhereverTheyLead) {
  const testing::TemporaryFolder folder;
  fs::create_symlink("nowhere", folder / "link");
  EXPECT_TRUE(path_exists(folder / "link")) << "what is missing is no optional file that is not there";
  EXPECT_TRUE(path_exists("/"));
  EXPECT_FALSE(path_exists("/no/such/file"));
  EXPECT_FALSE(path_exists(std::string(5000, 'x')));
}

}  // namespace
}  // namespace tandem
