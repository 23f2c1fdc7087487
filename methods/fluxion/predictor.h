// Fluxion's head-property predictor (Fluxion section 5.2): a small network that says from the 41 features of a query
// head how much of the host's KV it needs. 41 -> trunk of ReLU layers -> budget, slope and the logit of streaming.
//
// A predictor file is safetensors, F32 but for `model` and `weights`, trained by methods/fluxion/train.py:
//   feature.mean, feature.std [41]       normalisation: (x - mean) / std, cut at +-10 so that a context unlike any in
//                                        the training set cannot lead anywhere
//   trunk.<i>.weight [out, in], trunk.<i>.bias [out]   i = 0, 1, ...; the first `in` is 41; ReLU after each
//   heads.weight [3, in], heads.bias [3]               rows: budget, slope, streaming
//   model (I32) [7]                      layers, query heads, KV heads, head dim, sinks, window that it was trained
//                                        for, and the budget rule: 0 fluxion, 1 output, 2 score
//   weights (I32) [2]                    the 16 hexadecimal digits of that model's weights_hash, the upper eight first;
//                                        may be missing: of which weights is not known then
//   limits (F32) [2]                     tau and the share of the attention (BudgetLimits) of its labels
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/kernels/head_network.h"
#include "methods/fluxion/labels.h"
#include "methods/fluxion/properties.h"

namespace tandem {

class Predictor {
 public:
  /// What the training data came from. Layer and head numbers are features: a predictor serves one model.
  struct Subject {
    std::uint32_t layers = 0, q_heads = 0, kv_heads = 0, head_dim = 0;
    std::uint32_t sinks = 0, window = 0;  // tokens on the device
    bool operator==(const Subject&) const = default;
  };

  /// InputError naming file, tensor and what is wrong with it.
  static Predictor load(const std::filesystem::path& file);
  /// Shipped models that have predictors (models/<name>/fluxion), one for each budget policy: "embedded", which stands
  /// for one of the others, then these by name.
  static std::vector<std::string> shipped_models();
  /// What `heads` names: a shipped model's, or else a file's, or of a folder the policy's: that of its folder fluxion,
  /// where a model has its predictors, or its own. "~/", which shells leave as it is behind "heads=", is the home
  /// folder. A bare name that is both is the shipped one, as with models. InputError where there is none.
  static std::shared_ptr<const Predictor> find(const std::string& heads, BudgetPolicy policy);
  /// That of one of the shipped models. Loaded at first use.
  static std::shared_ptr<const Predictor> shipped(const std::string& model, BudgetPolicy policy);

  /// Budget and slope are the network's and may leave [0, 1]; who turns them into a number of blocks clamps. A row
  /// whose budget or slope is not finite is one that needs everything. The bits of a row depend on its features alone.
  /// Any thread may call.
  void predict(const float* features /*[n][kFeatures], as features() writes them*/, int n, HeadProperties* out) const;

  /// The network in this object's memory; `layers` is room for what it refers to.
  HeadNetwork network(std::vector<NetworkLayer>& layers) const;

  const Subject& subject() const { return subject_; }
  /// Whose labels it learnt: the features of the prefill follow the same rule.
  BudgetPolicy policy() const { return policy_; }
  const BudgetLimits& limits() const { return limits_; }
  std::uint64_t hash() const { return hash_; }  // over the file's bytes
  /// Model::weights_hash of the model that it was trained for; empty where the file does not say.
  const std::string& weights_hash() const { return weights_hash_; }
  std::uint64_t parameters() const;  // of the network: weights and biases
  std::uint64_t flops(int n) const;  // of a call
  std::uint64_t bytes() const;       // of weights, biases and normalisation, as a device would read them

 private:
  struct Layer {
    std::uint32_t in = 0, out = 0;
    std::vector<float> weight, bias;  // [out][in], [out]
  };
  std::vector<float> mean_, scale_;  // [kFeatures]; scale: 1 / std
  std::vector<Layer> layers_;        // the trunk, then the heads
  Subject subject_;
  BudgetPolicy policy_ = BudgetPolicy::fluxion;
  BudgetLimits limits_;
  std::uint64_t hash_ = 0;
  std::string weights_hash_;
};

}  // namespace tandem
