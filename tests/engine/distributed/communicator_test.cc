// Messages between two threads, and what either end is told when the other one is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "engine/common/error.h"
#include "engine/distributed/message.h"
#include "engine/distributed/remote_rank.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

template <class Work>
std::string sentence_of(const Work& work) {
  try {
    work();
  } catch (const RunError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

Message numbered(int n) {
  MessageWriter out;
  out.put(n);
  return out.take();
}

TEST(Communicator, MessagesArriveWholeAndInOrder) {
  CommunicatorPair pair = make_thread_pair("one", "two", milliseconds(0), milliseconds(0));
  std::thread other([far = std::move(pair.second)] {
    for (int i = 0; i < 100; ++i) far->send(far->receive());
  });
  for (int i = 0; i < 100; ++i) pair.first->send(numbered(i));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(MessageReader(pair.first->receive()).get<int>(), i);
  other.join();
}

TEST(Communicator, WhatWasSentBeforeAnEndLeftStillArrives) {
  CommunicatorPair pair = make_thread_pair("one", "two", milliseconds(0), milliseconds(0));
  pair.second->send(numbered(7));
  pair.second.reset();
  EXPECT_EQ(MessageReader(pair.first->receive()).get<int>(), 7);
  EXPECT_EQ(sentence_of([&] { pair.first->receive(); }), "two is gone: it ended before it answered.");
  EXPECT_EQ(sentence_of([&] { pair.first->send(numbered(1)); }), "A message cannot be sent: two is gone.");
}

TEST(Communicator, AnEndThatIsSilentIsAnErrorAfterTheTime) {
  const CommunicatorPair pair = make_thread_pair("one", "two", milliseconds(20), milliseconds(0));
  EXPECT_THAT(sentence_of([&] { pair.first->receive(); }),
              ::testing::HasSubstr("two has sent nothing for 0.02 seconds"));
}

TEST(Communicator, AMessageThatIsTooShortIsASentence) {
  MessageReader in(numbered(3));
  in.get<int>();
  EXPECT_THAT(sentence_of([&] { in.get<double>(); }), ::testing::HasSubstr("4 bytes long"));
}

TEST(RemoteRank, WhatGoesWrongThereIsSaidHere) {
  const RankThread thread;
  RankModel model{1, 1, 1, {1, 8, DType::f32}, 16, RopeTable(8, 10000)};
  RemoteRank rank(thread.link(), model);
  // Queries are announced that do not come with the message.
  rank.send(0, 1, {{.sequence = 1, .rule = {}, .first = 0, .queries = 2, .known = 2, .keep = 1}}, {Message(4)});
  EXPECT_THAT(sentence_of([&] { rank.receive(); }), ::testing::HasSubstr("The cache rank failed: A message"));
}

}  // namespace
}  // namespace tandem
