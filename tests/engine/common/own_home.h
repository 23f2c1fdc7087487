// A folder for shipped files of a test's own. TANDEM_HOME is unset at first, and as before at the end.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/files.h"

namespace tandem::testing {

class OwnHome {
 public:
  OwnHome() {
    if (const char* before = std::getenv("TANDEM_HOME")) before_ = before;
    unsetenv("TANDEM_HOME");
  }
  OwnHome(const OwnHome&) = delete;
  OwnHome& operator=(const OwnHome&) = delete;
  ~OwnHome() { before_ ? setenv("TANDEM_HOME", before_->c_str(), 1) : unsetenv("TANDEM_HOME"); }

  const std::filesystem::path& path() const { return folder_.path(); }

  /// Files of this folder come before those that ship.
  void use() const { setenv("TANDEM_HOME", path().c_str(), 1); }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((folder_ / file).parent_path());
    write_bytes(folder_ / file, text);
  }

 private:
  TemporaryFolder folder_;
  std::optional<std::string> before_;
};

}  // namespace tandem::testing
