#include "engine/common/mapped_file.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "engine/common/cgroup.h"
#include "engine/common/error.h"
#include "tests/files.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
namespace fs = std::filesystem;

class MappedFileTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 1'000'000;  // ends within a page

  fs::path file(const char* name) const {
    testing::write_bytes(folder_ / name, std::string(kBytes, 'x'));
    return folder_ / name;
  }
  static long count(std::span<const std::byte> bytes, char c) {
    return std::count(bytes.begin(), bytes.end(), static_cast<std::byte>(c));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(MappedFileTest, IsReadIntoOtherMemory) {
  const fs::path path = file("read");
  const auto mapped = MappedFile::open(path);
  EXPECT_TRUE(mapped->is_cached()) << "it was just written";
  for (const bool keep : {true, false}) {
    std::vector<std::byte> copy(kBytes - 5000);
    mapped->read(copy, 4999, keep);
    EXPECT_EQ(count(copy, 'x'), static_cast<long>(copy.size()));
  }
  fs::resize_file(path, 6000);
  std::vector<std::byte> copy(2000);
  EXPECT_THAT(
      [&] { mapped->read(copy, 5000, true); },
      ThrowsMessage<RunError>(HasSubstr(path.string() + " cannot be read from byte 6000 on: it became shorter")));
}

TEST_F(MappedFileTest, WhatIsLetGoIsReadAgain) {
  const std::size_t bytes = std::size_t{48} << 20;
  testing::write_bytes(folder_ / "large", std::string(bytes, 'x'));
  const auto mapped = MappedFile::open(folder_ / "large");
  EXPECT_EQ(count(mapped->bytes(), 'x'), static_cast<long>(bytes));
  const std::size_t before = process_memory().resident;
  mapped->let_go(mapped->bytes().subspan(1, bytes - 2));
  EXPECT_LT(process_memory().resident + bytes / 2, before);
  EXPECT_EQ(count(mapped->bytes(), 'x'), static_cast<long>(bytes));
}

TEST_F(MappedFileTest, BytesThatAreCutOffAreZeroAndNoticed) {
  for (const std::size_t left : {std::size_t{0}, std::size_t{1}, std::size_t{500'000}, kBytes - 1}) {
    const fs::path path = file("cut");
    auto mapped = MappedFile::open(path);
    const auto other = MappedFile::open(file("other"));
    EXPECT_EQ(count(mapped->bytes(), 'x'), kBytes);
    EXPECT_NO_THROW(MappedFile::check_all());
    EXPECT_TRUE(mapped->unchanged());
    fs::resize_file(path, left);
    EXPECT_FALSE(mapped->unchanged());
    EXPECT_EQ(count(mapped->bytes(), 'x'), left);
    EXPECT_EQ(count(mapped->bytes(), '\0'), kBytes - left);
    EXPECT_EQ(count(other->bytes(), 'x'), kBytes);
    EXPECT_TRUE(other->unchanged());
    if (kBytes - left > 4096 || left == 0) {  // whole pages: within the last one the system gives zeros by itself
      const auto noticed = [&] { MappedFile::check_all(); };
      EXPECT_THAT(noticed, ThrowsMessage<RunError>(HasSubstr(path.string() + " became shorter while it was used")));
    }
    mapped.reset();
    EXPECT_NO_THROW(MappedFile::check_all()) << "nobody uses it any more";
  }
}

TEST_F(MappedFileTest, ThreadsMayFindOutAtOnce) {
  const fs::path path = file("cut");
  const auto mapped = MappedFile::open(path);
  fs::resize_file(path, 100'000);
  std::vector<long> found(4);
  std::vector<std::thread> threads;
  for (long& mine : found) threads.emplace_back([&] { mine = count(mapped->bytes(), 'x'); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(found, ::testing::Each(100'000));
  EXPECT_THROW(MappedFile::check_all(), RunError);
}

TEST_F(MappedFileTest, WritesAreNoticedReplacementsAreNone) {
  const fs::path path = file("file");
  const auto mapped = MappedFile::open(path);
  testing::write_bytes(folder_ / "new", "replaced");
  fs::rename(folder_ / "new", path);
  EXPECT_TRUE(mapped->unchanged());
  EXPECT_EQ(count(mapped->bytes(), 'x'), kBytes);
  const auto now = MappedFile::open(path);
  const int out = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a file's time is that of the last timer interrupt
  ASSERT_EQ(pwrite(out, "R", 1, 0), 1);
  close(out);
  EXPECT_FALSE(now->unchanged());
  EXPECT_NO_THROW(MappedFile::check_all()) << "whoever needs to know asks the file";
}

TEST_F(MappedFileTest, WhatIsNoRegularFileIsRefused) {
  for (const char* name : {"/dev/zero", "/no/such/file"})
    EXPECT_THAT([&] { MappedFile::open(name); }, ThrowsMessage<InputError>(HasSubstr(name)));
  EXPECT_THROW(MappedFile::open(folder_.path()), InputError);
  testing::write_bytes(folder_ / "empty", "");
  EXPECT_EQ(MappedFile::open(folder_ / "empty")->bytes().size(), 0u);
}

TEST_F(MappedFileTest, OtherMissingBytesEndTheProgramAsBefore) {
  const auto mapped = MappedFile::open(file("mapped"));  // from here on SIGBUS is handled
  const fs::path path = file("of somebody else");
  EXPECT_EXIT(
      {
        const int in = open(path.c_str(), O_RDONLY);
        auto* bytes = static_cast<volatile char*>(mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, in, 0));
        fs::resize_file(path, 0);
        [[maybe_unused]] const char lost = bytes[0];
      },
      [](int status) { return status != 0; }, "");  // by SIGBUS, or by a sanitizer's handler of it
}

}  // namespace
}  // namespace tandem
