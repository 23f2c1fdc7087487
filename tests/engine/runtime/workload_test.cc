#include "engine/runtime/workload.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/common/paths.h"

namespace tandem {
namespace {

const ModelShape kPlacedShape{.layers = 8, .hidden = 64, .q_heads = 8, .kv_heads = 2, .head_dim = 16};

TEST(WorkloadFigures, InverseFunctionsAreInverse) {
  EXPECT_DOUBLE_EQ(share_above_mean(0), 0.5);
  for (const double share : {0.4, 0.1, 0.01, 0.001})
    EXPECT_NEAR(share_above_mean(concentration_of(share)), share, 1e-9);
  EXPECT_EQ(concentration_of(0.7), 0);
  for (const double fraction : {0.02, 0.125, 0.5}) {
    EXPECT_NEAR(overlap_of(0, fraction), fraction, 1e-5) << "independent choices meet by chance";
    EXPECT_NEAR(overlap_of(1, fraction), 1, 2e-3);
    for (const double correlation : {0.2, 0.6, 0.95})
      EXPECT_NEAR(correlation_of(overlap_of(correlation, fraction), fraction), correlation, 1e-6);
    EXPECT_EQ(correlation_of(0, fraction), 0);
  }
}

TEST(Workload, HeadsMapByRelativePlace) {
  Workload workload{"test", "made up", {}};
  for (int layer = 0; layer < 4; ++layer) {
    workload.layers.push_back({});
    for (int head = 0; head < 2; ++head) workload.layers.back().push_back({layer + head / 10.0, 0, 0});
  }
  EXPECT_EQ(workload.at(kPlacedShape, 0, 0).concentration, 0);
  EXPECT_EQ(workload.at(kPlacedShape, 7, 7).concentration, 3.1);
  EXPECT_EQ(workload.at(kPlacedShape, 4, 3).concentration, 2);
}

TEST(Workload, ReadsBackWhatItWrites) {
  const Workload workload{"test", "made up", {{{1.25, 0.5, 0.1}, {0, 0, 1}}, {{3, 0.25, 0.75}}}};
  const Workload back = parse_workload(workload_to_json(workload), "w.json");
  EXPECT_EQ(workload_to_json(back), workload_to_json(workload));
  EXPECT_EQ(back.layers[1][0].group, 0.25);
  std::ifstream shipped(data_path("hardware/workloads/published.json"));
  const std::string text{std::istreambuf_iterator<char>(shipped), std::istreambuf_iterator<char>()};
  EXPECT_EQ(parse_workload(text, "published.json").name, "published");
}

TEST(Workload, IsReadOutOfATargetsFileToo) {
  const Workload workload{"test", "made up", {{HeadWorkload{1, 0.5, 0.9, 8}}}};
  const std::string target =
      R"({"clock": "simulated for x", "methods": [], "workload": )" + workload_to_json(workload) + "}";
  EXPECT_EQ(workload_to_json(parse_workload(target, "target.json")), workload_to_json(workload));
}

TEST(Workload, MistakesAreSentences) {
  const auto error = [](const std::string& text) {
    try {
      parse_workload(text, "w.json");
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error("{"), HasSubstr("w.json: not valid JSON from byte 2 of 1 on"));
  EXPECT_THAT(error(R"({"name":"a","source":"b"})"), HasSubstr("layers"));
  EXPECT_THAT(error(R"({"name":"a","source":"b","layers":[]})"), HasSubstr("'layers' is empty"));
  EXPECT_THAT(error(R"({"name":"a","source":"b","layers":[[]]})"), HasSubstr("layers[0] has no heads"));
  EXPECT_THAT(error(R"({"name":"a","source":"b","layers":[[{"concentration":1,"group":1.5,"step":0}]]})"),
              HasSubstr("layers[0][0].group is 1.5"));
  EXPECT_THAT(error(R"({"name":"a","source":"b","layers":[[{"concentraton":1,"group":1,"step":0}]]})"),
              HasSubstr("w.json: layers[0][0] has 'concentraton', which no workload has. Did you mean"));
  EXPECT_THAT(error(R"({"name":"a","source":"b","layers":[[{"concentration":"1","group":1,"step":0}]]})"),
              HasSubstr("layers[0][0].concentration is \"1\"; it must be a number"));
  EXPECT_THAT(error(R"({"name":"a","source":"b","layers":[[{"concentration":1,"step":0}]]})"),
              HasSubstr("layers[0][0] has no 'group'"));
  EXPECT_THAT(error(R"({"name":"a","source":"b","layer":[]})"), HasSubstr("w.json has 'layer'"));
}

}  // namespace
}  // namespace tandem
