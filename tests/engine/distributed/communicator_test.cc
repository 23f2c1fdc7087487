// Messages between two threads, and what either end is told when the other one is gone.
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

constexpr milliseconds kPatient{60'000};
/// Of one layer and head with 8 floats each; a page of 16 tokens takes 1,024 bytes.
TEST(RemoteRank, WhatGoesWrongThereIsSaidHere) {
  const RankThread thread;
  RemoteRank rank(thread.link(), kSmallRank, kPatient);
  // Queries are announced that do not come with the message.
  rank.send(0, 1, {{.sequence = 1, .rule = {}, .first = 0, .queries = 2, .known = 2, .keep = 1}}, {Message(4)});
  EXPECT_THAT(sentence_of<RunError>([&] { rank.receive(); }), ::testing::HasSubstr("The cache rank failed: A message"));
}

/// The first message of a sequence: a page, a query, a token to choose.
RemoteRow first_row(std::uint32_t sequence) {
  return {.sequence = sequence, .rule = {}, .queries = 1, .known = 1, .end_page = 1, .keep = 1};
}
/// One that goes on from there.
RemoteRow next_row(std::uint32_t sequence) {
  return {.sequence = sequence,
          .rule = {},
          .first = 1,
          .queries = 1,
          .known = 2,
          .first_page = 1,
          .end_page = 1,
          .keep = 1};
}

TEST(RemoteRank, WhatGoesOnFromNothingIsAnErrorAndNotZeros) {
  const RankThread thread;
  RemoteRank rank(thread.link(), kSmallRank, kPatient);
  rank.send(0, 1, {first_row(1)}, {Message(32 + 1024)});
  EXPECT_EQ(rank.receive().size(), 64u);
  rank.send(0, 1, {next_row(1)}, {Message(32)});
  EXPECT_EQ(rank.receive().size(), 64u);
  rank.send(0, 1, {next_row(2)}, {Message(32)});
  EXPECT_THAT(sentence_of<RunError>([&] { rank.receive(); }),
              ::testing::HasSubstr("page 1 and 1 queries of a sequence of which 0"));
  RemoteRank another(thread.link(), kSmallRank, kPatient);  // its greeting ends what the first one told
  rank.send(0, 1, {next_row(1)}, {Message(32)});
  EXPECT_THAT(sentence_of<RunError>([&] { rank.receive(); }), ::testing::HasSubstr("two decodes share one link"));
}

/// Counts what is sent.
class Counting final : public Communicator {
 public:
  explicit Counting(std::shared_ptr<Communicator> link) : link_(std::move(link)) {}
  void send(Message message) override {
    ++sent;
    link_->send(std::move(message));
  }
  Message receive() override { return link_->receive(); }
  Message await() override { return link_->await(); }
  void set_patience(milliseconds patience) override { link_->set_patience(patience); }
  int sent = 0;

 private:
  std::shared_ptr<Communicator> link_;
};

// Whichever thread forgets must not send: another may be in the middle of a message.
TEST(RemoteRank, WhatIsForgottenIsToldWithTheNextMessage) {
  const RankThread thread;
  const auto link = std::make_shared<Counting>(thread.link());
  {
    RemoteRank rank(link, kSmallRank, kPatient);
    rank.send(0, 1, {first_row(1), first_row(2)}, {Message(32 + 1024), Message(32 + 1024)});
    EXPECT_EQ(rank.receive().size(), 128u);
    EXPECT_EQ(link->sent, 2);
    std::thread([&] { rank.forget(1); }).join();
    EXPECT_EQ(link->sent, 2);
    rank.send(0, 1, {next_row(2)}, {Message(32)});
    EXPECT_EQ(rank.receive().size(), 64u);
    rank.send(0, 1, {next_row(1)}, {Message(32)});
    EXPECT_THAT(sentence_of<RunError>([&] { rank.receive(); }), ::testing::HasSubstr("0 pages and 0 queries are here"));
    rank.forget(2);
    EXPECT_EQ(link->sent, 4);
  }
  EXPECT_EQ(link->sent, 5) << "its end tells the rest";
}

}  // namespace
}  // namespace tandem
