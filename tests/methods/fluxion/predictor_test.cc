// The predictor against plain loops in double precision, and what it says of files that are no predictors.
#include "methods/fluxion/predictor.h"

#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "engine/model/model.h"
#include "methods/fluxion/features.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;

struct Tensor {
  std::vector<std::uint32_t> shape;
  std::vector<float> values;
  std::string dtype = "F32";
};
using File = std::map<std::string, Tensor>;

std::string bytes_of(const File& file) {
  Json header = Json::object();
  std::string body;
  for (const auto& [name, tensor] : file) {
    const std::size_t begin = body.size();
    for (const float x : tensor.values) {
      const auto whole = static_cast<std::int32_t>(x);
      body.append(tensor.dtype == "I32" ? reinterpret_cast<const char*>(&whole) : reinterpret_cast<const char*>(&x), 4);
    }
    header[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, body.size()}}};
  }
  return safetensors_bytes(json_text(header), body);
}

Tensor random_tensor(std::mt19937& random, std::vector<std::uint32_t> shape, float scale) {
  Tensor tensor{std::move(shape), {}};
  std::size_t n = 1;
  for (const std::uint32_t s : tensor.shape) n *= s;
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < n; ++i) tensor.values.push_back(scale * normal(random));
  return tensor;
}

File random_file(std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  File file;
  file["feature.mean"] = random_tensor(random, {41}, 1);
  file["feature.std"] = random_tensor(random, {41}, 1);
  for (float& x : file["feature.std"].values) x = std::abs(x) + 0.1f;
  file["trunk.0.weight"] = random_tensor(random, {20, 41}, 0.2f);
  file["trunk.0.bias"] = random_tensor(random, {20}, 0.2f);
  file["trunk.1.weight"] = random_tensor(random, {13, 20}, 0.3f);
  file["trunk.1.bias"] = random_tensor(random, {13}, 0.2f);
  file["heads.weight"] = random_tensor(random, {3, 13}, 0.3f);
  file["heads.bias"] = random_tensor(random, {3}, 0.1f);
  file["model"] = {{7}, {4, 8, 2, 64, 64, 256, 1}, "I32"};
  file["limits"] = {{2}, {0.05f, 0.95f}};
  return file;
}

std::vector<double> layer(const File& file, const std::string& name, const std::vector<double>& x) {
  const Tensor &w = file.at(name + ".weight"), &b = file.at(name + ".bias");
  std::vector<double> y;
  for (std::size_t o = 0; o < b.values.size(); ++o) {
    double sum = b.values[o];
    for (std::size_t i = 0; i < x.size(); ++i) sum += double(w.values[o * x.size() + i]) * x[i];
    y.push_back(sum);
  }
  return y;
}

std::vector<double> plain(const File& file, const float* features) {
  std::vector<double> x;
  for (int i = 0; i < kFeatures; ++i) {
    const double z = (double(features[i]) - file.at("feature.mean").values[i]) / file.at("feature.std").values[i];
    x.push_back(z > 10 ? 10 : z < -10 ? -10 : z);
  }
  for (const char* name : {"trunk.0", "trunk.1"}) {
    x = layer(file, name, x);
    for (double& v : x) v = v > 0 ? v : 0;
  }
  return layer(file, "heads", x);
}

TEST(FluxionPredictor, EqualsPlainLoops) {
  const TemporaryFolder folder;
  const File file = random_file();
  write_bytes(folder.path() / "p.safetensors", bytes_of(file));
  const Predictor predictor = Predictor::load(folder.path() / "p.safetensors");
  constexpr int kRows = 37;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> features(std::size_t{kRows} * kFeatures);
  for (float& x : features) x = 4 * normal(random);
  features[3] = 1e9f;  // is cut
  std::vector<HeadProperties> out(kRows);
  predictor.predict(features.data(), kRows, out.data());
  int streaming = 0;
  for (int r = 0; r < kRows; ++r) {
    const auto expected = plain(file, features.data() + std::size_t(r) * kFeatures);
    EXPECT_NEAR(out[r].budget, expected[0], 1e-4 * std::max(1.0, std::abs(expected[0])));
    EXPECT_NEAR(out[r].slope, expected[1], 1e-4 * std::max(1.0, std::abs(expected[1])));
    if (std::abs(expected[2]) > 1e-3) {
      EXPECT_EQ(out[r].streaming, expected[2] > 0);
    }
    streaming += out[r].streaming ? 1 : 0;
    // A row does not depend on its neighbours.
    HeadProperties alone;
    predictor.predict(features.data() + std::size_t(r) * kFeatures, 1, &alone);
    EXPECT_EQ(alone.budget, out[r].budget);
    EXPECT_EQ(alone.slope, out[r].slope);
  }
  EXPECT_GT(streaming, 0);
  EXPECT_LT(streaming, kRows);
  EXPECT_EQ(predictor.parameters(), 20u * 41 + 20 + 13 * 20 + 13 + 3 * 13 + 3);
  EXPECT_EQ(predictor.flops(2), 2 * (82 + 2 * (20u * 41 + 13 * 20 + 3 * 13)));
  EXPECT_EQ(predictor.bytes(), 4 * (predictor.parameters() + 82));
  EXPECT_EQ(predictor.subject(), (Predictor::Subject{4, 8, 2, 64, 64, 256}));
  EXPECT_EQ(predictor.policy(), BudgetPolicy::output);
  EXPECT_EQ(predictor.limits().tau, 0.05);
  EXPECT_EQ(predictor.limits().mass, 0.95);
}

