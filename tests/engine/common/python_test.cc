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

TEST(Python, ArgumentsAndFilesReachTheScript) {
  if (run("") == PythonEnd::not_installed) GTEST_SKIP() << "not installed: python3";
  const OwnHome home;
  home.use();
  home.write("own/script.py", "import sys; print(sys.stdin.read().upper(), *sys.argv[1:], sep='|', end='')");
  const std::unique_ptr<std::FILE, decltype(&std::fclose)> input(std::tmpfile(), &std::fclose),
      output(std::tmpfile(), &std::fclose);
  std::fputs("text", input.get());
  std::rewind(input.get());
  const std::array<std::string, 2> arguments = {"a b", ""};
  ASSERT_EQ(run_python("own/script.py", arguments, fileno(input.get()), fileno(output.get())), PythonEnd::done);
  std::rewind(output.get());
  std::array<char, 32> read{};
  EXPECT_EQ(std::string(read.data(), std::fread(read.data(), 1, read.size(), output.get())), "TEXT|a b|");
}

TEST(Python, AMissingScriptIsAnInputError) {
  EXPECT_THROW(run_python("no/such.py", {}), InputError);
}

}  // namespace
}  // namespace tandem::testing
