// Weights that change while a run reads them.
#include "engine/model/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "engine/common/paths.h"
#include "tests/files.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class ChangedWeights : public ::testing::Test {
 protected:
  ChangedWeights() {
    fs::copy(data_path("models/tiny"), folder_);
    bytes_ = read_bytes(file_);
  }

  /// What check() or check_bytes() says after `change`; the weights are as before then.
  std::string said_after(const std::function<void()>& change, bool bytes) const {
    WeightFiles files(load_model(folder_.string()));
    files.check();
    files.check_bytes();
    change();
    std::string said;
    try {
      bytes ? files.check_bytes() : files.check();
    } catch (const WeightsChanged& error) {
      said = error.what();
    }
    fs::remove(file_);
    write_bytes(file_, bytes_);
    return said;
  }

  /// One byte in the middle, in place.
  void write_over() const {
    std::fstream file(file_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(bytes_.size() / 2)).put(static_cast<char>(~bytes_[bytes_.size() / 2]));
  }

  TemporaryFolder root_;
  fs::path folder_ = root_ / "model", file_ = folder_ / "model.safetensors";
  std::string bytes_;
};

TEST_F(ChangedWeights, AreNoticed) {
  const fs::path beside = root_ / "beside";
  for (const bool bytes : {false, true}) {
    const auto expect = [&](const std::function<void()>& change, const char* says) {
      EXPECT_THAT(said_after(change, bytes), AllOf(HasSubstr(file_.string()), HasSubstr(says)));
    };
    expect([&] { write_over(); }, "written over");
    expect(
        [&] {
          const auto time = fs::last_write_time(file_);
          write_over();
          fs::last_write_time(file_, time);
        },
        "written over");
    expect([&] { write_bytes(file_, bytes_.substr(0, 8) + std::string(bytes_.size() - 8, '?')); }, "written over");
    expect([&] { fs::resize_file(file_, bytes_.size() - 1); }, "replaced, or changed their size");
    expect([&] { write_bytes(file_, bytes_ + "x"); }, "replaced, or changed their size");
    expect([&] { write_bytes(beside, bytes_), fs::rename(beside, file_); }, "replaced, or changed their size");
    expect([&] { fs::remove(file_); }, "removed");
  }
}

TEST_F(ChangedWeights, AreBytesAndNotTimes) {
  for (const bool bytes : {false, true}) {
    EXPECT_EQ(said_after([&] { fs::last_write_time(file_, fs::file_time_type::clock::now()); }, bytes), "");
    EXPECT_EQ(said_after([&] { chmod(file_.c_str(), 0600); }, bytes), "");
    EXPECT_EQ(said_after([&] { fs::create_hard_link(file_, root_ / "link"), fs::remove(root_ / "link"); }, bytes), "");
    EXPECT_EQ(said_after([&] { write_bytes(folder_ / "other.safetensors", "x"); }, bytes), "");
    fs::remove(folder_ / "other.safetensors");
  }
}

TEST_F(ChangedWeights, OfAModelWithoutAFolderAreNone) {
  WeightFiles files{Model{}};
  files.check();
  files.check_bytes();
}

}  // namespace
}  // namespace tandem::testing