TEST(FluxionPredictor, SaysWhoseWeightsItWasTrainedFor) {
  const TemporaryFolder folder;
  File file = random_file();
  const auto path = folder.path() / "p.safetensors";
  write_bytes(path, bytes_of(file));
  EXPECT_EQ(Predictor::load(path).weights_hash(), "");
  file["weights"] = {{2}, {18, -2}, "I32"};  // as 32 bits each
  write_bytes(path, bytes_of(file));
  EXPECT_EQ(Predictor::load(path).weights_hash(), "00000012fffffffe");
}

TEST(FluxionPredictor, WhatOverflowsNeedsEverything) {
  const TemporaryFolder folder;
  File file = random_file();
  for (float& x : file["trunk.1.weight"].values) x *= 1e38f;
  for (float& x : file["heads.weight"].values) x *= 1e10f;
  write_bytes(folder.path() / "p.safetensors", bytes_of(file));
  const Predictor predictor = Predictor::load(folder.path() / "p.safetensors");
  const std::vector<float> features(kFeatures, 2);
  HeadProperties out{0, 0.5f, true};
  predictor.predict(features.data(), 1, &out);
  EXPECT_EQ(out.budget, 1);
  EXPECT_EQ(out.slope, 0);
  EXPECT_FALSE(out.streaming);
}

struct Damage {
  std::function<void(File&)> apply;
  const char* says;
};
class BadPredictor : public ::testing::TestWithParam<Damage> {};
INSTANTIATE_TEST_SUITE_P(
    Sentences, BadPredictor,
    ::testing::Values(
        Damage{[](File& f) { f.erase("feature.mean"); }, "needs the tensor 'feature.mean', which is missing"},
        Damage{[](File& f) { f.erase("trunk.0.bias"); }, "needs the tensor 'trunk.0.bias', which is missing"},
        Damage{[](File& f) { f.erase("model"); }, "needs the tensor 'model', which is missing"},
        Damage{[](File& f) { f["model"].dtype = "F32"; }, "tensor 'model' is F32 where I32 is needed"},
        Damage{[](File& f) {
                 f["model"] = {{2}, {4, 8}, "I32"};
               },
               "tensor 'model' has 2 numbers where 7 are needed"},
        Damage{[](File& f) { f["model"].values[2] = 3; },
               "tensor 'model' says 4, 8, 3, 64, 64, 256, which is no model's"},
        Damage{[](File& f) { f["model"].values[2] = 0; }, "tensor 'model' says 4, 8, 0, 64, 64, 256"},
        Damage{[](File& f) { f["model"].values[6] = 3; }, "ends with the budget rule 3 where a number from 0 to 2"},
        Damage{[](File& f) {
                 f["weights"] = {{1}, {4}, "I32"};
               },
               "tensor 'weights' has 1 numbers where 2 are needed"},
        Damage{[](File& f) { f.erase("limits"); }, "needs the tensor 'limits', which is missing"},
        Damage{[](File& f) { f["limits"].values[0] = 1.5f; },
               "'limits' is [1.5, 0.95] where two numbers between 0 and 1"},
        Damage{[](File& f) { f["feature.std"].values[7] = 0; }, "'feature.std' has the value 0 where a positive one"},
        Damage{[](File& f) { f["heads.bias"].values[0] = NAN; },
               "'heads.bias' has a value that is not a finite number"},
        Damage{[](File& f) {
                 f["feature.mean"] = {{2}, {1, 1}};
               },
               "'feature.mean' has the shape [2] where [41] is needed"},
        Damage{[](File& f) { std::swap(f["trunk.0.weight"].shape[0], f["trunk.0.weight"].shape[1]); },
               "'trunk.0.weight' has the shape [41, 20] where [1 to 65536, 41] is needed"},
        Damage{[](File& f) { f.erase("trunk.1.weight"); },
               "'heads.weight' has the shape [3, 13] where [3, 20] is needed"},
        Damage{[](File& f) {
                 f["trunk.3.bias"] = {{1}, {0}};
               },
               "the tensor 'trunk.3.bias' is no part of a Fluxion predictor"},
        Damage{[](File& f) {
                 f["heads.weight"] = {{0, 13}, {}};
               },
               "'heads.weight' has the shape [0, 13]"},
        Damage{[](File& f) {
                 f["trunk.0.weight"] = {{0, 41}, {}};
               },
               "'trunk.0.weight' has the shape [0, 41]"}));

