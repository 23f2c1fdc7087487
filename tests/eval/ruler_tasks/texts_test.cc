#include "eval/ruler_tasks/texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/model/model_folder.h"
#include "tests/eval/ruler_tasks/question_files.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class TextFiles : public ::testing::Test {
 protected:
  std::string write(const char* name, const std::string& bytes) const {
    tandem::testing::write_bytes(root_.path() / name, bytes);
    return (root_.path() / name).string();
  }
  tandem::testing::TemporaryFolder root_;
};

TEST_F(TextFiles, GoToTheTasksThatUseThem) {
  const std::string essays = write("essays.json", "{\"text\": \"One. Two.\"}"), squad = write("squad.json", kSquad),
                    hotpot = write("hotpot.json", kHotpot);
  const RulerTexts all = read_ruler_texts({essays, {hotpot, squad}}, {"niah_multivalue", "qa_1", "qa_2"});
  ASSERT_TRUE(all.essays && all.squad && all.hotpot);
  EXPECT_EQ(all.essays->words.size(), 2u);
  EXPECT_EQ(all.squad->questions.size(), 4u);
  EXPECT_EQ(all.hotpot->questions.size(), 2u);
  const RulerTexts none = read_ruler_texts({}, {"qa_1"});
  EXPECT_FALSE(none.essays || none.squad || none.hotpot);
}

TEST_F(TextFiles, WhatNoTaskUsesIsAnError) {
  const std::string essays = write("essays.txt", "One. Two."), squad = write("squad.json", kSquad),
                    hotpot = write("hotpot.json", kHotpot);
  const auto expect = [](const RulerFiles& files, const std::vector<std::string>& tasks, const auto& message) {
    EXPECT_THAT([&] { read_ruler_texts(files, tasks); }, ThrowsMessage<InputError>(message));
  };
  expect({essays, {}}, {"niah_single_1", "vt"}, AllOf(HasSubstr("--ruler-essays"), HasSubstr("niah_single_2")));
  expect({"", {squad}}, {"qa_2"}, AllOf(HasSubstr("--ruler-qa"), HasSubstr("questions for qa_1")));
  expect({"", {hotpot}}, {"qa_1"}, AllOf(HasSubstr("--ruler-qa"), HasSubstr("questions for qa_2")));
  expect({"", {squad, squad}}, {"qa_1"}, HasSubstr("both hold questions for qa_1"));
  expect({root_.path().string(), {}}, {"niah_single_2"}, HasSubstr("--ruler-essays: "));
  expect({"", {squad + "x"}}, {"qa_1"}, HasSubstr("--ruler-qa: "));
}

}  // namespace
}  // namespace tandem::eval
