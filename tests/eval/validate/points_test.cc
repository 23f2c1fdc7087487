#include <fmt/core.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "eval/validate/validation.h"

namespace tandem::eval {
namespace {

std::string file_with(const std::string& points) {
  return R"({"points": [)" + points + "]}";
}

/// A point with every required field, and these.
std::string point(const std::string& more, const std::string& id = "one") {
  return fmt::format(
      R"({{"id": "{}", "kind": "gemm_kernel", "hardware": "NVIDIA H200", "unit": "us", "source": "a page"{}{}}})", id,
      more.empty() ? "" : ", ", more);
}

std::string error_of(const std::string& text) {
  try {
    parse_points(text, "mine.json");
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

MeasuredPoint read(const std::string& more) {
  return parse_points(file_with(point("\"value\": 1, " + more)), "mine.json").at(0);
}

TEST(MeasuredPoints, ShippedFileIsWhole) {
  const std::string path = (data_path("hardware/validation") / "points.json").string();
  const std::vector<MeasuredPoint> points = parse_points(read_file(path), path);
  EXPECT_GT(points.size(), 1000u);
  for (const MeasuredPoint& p : points) {
    EXPECT_GT(p.source.size(), 5u) << p.id;
    if (p.kind == "decode_attention_kernel") {
      EXPECT_TRUE(head_shape(p)) << p.id;
      EXPECT_TRUE(p.batch && p.context && nanoseconds(p)) << p.id;
    }
    if (p.kind == "gemm_kernel") {
      EXPECT_TRUE(matrix_shape(p) && p.batch && nanoseconds(p)) << p.id;
    }
  }
}

TEST(MeasuredPoints, ErrorsNameFilePointAndField) {
  EXPECT_EQ(error_of("[]"), "mine.json: a file of measured points is an object with a list 'points'.");
  EXPECT_EQ(error_of(file_with("")), "mine.json: the list 'points' is empty.");
  EXPECT_EQ(error_of(file_with("3")), "mine.json: points[0] is 3; a point is an object.");
  EXPECT_EQ(error_of(file_with(R"({"kind": "x"})")), "mine.json: points[0]: the field 'id' is missing or empty.");
  EXPECT_EQ(error_of(file_with(point(""))),
            "mine.json: the point 'one': the field 'value' is missing; it must be a number above 0.");
  EXPECT_EQ(error_of(file_with(point(R"("value": -2)"))),
            "mine.json: the point 'one': the field 'value' is -2; it must be a number above 0.");
  EXPECT_EQ(error_of(file_with(point(R"("value": 1, "batch": 0)"))),
            "mine.json: the point 'one': the field 'batch' is 0; it must be a number from 1 to 1000000.");
  EXPECT_EQ(error_of(file_with(point(R"("value": 1, "gpus": [8])"))),
            "mine.json: the point 'one': the field 'gpus' is [8]; it must be a number from 0 to 1000000.");
  EXPECT_EQ(error_of(file_with(point(R"("value": 1)") + "," + point(R"("value": 2)"))),
            "mine.json: the id 'one' occurs twice.");
}

TEST(MeasuredPoints, ContextsInTextAreMeans) {
  EXPECT_EQ(read(R"x("context": 4096)x").context, 4096);
  EXPECT_EQ(read(R"x("context": "0 -> 512 while generating (mean depth 256)")x").context, 256);
  EXPECT_EQ(read(R"x("context": "5 -> about 205 while generating")x").context, 105);
  EXPECT_EQ(read(R"x("context": "prompt 2048, output 128")x").context, 2112);
  EXPECT_EQ(read(R"x("context": "first 32 tokens")x").context, 16);
  EXPECT_EQ(read(R"x("context": "32 tokens at offset 4000")x").context, 4016);
  EXPECT_FALSE(read(R"x("context": "workload general")x").context);
  EXPECT_FALSE(read(R"x("context": null)x").context);
  EXPECT_FALSE(read("\"context\": \"" + std::string(300000, '9') + " -> 5\"").context);  // no deep recursion
}

TEST(MeasuredPoints, ShapesAndUnits) {
  const auto heads = head_shape(read(R"x("model_shape": "Llama-3.1-8B (32/8 heads, d 128)")x"));
  ASSERT_TRUE(heads);
  EXPECT_EQ(heads->q_heads, 32u);
  EXPECT_EQ(heads->kv_heads, 8u);
  EXPECT_EQ(heads->head_dim, 128u);
  EXPECT_FALSE(head_shape(read(R"x("model_shape": "30 query heads, 8 KV heads, head_dim 128")x")));
  const auto matrix = matrix_shape(read(R"x("model_shape": "N=4096 K=16384")x"));
  ASSERT_TRUE(matrix);
  EXPECT_EQ(matrix->outputs, 4096u);
  EXPECT_EQ(matrix->inputs, 16384u);
  const auto layer = matrix_shape(read(R"x("model": "Meta-Llama-3-8B", "metric": "median time of mlp_up_proj")x"));
  ASSERT_TRUE(layer);
  EXPECT_EQ(layer->outputs, 28672u);  // gate and up
  EXPECT_EQ(layer->inputs, 4096u);
  EXPECT_EQ(nanoseconds(read("\"unit2\": 1")), 1000);
  MeasuredPoint p;
  p.value = 2;
  for (const auto& [unit, expected] :
       std::initializer_list<std::pair<const char*, UnitKind>>{{"us per layer", UnitKind::time},
                                                               {"us per MB", UnitKind::other},
                                                               {"ms/step", UnitKind::other},
                                                               {"tok/s", UnitKind::tokens_per_second},
                                                               {"GB/s", UnitKind::bytes_per_second}}) {
    p.unit = unit;
    EXPECT_EQ(unit_kind(p), expected) << unit;
  }
}

TEST(MeasuredPoints, ModelsArePresets) {
  EXPECT_EQ(preset_of("meta-llama/Llama-3.1-8B-Instruct"), "llama-3.1-8b");
  EXPECT_EQ(preset_of("Qwen/Qwen3-32B"), "qwen3-32b");
  EXPECT_EQ(preset_of("Llama-3.1-8B-Instruct-FP8"), "");
  EXPECT_EQ(preset_of("DeepSeek-V3"), "");
}

}  // namespace
}  // namespace tandem::eval
