// A folder for shipped files of a test's own. TANDEM_HOME is unset at first, and as before at the end.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>

namespace tandem::testing {

class OwnHome {
 public:
  OwnHome() {
    std::string name = (std::filesystem::temp_directory_path() / "tandem-home-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
    if (const char* before = std::getenv("TANDEM_HOME")) before_ = before;
    unsetenv("TANDEM_HOME");
  }
  OwnHome(const OwnHome&) = delete;
  OwnHome& operator=(const OwnHome&) = delete;
  ~OwnHome() {
    before_ ? setenv("TANDEM_HOME", before_->c_str(), 1) : unsetenv("TANDEM_HOME");
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

  /// Files of this folder come before those that ship.
  void use() const { setenv("TANDEM_HOME", path_.c_str(), 1); }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }

 private:
  std::filesystem::path path_;
  std::optional<std::string> before_;
};

}  // namespace tandem::testing
