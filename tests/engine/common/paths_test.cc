#include "engine/common/paths.h"

#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <stdexcept>

#include "engine/common/error.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

class DataPath : public ::testing::Test {
 protected:
  DataPath() {
    std::string name = (fs::temp_directory_path() / "tandem-paths-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    home_ = name;
    if (const char* before = std::getenv("TANDEM_HOME")) before_ = before;
    unsetenv("TANDEM_HOME");
  }
  ~DataPath() override {
    before_ ? setenv("TANDEM_HOME", before_->c_str(), 1) : unsetenv("TANDEM_HOME");
    fs::remove_all(home_);
  }
  fs::path home_;
  std::optional<std::string> before_;
};

TEST_F(DataPath, FindsTheSourceTree) {
  const fs::path found = data_path("engine/common/paths.h");
  EXPECT_TRUE(fs::equivalent(found, source_folder() / "engine/common/paths.h"));
  EXPECT_EQ(found, found.lexically_normal());
}

TEST_F(DataPath, TheEnvironmentComesFirstAndFallsBackFileByFile) {
  setenv("TANDEM_HOME", home_.c_str(), 1);
  fs::create_directories(home_ / "engine/common");
  std::ofstream(home_ / "engine/common/paths.h") << "own";
  EXPECT_EQ(data_path("engine/common/paths.h"), home_ / "engine/common/paths.h");
  EXPECT_TRUE(fs::equivalent(data_path("engine/common/error.h"), source_folder() / "engine/common/error.h"));
  setenv("TANDEM_HOME", "", 1);  // empty is as good as unset
  EXPECT_NE(data_path("engine/common/paths.h"), home_ / "engine/common/paths.h");
}

TEST_F(DataPath, AMissingFileNamesEveryPlaceAndTheWayOut) {
  setenv("TANDEM_HOME", home_.c_str(), 1);
  try {
    data_path("no/such/file.json");
    FAIL() << "found a file that is not there";
  } catch (const InputError& error) {
    using ::testing::HasSubstr;
    EXPECT_THAT(error.what(),
                ::testing::AllOf(HasSubstr("'no/such/file.json'"), HasSubstr((home_ / "no/such/file.json").string()),
                                 HasSubstr("share/tandem/no/such/file.json"),
                                 HasSubstr(source_folder().string() + "/no/such/file.json"), HasSubstr("TANDEM_HOME")));
  }
}

}  // namespace
}  // namespace tandem::testing
