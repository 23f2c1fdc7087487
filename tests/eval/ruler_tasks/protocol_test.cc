#include "eval/ruler_tasks/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "engine/common/error.h"
#include "eval/ruler_tasks/texts.h"
#include "eval/ruler_tasks/wording.h"
#include "tests/eval/ruler_tasks/question_files.h"

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RulerProtocol example() {
  RulerProtocol protocol;
  protocol.tokenizer_hash = "abc123";
  protocol.budget = "hgca=device-window,streaming=sinks-and-window";
  return protocol;
}

constexpr const char* kCommon =
    "+tok:abc123+template:none+length:{}+score:{}+budget:hgca=device-window,streaming=sinks-and-window"
    "+query:aware+question:in-prefill+eos:stops";

TEST(RulerProtocolId, EmbeddedSource) {
  EXPECT_EQ(ruler_protocol_id(example()),
            "ruler/embedded-v4+essay:prose+qa_1:made-up+qa_2:made-up+wording:" + ruler_wording().wording_hash +
                "+words:" + ruler_wording().words_hash + fmt::format(fmt::runtime(kCommon), "fitted", "upstream"));
}

TEST(RulerProtocolId, OfficialFiles) {
  RulerProtocol protocol = example();
  protocol.data_hash = "def";
  EXPECT_EQ(ruler_protocol_id(protocol),
            "ruler/official-v2+data:def" + fmt::format(fmt::runtime(kCommon), "as-is", "upstream-v2"));
}

TEST(RulerProtocolId, ScoresOfAnswersFromFilesAreAnotherVersion) {
  const auto score = [](const auto& change) {
    RulerProtocol protocol = example();
    change(protocol);
    for (const auto& [name, value] : ruler_protocol_fields(ruler_protocol_id(protocol)))
      if (name == "score") return value;
    return std::string();
  };
  EXPECT_EQ(score([](RulerProtocol& p) { p.texts.essays = std::make_shared<const Essays>(parse_essays("a", "e")); }),
            "upstream");
  EXPECT_EQ(
      score([](RulerProtocol& p) { p.texts.squad = std::make_shared<QuestionSet>(parse_questions(kSquad, "s")); }),
      "upstream-v2");
  EXPECT_EQ(
      score([](RulerProtocol& p) { p.texts.hotpot = std::make_shared<QuestionSet>(parse_questions(kHotpot, "h")); }),
      "upstream-v2");
}

TEST(RulerProtocolId, WhateverDiffersGivesAnotherId) {
  std::set<std::string> ids;
  const auto add = [&](const auto& change) {
    RulerProtocol protocol = example();
    change(protocol);
    EXPECT_TRUE(ids.insert(ruler_protocol_id(protocol)).second) << *ids.begin();
  };
  add([](RulerProtocol&) {});
  add([](RulerProtocol& p) { p.tokenizer_hash = "abc124"; });
  add([](RulerProtocol& p) { p.data_hash = "abc"; });
  add([](RulerProtocol& p) { p.data_hash = "abd"; });
  add([](RulerProtocol& p) { p.texts.essays = std::make_shared<const Essays>(parse_essays("a", "e")); });
  add([](RulerProtocol& p) { p.texts.essays = std::make_shared<const Essays>(parse_essays("b", "e")); });
  add([](RulerProtocol& p) { p.texts.squad = std::make_shared<const QuestionSet>(parse_questions(kSquad, "s")); });
  add([](RulerProtocol& p) { p.texts.hotpot = std::make_shared<const QuestionSet>(parse_questions(kHotpot, "h")); });
  add([](RulerProtocol& p) { p.chat_template = "in-files"; });
  add([](RulerProtocol& p) { p.budget = "hgca=tokens,streaming=sinks-and-window"; });
  add([](RulerProtocol& p) { p.budget = "none"; });
  EXPECT_EQ(ids.size(), 11u);
  RulerProtocol broken = example();
  broken.chat_template = "a+b";
  EXPECT_THROW(ruler_protocol_id(broken), LogicError);
}

TEST(RulerProtocolId, IsReadBack) {
  const auto fields = ruler_protocol_fields(ruler_protocol_id(example()));
  ASSERT_EQ(fields.size(), 14u);
  EXPECT_EQ(fields[0], std::pair(std::string("variant"), std::string("embedded-v4")));
  EXPECT_EQ(fields[13], std::pair(std::string("eos"), std::string("stops")));
  for (const char* other : {"", "ruler/", "leval/v1+data:3", "ruler/embedded-v1+no-value"})
    EXPECT_THAT(ruler_protocol_fields(other), IsEmpty()) << other;
  EXPECT_THAT(ruler_protocol_fields("ruler/x+a:b:c+d:"),
              ElementsAre(std::pair("variant", "x"), std::pair("a", "b:c"), std::pair("d", "")));
}

TEST(RulerProtocolId, SaysWherePromptsCameFrom) {
  RulerProtocol protocol = example();
  const std::vector<std::string> tasks = {"qa_1", "qa_2", "vt", "niah_single_3", "niah_single_2"};
  EXPECT_EQ(ruler_data_text(ruler_protocol_id(protocol), tasks),
            "embedded source; niah_single_2 and niah_single_3 in invented prose; qa_1 and qa_2 on made-up facts");
  EXPECT_EQ(ruler_data_text(ruler_protocol_id(protocol), {"vt"}), "embedded source");
  protocol.texts.essays = std::make_shared<const Essays>(parse_essays("a", "e"));
  protocol.texts.squad = std::make_shared<const QuestionSet>(parse_questions(kSquad, "s"));
  EXPECT_EQ(ruler_data_text(ruler_protocol_id(protocol), tasks),
            "embedded source; niah_single_2 and niah_single_3 in the essays of a file (" + protocol.texts.essays->hash +
                "); qa_1 with the questions of a file (squad-" + protocol.texts.squad->hash +
                "); qa_2 on made-up facts");
  protocol.data_hash = "def";
  EXPECT_EQ(ruler_data_text(ruler_protocol_id(protocol), tasks), "official files as they are (def)");
  EXPECT_EQ(ruler_data_text("ruler/embedded-v2+essay-prose", tasks), "");
}

TEST(RulerProtocolId, NamesDataThatDiffer) {
  RulerProtocol one = example(), two = example();
  one.data_hash = "123";
  two.data_hash = "456";
  const auto difference = [](const RulerProtocol& a, const RulerProtocol& b) {
    return ruler_data_difference(ruler_protocol_id(a), ruler_protocol_id(b));
  };
  EXPECT_EQ(difference(one, two), "data: 123 there, 456 here");
  EXPECT_EQ(difference(one, one), "");
  EXPECT_EQ(difference(one, example()), "") << "another source is more than other data";
  RulerProtocol essays = example();
  essays.texts.essays = std::make_shared<const Essays>(parse_essays("a", "e"));
  EXPECT_EQ(difference(example(), essays), "essay: prose there, " + essays.texts.essays->hash + " here");
  essays.tokenizer_hash = "other";
  EXPECT_EQ(difference(essays, example()), "essay: " + essays.texts.essays->hash + " there, prose here");
  RulerProtocol tokenizer = example();
  tokenizer.tokenizer_hash = "other";
  EXPECT_EQ(difference(example(), tokenizer), "") << "not data";
}

}  // namespace
}  // namespace tandem::eval
