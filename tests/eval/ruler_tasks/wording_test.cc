#include "eval/ruler_tasks/wording.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "tests/files.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::json;

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Random, KnownStreams) {
  // splitmix64 of state 1234567 and xoshiro256** from state {1, 2, 3, 4}: values of the authors' C code.
  EXPECT_EQ(mix64(1234567), 6457827717110365317ull);
  EXPECT_EQ(mix64(1234567 + 0x9e3779b97f4a7c15ull), 3203168211198807973ull);
  EXPECT_EQ(fnv1a64(""), 0xcbf29ce484222325ull);
  EXPECT_EQ(fnv1a64("foobar"), 0x85944171f73967e8ull);
}

TEST(Random, BelowIsUniformAndInside) {
  Random random(1);
  EXPECT_EQ(random.below(1), 0u);
  int counts[7] = {};
  for (int i = 0; i < 70000; ++i) ++counts[random.below(7)];
  for (const int n : counts) EXPECT_NEAR(n, 10000, 400);  // four standard deviations
  for (int i = 0; i < 1000; ++i) EXPECT_LT(random.below((1ull << 63) + 1), (1ull << 63) + 1);
  for (const std::uint32_t n : {1u, 2u, 7u, 64u, 65u}) {
    Random one(5), many(5);
    std::vector<std::uint32_t> drawn(500);
    many.fill_below(n, drawn);
    for (const std::uint32_t x : drawn) ASSERT_EQ(x, one.below(n)) << n;
    EXPECT_EQ(one.next(), many.next()) << n;  // neither drew more than it needed
  }
}

TEST(Wording, FillReplacesOnceAndNeverInsideValues) {
  EXPECT_EQ(fill("{a}{b} {a} {c} {", {{"a", "{b}"}, {"b", "x"}}), "{b}x {b} {c} {");
  EXPECT_EQ(fill("", {{"a", "b"}}), "");
}

class WordingFiles : public ::testing::Test {
 protected:
  std::string put(const char* name, const std::string& text) const {
    const std::string file = (folder_ / name).string();
    testing::write_bytes(file, text);
    return file;
  }
  const testing::TemporaryFolder folder_;
};

TEST_F(WordingFiles, ShippedFilesAreGoodAndNamedByTheirBytes) {
  const RulerWording& shipped = ruler_wording();
  EXPECT_EQ(shipped.wording_hash.size(), 16u);
  std::ifstream in(data_path("eval/ruler_tasks/wording.json"));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::string words = data_path("eval/ruler_tasks/words.json").string();
  EXPECT_EQ(load_ruler_wording(put("same.json", text), words).wording_hash, shipped.wording_hash);
  EXPECT_NE(load_ruler_wording(put("other.json", text + "\n"), words).wording_hash, shipped.wording_hash);
}

TEST_F(WordingFiles, BrokenFilesAreNamed) {
  const std::string words = data_path("eval/ruler_tasks/words.json").string();
  const std::string good = data_path("eval/ruler_tasks/wording.json").string();
  const auto expect = [&](const std::string& wording, const std::string& word_file, const char* message) {
    EXPECT_THAT([&] { load_ruler_wording(wording, word_file); }, ThrowsMessage<InputError>(HasSubstr(message)));
  };
  expect((folder_ / "absent.json").string(), words, "cannot be read");
  expect(put("a.json", "{"), words, "not a JSON object");
  expect(put("b.json", "[]"), words, "not a JSON object");
  expect(put("c.json", "{}"), words, "no field 'niah'");
  expect(put("d.json", R"({"niah": 3})"), words, "no field 'intro'");
  expect(put("e.json", R"({"niah": {"intro": "no place"}})"), words, "must contain {type}");
  Json relations = Json::parse(std::ifstream(good));
  relations["qa"]["relations"][1].erase("question");
  expect(put("i.json", json_text(relations)), words, "no field 'question'");
  relations["qa"]["relations"] = Json::array();
  expect(put("j.json", json_text(relations)), words, "'relations'");
  relations["vt"]["next"] = "VAR {name}.";
  expect(put("k.json", json_text(relations)), words, "must contain {previous}");
  expect(good, put("f.json", R"({"noun": "x", "adj": ["y"], "verb": ["z"]})"), "'noun'");
  expect(good, put("g.json", R"({"noun": ["x", 1], "adj": ["y"], "verb": ["z"]})"), "'noun'");
  expect(good, put("h.json", R"({"noun": ["x"], "adj": ["y"], "verb": ["z"]})"), "1000 or more");
}

}  // namespace
}  // namespace tandem::eval
