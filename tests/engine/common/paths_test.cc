#include "engine/common/paths.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "tests/engine/common/own_home.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

TEST(DataPath, FindsTheSourceTree) {
  const OwnHome home;
  const fs::path found = data_path("engine/common/paths.h");
  EXPECT_TRUE(fs::equivalent(found, source_folder() / "engine/common/paths.h"));
  EXPECT_EQ(found, found.lexically_normal());
}

TEST(DataPath, TheEnvironmentComesFirstAndFallsBackFileByFile) {
  const OwnHome home;
  home.use();
  home.write("engine/common/paths.h", "own");
  EXPECT_EQ(data_path("engine/common/paths.h"), home.path() / "engine/common/paths.h");
  EXPECT_TRUE(fs::equivalent(data_path("engine/common/error.h"), source_folder() / "engine/common/error.h"));
  setenv("TANDEM_HOME", "", 1);  // empty is as good as unset
  EXPECT_NE(data_path("engine/common/paths.h"), home.path() / "engine/common/paths.h");
}

TEST(DataPath, AMissingFileNamesEveryPlaceAndTheWayOut) {
  const OwnHome home;
  home.use();
  try {
    data_path("no/such/file.json");
    FAIL() << "found a file that is not there";
  } catch (const InputError& error) {
    using ::testing::HasSubstr;
    EXPECT_THAT(
        error.what(),
        ::testing::AllOf(HasSubstr("'no/such/file.json'"), HasSubstr((home.path() / "no/such/file.json").string()),
                         HasSubstr("share/tandem/no/such/file.json"),
                         HasSubstr(source_folder().string() + "/no/such/file.json"), HasSubstr("TANDEM_HOME")));
  }
}

}  // namespace
}  // namespace tandem::testing
