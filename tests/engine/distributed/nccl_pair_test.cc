// Messages between two GPUs, over a library that stands in for the driver and NCCL (fake_gpus.cc).
#include "engine/distributed/nccl_pair.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "engine/common/error.h"
#include "engine/distributed/message.h"
#include "engine/distributed/remote_rank.h"
#include "tests/engine/distributed/messages.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

const char* const kFake = TANDEM_FAKE_LIBRARY;

CommunicatorPair pair_of(milliseconds patience = milliseconds(0)) {
  return make_nccl_pair(load_gpu_libraries(kFake, kFake), {}, "one", "two", patience);
}

template <class Function>
Function fake(const char* name) {
  return reinterpret_cast<Function>(dlsym(dlopen(kFake, RTLD_NOW), name));
}

class Nccl : public ::testing::Test {
 protected:
  void TearDown() override {
    fake<void (*)(int)>("fake_async_error")(0);
    fake<void (*)(int)>("fake_refuse")(-1);
    EXPECT_EQ(fake<int (*)()>("fake_alive")(), 0) << "streams, memory, communicators that were not given back";
  }
};

TEST_F(Nccl, MessagesOfAnyLengthArriveWholeAndInOrder) {
  CommunicatorPair pair = pair_of();
  std::thread other([far = std::move(pair.second)] {
    for (int i = 0; i < 20; ++i) far->send(far->receive());
  });
  for (int i = 0; i < 20; ++i) {
    pair.first->send(numbered(i, std::size_t{1} << i));
    EXPECT_EQ(pair.first->receive(), numbered(i, std::size_t{1} << i));
  }
  other.join();
}

TEST_F(Nccl, AnEmptyMessageIsOne) {
  CommunicatorPair pair = pair_of();
  std::thread other([far = std::move(pair.second)] { far->send({}); });
  EXPECT_TRUE(pair.first->receive().empty());
  other.join();
}

TEST_F(Nccl, OneThreadSendsWhileAnotherWaitsForAnAnswer) {
  CommunicatorPair pair = pair_of();
  std::thread answer([&] { EXPECT_EQ(pair.first->receive(), numbered(3)); });
  std::thread other([far = std::move(pair.second)] {
    far->receive();
    far->receive();
    far->send(numbered(3));
  });
  pair.first->send(numbered(1));
  pair.first->send(numbered(2));
  answer.join();
  other.join();
}

TEST_F(Nccl, AnEndThatLeftIsAnError) {
  CommunicatorPair pair = pair_of();
  pair.second.reset();
  EXPECT_THAT(sentence_of<RunError>([&] { pair.first->receive(); }), HasSubstr("two is gone: it ended"));
  EXPECT_THAT(sentence_of<RunError>([&] { pair.first->send(numbered(1)); }), HasSubstr("two is gone"));
}

TEST_F(Nccl, AnEndThatIsSilentIsAnErrorAfterTheTimeAndTheOtherIsToldToo) {
  CommunicatorPair pair = pair_of(milliseconds(20));
  EXPECT_THAT(sentence_of<RunError>([&] { pair.first->receive(); }), HasSubstr("nothing for 0.02 seconds"));
  EXPECT_THAT(sentence_of<RunError>([&] { pair.second->receive(); }),
              HasSubstr("failed before: two has sent or taken nothing for 0.02 seconds"));
}

// Four channels, each of a stream and its first memory; TearDown counts what was not given back.
TEST_F(Nccl, WhatWasMadeIsGivenBackWhereAGpuRefusesTheRest) {
  for (int after = 0; after < 8; ++after) {
    fake<void (*)(int)>("fake_refuse")(after);
    EXPECT_THAT(sentence_of<RunError>([] { pair_of(); }), HasSubstr("a driver's error")) << after;
    EXPECT_EQ(fake<int (*)()>("fake_alive")(), 0) << after;
  }
  fake<void (*)(int)>("fake_refuse")(8);
  pair_of();
}

TEST_F(Nccl, GpusThatCannotBeConnectedAreAnErrorAtOnceAndGiveBackWhatTheyTook) {
  fake<void (*)(int)>("fake_async_error")(6);
  EXPECT_THAT(sentence_of<RunError>([] { pair_of(); }), HasSubstr("NCCL cannot go on: NCCL's error"));
}

TEST_F(Nccl, WhatNcclReportsIsSaid) {
  CommunicatorPair pair = pair_of();
  fake<void (*)(int)>("fake_async_error")(6);
  EXPECT_THAT(sentence_of<RunError>([&] { pair.first->receive(); }), HasSubstr("NCCL cannot go on: NCCL's error"));
}

TEST_F(Nccl, WithoutTwoGpusOrTheLibraryItIsRefusedWithASentence) {
  setenv("TANDEM_FAKE_GPUS", "1", 1);
  const std::string few = sentence_of<InputError>([] { pair_of(); });
  unsetenv("TANDEM_FAKE_GPUS");
  EXPECT_THAT(few, HasSubstr("this machine has 1"));
  EXPECT_THAT(sentence_of<InputError>([] { load_gpu_libraries("libno_driver.so", kFake); }),
              HasSubstr("libno_driver.so"));
  EXPECT_THAT(sentence_of<InputError>([] { load_gpu_libraries(kFake, "libc.so.6"); }), HasSubstr("ncclCommInitAll"));
}

/// Of one layer and head with 8 floats each; a page of 16 tokens takes 1,024 bytes.
TEST_F(Nccl, ACacheRankAnswersOverIt) {
  const RankThread thread(
      make_nccl_pair(load_gpu_libraries(kFake, kFake), {}, "The inference rank", "The cache rank", milliseconds(0)));
  RemoteRank rank(thread.link(), kSmallRank, milliseconds(5000));
  rank.send(0, 1, {{.sequence = 1, .rule = {}, .first = 0, .queries = 2, .known = 2, .keep = 1}}, {Message(4)});
  EXPECT_THAT(sentence_of<RunError>([&] { rank.receive(); }), HasSubstr("The cache rank failed: A message"));
}

TEST_F(Nccl, ACacheRankAwaitsMessagesForEverAndTheTakingOfItsAnswerForTheTimeItWasTold) {
  CommunicatorPair pair = make_nccl_pair(load_gpu_libraries(kFake, kFake), {}, "one", "two", milliseconds(0));
  std::string ended;
  std::thread serving([&ended, far = std::move(pair.second)] {
    ThreadPool pool(1);
    ended = serve_cache_rank(*far, pool);
  });
  RemoteRank rank(std::move(pair.first), kSmallRank, milliseconds(500));
  std::this_thread::sleep_for(milliseconds(600));
  const auto ask = [&](std::uint32_t sequence) {
    rank.send(0, 1, {{.sequence = sequence, .rule = {}, .queries = 1, .known = 1, .end_page = 1, .keep = 1}},
              {Message(32 + 1024)});
  };
  ask(1);
  EXPECT_EQ(rank.receive().size(), 64u);
  ask(2);
  serving.join();
  EXPECT_EQ(ended, "one has sent or taken nothing for 0.5 seconds; it hangs, or is much slower than this rank.");
  EXPECT_THAT(sentence_of<RunError>([&] { rank.receive(); }),
              HasSubstr("has failed before: one has sent or taken nothing"));
}

}  // namespace
}  // namespace tandem
