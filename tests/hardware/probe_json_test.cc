#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "hardware/probe/json_out.h"

namespace tandem::probe {
namespace {

using nlohmann::json;

TEST(ProbeJson, EveryCharacterSurvives) {
  std::string text;
  for (int byte = 1; byte < 0x80; ++byte) text += static_cast<char>(byte);
  text += "é€😀";
  EXPECT_EQ(json::parse(json_quote(text)).get<std::string>(), text);
  const std::string with_zero("a\0b", 3);
  EXPECT_EQ(json::parse(json_quote(with_zero)).get<std::string>(), with_zero);
}

TEST(ProbeJson, InvalidUtf8StaysValidJson) {
  for (const char* text :
       {"\xff", "a\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xed\xa0\x80", "\xc0\xaf", "\xf5\x80\x80\x80", "\x80z"}) {
    const json parsed = json::parse(json_quote(text));  // throws on invalid UTF-8
    EXPECT_NE(parsed.get<std::string>().find("\xEF\xBF\xBD"), std::string::npos) << text;
  }
}

TEST(ProbeJson, RandomBytesAlwaysParse) {
  std::mt19937 random(17);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text(random() % 12, ' ');
    for (char& c : text) c = static_cast<char>(random() & 0xFF);
    EXPECT_NO_THROW(json::parse(json_quote(text)));
  }
}

TEST(ProbeJson, NumbersReadBackExactly) {
  std::mt19937_64 random(19);
  for (int trial = 0; trial < 2000; ++trial) {
    const double value = std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 160);
    EXPECT_EQ(json::parse(json_number(value)).get<double>(), value);
  }
  EXPECT_EQ(json_number(std::nan("")), "null");
  EXPECT_EQ(json_number(std::numeric_limits<double>::infinity()), "null");
}

TEST(ProbeJson, ReportHasTheSchemasFields) {
  Report report;
  report.started_utc = "2000-01-01T00:00:00Z";
  report.machine = {{"name", "a \"quoted\" machine"}};
  report.gpu_error = "No GPU.";
  Section& section = report.sections.emplace_back();
  section.name = "dram";
  section.status = Status::partial;
  section.skipped = {"dram_read (threads=2)"};
  Figure figure = summarize(std::vector<double>{1, 2, 3, 4, 5, 6, 7});
  figure.name = "dram_read";
  figure.unit = "GB/s";
  figure.conditions = {{"threads", 1}, {"isa", "avx2"}, {"prefetch", true}, {"ratio", 0.5}};
  section.figures.push_back(figure);
  Section& empty = report.sections.emplace_back();
  empty.name = "link";
  empty.status = Status::absent;
  empty.error = "No GPU.";

  const json parsed = json::parse(to_json(report));
  EXPECT_EQ(parsed["schema_version"], kSchemaVersion);
  EXPECT_EQ(parsed["machine"]["name"], "a \"quoted\" machine");
  EXPECT_TRUE(parsed["machine"]["gpu"].is_null());
  EXPECT_EQ(parsed["machine"]["gpu_absent_because"], "No GPU.");
  const json& dram = parsed["sections"]["dram"];
  EXPECT_EQ(dram["status"], "partial");
  EXPECT_EQ(dram["skipped"].size(), 1u);
  const json& written = dram["figures"][0];
  EXPECT_EQ(written["value"], 4.0);
  EXPECT_NEAR(written["p10"].get<double>(), 1.6, 1e-12);
  EXPECT_NEAR(written["p90"].get<double>(), 6.4, 1e-12);
  EXPECT_EQ(written["repeats"], 7);
  EXPECT_EQ(written["conditions"], (json{{"threads", 1}, {"isa", "avx2"}, {"prefetch", true}, {"ratio", 0.5}}));
  EXPECT_EQ(parsed["sections"]["link"]["status"], "absent");
  EXPECT_EQ(parsed["sections"]["link"]["error"], "No GPU.");
  EXPECT_TRUE(parsed["sections"]["link"]["figures"].empty());
}

TEST(ProbeJson, UnbalancedBracketsAreRefused) {
  JsonWriter open;
  open.begin_object();
  EXPECT_THROW(open.take(), ProbeError);
  JsonWriter closed;
  EXPECT_THROW(closed.end_object(), ProbeError);
}

}  // namespace
}  // namespace tandem::probe
