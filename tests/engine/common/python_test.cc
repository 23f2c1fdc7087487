#include "engine/common/python.h"

#include <array>
#include <cstdio>
#include <gtest/gtest.h>
#include <memory>

#include "engine/common/error.h"
#include "tests/engine/common/own_home.h"

namespace tandem::testing {
namespace {

PythonEnd run(const std::string& script) {
  const OwnHome home;
  home.use();
  home.write("own/script.py", script);
  return run_python("own/script.py", {});
}

TEST(Python, TheExitCodeSaysHowItEnded) {
  if (run("") == PythonEnd::not_installed) GTEST_SKIP() << "not installed: python3";
  EXPECT_EQ(run(""), PythonEnd::done);
  EXPECT_EQ(run("import sys; sys.exit(4)"), PythonEnd::no_package);
  EXPECT_EQ(run("import sys; sys.exit(3)"), PythonEnd::failed);
  EXPECT_EQ(run("import os; os.kill(os.getpid(), 9)"), PythonEnd::failed);
}

// The terminal sends an interrupt to the program and to the script, which still has its work to do.
TEST(Python, AScriptIsNotInterrupted) {
  if (run("") == PythonEnd::not_installed) GTEST_SKIP() << "not installed: python3";
  EXPECT_EQ(run("import os, signal\nfor s in (signal.SIGINT, signal.SIGTERM): os.kill(os.getpid(), s)"),
            PythonEnd::done);
}

using File = std::unique_ptr<std::FILE, decltype(&std::fclose)>;

std::string content(const File& file) {
  EXPECT_EQ(std::fseek(file.get(), 0, SEEK_SET), 0);
  std::array<char, 4096> read{};
  return {read.data(), std::fread(read.data(), 1, read.size(), file.get())};
}

TEST(Python, ArgumentsAndFilesReachTheScript) {
  if (run("") == PythonEnd::not_installed) GTEST_SKIP() << "not installed: python3";
  const OwnHome home;
  home.use();
  home.write("own/script.py", "import sys; print(sys.stdin.read().upper(), *sys.argv[1:], sep='|', end='')");
  const File input(std::tmpfile(), &std::fclose), output(std::tmpfile(), &std::fclose);
  std::fputs("text", input.get());
  ASSERT_EQ(std::fseek(input.get(), 0, SEEK_SET), 0);
  const std::array<std::string, 2> arguments = {"a b", ""};
  ASSERT_EQ(run_python("own/script.py", arguments, fileno(input.get()), fileno(output.get())), PythonEnd::done);
  EXPECT_EQ(content(output), "TEXT|a b|");
}

// Python finds its packages by the name that it was called by: one without a folder is looked for in PATH.
TEST(Python, TheSystemsPythonHasItsOwnPackagesWhateverIsInPath) {
  namespace fs = std::filesystem;
  if (!fs::exists("/usr/bin/python3")) GTEST_SKIP() << "not installed: /usr/bin/python3";
  const OwnHome home;
  home.use();
  home.write("own/script.py", "import sys; print(sys.executable, end='')");
  home.write("bin/python3", "#!/bin/sh\nexit 1\n");
  fs::permissions(home.path() / "bin/python3", fs::perms::owner_all);
  const std::string before = std::getenv("PATH");
  setenv("PATH", ((home.path() / "bin").string() + ":" + before).c_str(), 1);
  const File output(std::tmpfile(), &std::fclose);
  const PythonEnd end = run_python("own/script.py", {}, -1, fileno(output.get()));
  setenv("PATH", before.c_str(), 1);
  EXPECT_EQ(end, PythonEnd::done);
  EXPECT_EQ(content(output), "/usr/bin/python3");
}

TEST(Python, AMissingScriptIsAnInputError) {
  EXPECT_THROW(run_python("no/such.py", {}), InputError);
}

}  // namespace
}  // namespace tandem::testing
