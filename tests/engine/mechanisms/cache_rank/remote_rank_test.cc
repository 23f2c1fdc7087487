// The far side of a cache rank: what it says of messages that are wrong, and when it forgets.
#include "engine/mechanisms/cache_rank/remote_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "engine/common/error.h"
#include "tests/engine/distributed/messages.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatient{60'000};
/// One layer and head with 8 floats each; a page of 16 tokens takes 1,024 bytes.
const RankModel kSmallRank{1, 1, 1, {1, 8, DType::f32}, 16, RopeTable(8, 10000)};

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
