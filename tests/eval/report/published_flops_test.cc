#include "eval/report/published_flops.h"

#include <gtest/gtest.h>

#include "engine/model/presets.h"
#include "eval/run/decoded.h"

namespace tandem::eval {
namespace {

// Worked out by hand from equations 6 to 11 at Qwen3-8B's shape: l = 36, q = 32, kv = 8, h = 128, H = 4096, i = 12288.
TEST(PublishedFlops, AreThoseOfAppendixB) {
  const ModelConfig c = preset_config("qwen3-8b");
  EXPECT_DOUBLE_EQ(parameter_flops(c), 36.0 * (67108864.0 + 16777216.0 + 301989888.0));
  const auto of = [&](const char* spec) { return attention_flops(c, method_entries({spec}).at(0), 32768); };
  const double heads = 36.0 * 32 * 128;
  EXPECT_DOUBLE_EQ(of("full").value(), heads * 131072);
  EXPECT_DOUBLE_EQ(of("tova:budget=2048").value(), heads * (8192 + 65536));
  EXPECT_DOUBLE_EQ(of("quest:budget=2048,page=16").value(), heads * (8192 + 4096));
  EXPECT_DOUBLE_EQ(of("asyncspade:budget=2048").value(), heads * 8192);
  EXPECT_DOUBLE_EQ(of("asyncspade:budget=0.5").value(), heads * 65536);
  EXPECT_DOUBLE_EQ(of("tova:budget=40K").value(), heads * 6 * 32768) << "no more than there are";
  EXPECT_FALSE(of("hgca").has_value());
  EXPECT_FALSE(of("tova:budget=2048,evict=yes").has_value());
  EXPECT_FALSE(of("quest:budget=2048,page=16,dense_layers=2").has_value());
  EXPECT_FALSE(of("asyncspade:budget=2048,theta=1").has_value());
}

TEST(PublishedFlops, ASectionNamesEveryMethodAndIsLeftOutWhereOnlyFullHasAFormula) {
  Summary summary;
  summary.manifest.lengths = {1024, 2048};
  summary.manifest.methods = method_entries({"full", "tova:budget=64", "hgca"});
  for (const MethodEntry& entry : summary.manifest.methods) summary.methods.emplace_back().label = entry.label;
  const std::string text = published_flops_text(preset_config("qwen3-8b"), summary, true);
  for (const MethodEntry& entry : summary.manifest.methods) EXPECT_NE(text.find(entry.label), std::string::npos);
  summary.methods[1].lengths.push_back({"", 2048, {10, 0.5, {0.2, 0.8}, IntervalKind::wilson}, false, {}});
  const std::string json = published_flops_json(preset_config("qwen3-8b"), summary);
  EXPECT_NE(json.find("\"accuracy\": 0.5"), std::string::npos) << json;
  EXPECT_NE(json.find("\"length\": 2048"), std::string::npos) << json;
  summary.manifest.methods = method_entries({"full", "hgca"});
  summary.methods.erase(summary.methods.begin() + 1);
  EXPECT_EQ(published_flops_text(preset_config("qwen3-8b"), summary, true), "");
  EXPECT_EQ(published_flops_json(preset_config("qwen3-8b"), summary), "");
}

}  // namespace
}  // namespace tandem::eval
