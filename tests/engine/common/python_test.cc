#include "engine/common/python.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <utility>

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

/// A server whose script has this as `answer(request)`, in bytes; frames are its business.
class Server {
 public:
  explicit Server(const std::string& body) {
    home_.use();
    home_.write("own/script.py",
                "import os, sys, time\n"
                "def requests():\n"
                "  while size := sys.stdin.buffer.readline(): yield sys.stdin.buffer.read(int(size))\n"
                "def write(answer): os.write(1, b'%d\\n' % len(answer) + answer)\n" +
                    body);
    server_.emplace("own/script.py");
  }
  PythonAnswer ask(std::string_view request, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    return server_->ask(request, /*most_bytes=*/1'000'000, limit);
  }

 private:
  OwnHome home_;
  std::optional<PythonServer> server_;
};

TEST(PythonServer, AnswersOneRequestAfterAnother) {
  Server server("for r in requests(): write(r.upper())");
  const PythonAnswer first = server.ask("one\n");
  if (first.end == PythonEnd::not_installed) GTEST_SKIP() << "not installed: python3";
  EXPECT_EQ(first.end, PythonEnd::done);
  EXPECT_EQ(first.text, "ONE\n");
  EXPECT_EQ(server.ask("").text, "");
  const std::string long_one(700'000, 'x');
  EXPECT_EQ(server.ask(long_one).text, std::string(700'000, 'X'));
  EXPECT_EQ(server.ask("three").text, "THREE");
}

TEST(PythonServer, WhateverItDoesNotAnswerAsAgreedEndsIt) {
  if (run("") == PythonEnd::not_installed) GTEST_SKIP() << "not installed: python3";
  const std::pair<const char*, PythonEnd> wrong[] = {
      {"sys.exit(4)", PythonEnd::no_package},
      {"sys.exit(0)", PythonEnd::failed},
      {"for r in requests(): sys.exit(1)", PythonEnd::failed},
      {"for r in requests(): os.kill(os.getpid(), 9)", PythonEnd::failed},
      {"for r in requests(): os.write(1, b'many\\n')", PythonEnd::failed},
      {"for r in requests(): os.write(1, b'9' * 100)", PythonEnd::failed},
      {"for r in requests(): os.write(1, b'-1\\n')", PythonEnd::failed},
      {"for r in requests(): os.write(1, b'1000001\\n')", PythonEnd::failed},
      {"for r in requests(): os.write(1, b'1\\nxy')", PythonEnd::failed},
  };
  for (const auto& [body, end] : wrong) {
    Server server(body);
    EXPECT_EQ(server.ask("x").end, end) << body;
    EXPECT_EQ(server.ask("x").end, end) << body;
  }
}

TEST(PythonServer, AnAnswerHasItsTime) {
  if (run("") == PythonEnd::not_installed) GTEST_SKIP() << "not installed: python3";
  const std::pair<const char*, int> slow[] = {
      {"import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 9))\nwhile True: pass", 20'000},
      {"time.sleep(60)", 200},
      {"for r in requests(): os.write(1, b'9\\nx')", 200},
      {"os.write(1, b'1000000\\n')\nwhile True: time.sleep(0.01); os.write(1, b'x')", 200},
  };
  for (const auto& [body, milliseconds] : slow) {
    Server server(body);
    const auto begin = std::chrono::steady_clock::now();
    const PythonAnswer answer = server.ask(std::string(1'000'000, 'x'), std::chrono::milliseconds(milliseconds));
    EXPECT_EQ(answer.end, PythonEnd::failed) << body;
    EXPECT_TRUE(answer.out_of_time) << body;
    EXPECT_TRUE(server.ask("x").out_of_time) << body;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << body;
  }
}

// A run folder's lock, for one, would be held as long as the process lives.
TEST(Python, AScriptGetsNoOpenFileOfThisProgram) {
  if (run("") == PythonEnd::not_installed) GTEST_SKIP() << "not installed: python3";
  const File open(std::tmpfile(), &std::fclose);
  EXPECT_EQ(run("import os, sys\n"
                "try: os.fstat(" +
                std::to_string(fileno(open.get())) +
                ")\n"
                "except OSError: sys.exit(0)\n"
                "sys.exit(1)"),
            PythonEnd::done);
}

TEST(Python, AMissingScriptIsAnInputError) {
  EXPECT_THROW(run_python("no/such.py", {}), InputError);
  EXPECT_THROW(PythonServer("no/such.py"), InputError);
}

}  // namespace
}  // namespace tandem::testing
