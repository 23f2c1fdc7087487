#include "engine/common/interrupt.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "cli/input.h"

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

TEST(Interrupt, AHandlerLeavesErrnoAlone) {
  EXPECT_EQ(in_child([] {  // stderr is closed: the handler's own write fails
              handle_interrupts();
              errno = EAGAIN;
              raise(SIGINT);
              return errno == EAGAIN ? 20 : 14;
            }),
            20);
}

TEST(Interrupt, ASignalEndsAWaitWheneverAndWhereverItArrives) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EQ(in_child([&] {
                handle_interrupts();
                int silent[2];
                if (pipe(silent) != 0) return 15;
                raise(signal);
                return wait_for_input(silent[0]) ? 16 : 20;  // it arrived just before
              }),
              20);
    EXPECT_EQ(in_child([&] {
                handle_interrupts();
                int silent[2];
                if (pipe(silent) != 0) return 15;
                std::thread other([&] {
                  std::this_thread::sleep_for(std::chrono::milliseconds(20));
                  pthread_kill(pthread_self(), signal);  // a thread that does not wait handles it
                });
                const bool input = wait_for_input(silent[0]);
                other.join();
                return input ? 17 : 20;
              }),
              20);
  }
}

TEST(Interrupt, InputAndItsEndEndAWait) {
  EXPECT_EQ(in_child([] {
              handle_interrupts();
              int ends[2];
              if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1 || !wait_for_input(ends[0])) return 18;
              char byte;
              if (read(ends[0], &byte, 1) != 1) return 18;
              close(ends[1]);
              return wait_for_input(ends[0]) && read(ends[0], &byte, 1) == 0 ? 20 : 19;
            }),
            20);
}

}  // namespace
}  // namespace tandem::cli
