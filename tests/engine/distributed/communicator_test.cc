// Messages between two threads, and what either end is told when the other one is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "engine/common/error.h"
#include "engine/distributed/message.h"
#include "tests/engine/distributed/messages.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

TEST(Communicator, MessagesArriveWholeAndInOrder) {
  CommunicatorPair pair = make_thread_pair("one", "two", milliseconds(0));
  std::thread other([far = std::move(pair.second)] {
    for (int i = 0; i < 100; ++i) far->send(far->receive());
  });
  for (int i = 0; i < 100; ++i) pair.first->send(numbered(i));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(MessageReader(pair.first->receive()).get<int>(), i);
  other.join();
}

TEST(Communicator, WhatWasSentBeforeAnEndLeftStillArrives) {
  CommunicatorPair pair = make_thread_pair("one", "two", milliseconds(0));
  pair.second->send(numbered(7));
  pair.second.reset();
  EXPECT_EQ(MessageReader(pair.first->receive()).get<int>(), 7);
  EXPECT_EQ(sentence_of<RunError>([&] { pair.first->receive(); }), "two is gone: it ended before it answered.");
  EXPECT_EQ(sentence_of<RunError>([&] { pair.first->send(numbered(1)); }), "A message cannot be sent: two is gone.");
}

TEST(Communicator, AnEndThatIsSilentIsAnErrorAfterTheTime) {
  const CommunicatorPair pair = make_thread_pair("one", "two", milliseconds(20));
  EXPECT_THAT(sentence_of<RunError>([&] { pair.first->receive(); }),
              ::testing::HasSubstr("two has sent nothing for 0.02 seconds"));
}

TEST(Communicator, AnEndThatAwaitsHasAllTheTimeThereIs) {
  CommunicatorPair pair = make_thread_pair("one", "two", milliseconds(5));
  std::thread other([far = std::move(pair.second)] {
    std::this_thread::sleep_for(milliseconds(50));
    far->send(numbered(3));
  });
  EXPECT_EQ(MessageReader(pair.first->await()).get<int>(), 3);
  other.join();
}

TEST(Communicator, AMessageThatIsTooShortIsASentence) {
  MessageReader in(numbered(3));
  in.get<int>();
  EXPECT_THAT(sentence_of<RunError>([&] { in.get<double>(); }), ::testing::HasSubstr("4 bytes long"));
}

}  // namespace
}  // namespace tandem
