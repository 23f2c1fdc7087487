#include "cli/validate_here.h"

#include <filesystem>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <optional>
#include <unistd.h>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "engine/common/error.h"
#include "engine/common/version.h"
#include "engine/device/profile.h"
#include "eval/here/here.h"
#include "eval/run/option_values.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char *kHereFile = "here.json", *kHereProfile = "this-machine.json";

/// A folder that is gone when the run is over, however it ends.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "tandem-here-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw_run_error("A folder for prompts cannot be made in {}.", name);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string command_of(const ValidateHereArguments& a, const std::vector<std::string>& methods) {
  return fmt::format(
      "tandem validate --here{} --contexts {} --rounds {}{}",
      a.methods.empty() ? "" : " --methods " + eval::shell_word(fmt::format("{}", fmt::join(methods, ","))), a.contexts,
      a.rounds, a.hardware.empty() ? "" : " --hw " + eval::shell_word(a.hardware));
}

constexpr std::string_view kHereReport[] = {kHereProfile, "report.md"};

}  // namespace

eval::OutputFolder open_validation(const std::string& out, bool force, const ReportFiles& files) {
  if (out.empty()) {
    if (force) throw_input_error("--force replaces what is in the folder of --out: give it too.");
    return {};
  }
  return open_report_folder(out, files, [&](bool there) {
    if (there && !force) throw_input_error("--out: '{}' has a validation already; --force replaces it.", out);
  });
}

void validate_here(const ValidateHereArguments& a) {
  eval::HereOptions options;
  options.methods =
      a.methods.empty() ? eval::here_methods() : split_method_list(fmt::format("{}", fmt::join(a.methods, ",")));
  for (const std::string& method : options.methods) make_method(method);
  options.contexts = eval::parse_lengths(a.contexts, "--contexts");
  eval::check_range("--rounds", a.rounds, 1, 1000);
  options.rounds = a.rounds;
  eval::two_cores();  // where there are none, before anything else
  if (!a.hardware.empty()) {
    options.profile = load_profile(a.hardware);
    if (options.profile->device.cpu_threads == 0)
      throw_input_error("--hw: '{}' is no CPU that plays a device: give the {} that an earlier --here wrote.",
                        a.hardware, kHereProfile);
  }
  const eval::OutputFolder folder = open_validation(a.out, a.force, {kHereFile, kHereReport, "validation"});
  std::optional<TemporaryFolder> prompts;
  options.prompts = a.prefix_cache.empty() ? prompts.emplace().path() : fs::path(a.prefix_cache);
  options.interrupted = [] { return interrupted(); };
  const eval::HereValidation validation = with_progress("validating", a.quiet, [&](const auto& progress) {
    options.progress = progress;
    return eval::validate_here(options);
  });
  const std::string command = command_of(a, options.methods),
                    program = fmt::format("tandem {} ({})", version(), git_commit());
  if (folder.held()) {
    folder.write(kHereFile, eval::here_json(validation, command, program));
    folder.write(kHereProfile, profile_to_json(validation.profile));
    folder.write("report.md", fmt::format("# Predictions beside measurements on this machine\n\n{}\nMade by {}: `{}`\n",
                                          eval::here_text(validation, /*markdown=*/true), program, command));
  }
  print("{}", eval::here_text(validation, /*markdown=*/false));
  if (a.operations) print("\n{}", eval::here_operations_text(validation));
  if (folder.held()) print("\n{}: report.md, {}, {}\n", a.out, kHereFile, kHereProfile);
  check_stdout();
}

}  // namespace tandem::cli
