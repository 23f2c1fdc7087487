#include "cli/interrupt.h"

#include <csignal>
#include <functional>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tandem::cli {
namespace {

/// Exit status of `body` in a child process: its exit code, or 128 + the signal that ended it.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Interrupt, FirstSignalSetsTheFlagSecondEndsTheProgram) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EQ(in_child([&] {
                handle_interrupts();
                if (interrupted()) return 10;
                raise(signal);
                return interrupted() ? 20 : 11;
              }),
              20);
    EXPECT_EQ(in_child([&] {
                handle_interrupts();
                raise(signal);
                raise(signal);
                return 12;
              }),
              3);
  }
}

TEST(Interrupt, WhatTheParentIgnoresStaysIgnored) {
  EXPECT_EQ(in_child([] {
              std::signal(SIGINT, SIG_IGN);
              handle_interrupts();
              raise(SIGINT);
              raise(SIGINT);
              return interrupted() ? 13 : 21;
            }),
            21);
}

}  // namespace
}  // namespace tandem::cli