TEST_P(BadPredictor, IsNamed) {
  const TemporaryFolder folder;
  File file = random_file();
  GetParam().apply(file);
  const auto path = folder.path() / "bad.safetensors";
  write_bytes(path, bytes_of(file));
  try {
    Predictor::load(path);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::StartsWith(path.string()), HasSubstr(GetParam().says)));
  }
}

// Rows of held-out prompts and what PyTorch says of them (train.py --vector).
TEST(EmbeddedPredictor, SaysWhatPyTorchSays) {
  const Json vector = parse_json(read_bytes(source_folder() / "tests/methods/fluxion/predictor.json"), "JSON");
  const auto rows = vector.at("features").get<std::vector<std::vector<float>>>();
  const auto expected = vector.at("outputs").get<std::vector<std::vector<double>>>();
  ASSERT_GE(rows.size(), 10u);
  const auto predictor = Predictor::shipped("embedded", BudgetPolicy::fluxion);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    ASSERT_EQ(rows[r].size(), std::size_t{kFeatures});
    HeadProperties out;
    predictor->predict(rows[r].data(), 1, &out);
    EXPECT_NEAR(out.budget, expected[r][0], 1e-5) << r;
    EXPECT_NEAR(out.slope, expected[r][1], 1e-5) << r;
    EXPECT_GT(std::abs(expected[r][2]), 1e-3) << "too near to tell";
    EXPECT_EQ(out.streaming, expected[r][2] > 0) << r;
  }
}

TEST(ShippedPredictors, AreOfThePapersSizeUnderEveryPolicyAndOfTheirModel) {
  EXPECT_THAT(Predictor::shipped_models(), ::testing::ElementsAre("embedded", "deep", "seed"));
  for (const std::string& name : Predictor::shipped_models()) {
    const Model model = load_model(name);
    for (const BudgetPolicy policy : {BudgetPolicy::fluxion, BudgetPolicy::output, BudgetPolicy::score}) {
      SCOPED_TRACE(fmt::format("{} {}", name, kBudgetPolicyNames[static_cast<std::size_t>(policy)]));
      const std::shared_ptr<const Predictor> predictor = Predictor::shipped(name, policy);
      EXPECT_EQ(predictor, Predictor::shipped(name, policy)) << "read twice";
      EXPECT_EQ(predictor->parameters(), 111699u);  // 0.112 M
      EXPECT_LT(predictor->bytes(), 500000u);
      const std::filesystem::path file =
          model.folder / "fluxion" / kBudgetPolicyNames[static_cast<std::size_t>(policy)];
      EXPECT_LE(std::filesystem::file_size(file.string() + ".safetensors"), 500000u);
      // Layer and head numbers are features: of another model, or of a later one, it would know nothing.
      EXPECT_EQ(parse_json(read_bytes(file.string() + ".json"), "JSON").at("weights_hash"), model.weights_hash);
      EXPECT_EQ(predictor->subject(), (Predictor::Subject{model.config.layers, 8, 2, 64, 64, 256}));
      EXPECT_EQ(predictor->policy(), policy);
    }
  }
}

TEST(FluxionPredictor, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_THROW(Predictor::load(folder.path() / "none.safetensors"), InputError);
  EXPECT_THROW(Predictor::load(folder.path()), InputError);
}

}  // namespace
}  // namespace tandem::testing
