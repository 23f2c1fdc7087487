#include "methods/fluxion/predictor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <set>

#include "engine/common/error.h"
#include "engine/common/mapped_file.h"
#include "engine/common/paths.h"
#include "engine/model/model.h"
#include "engine/model/safetensors.h"

namespace tandem {
namespace {

constexpr std::uint64_t kMaxWidth = 65536;

/// The tensors of a file, each asked for once.
class Tensors {
 public:
  explicit Tensors(const std::filesystem::path& file) : files_(TensorFiles::open_file(file)) {}

  bool has(const std::string& name) const { return files_.tensors().contains(name); }

  const TensorInfo& get(const std::string& name, const char* dtype) {
    const auto found = files_.tensors().find(name);
    if (found == files_.tensors().end())
      throw_input_error("{}: a Fluxion predictor needs the tensor '{}', which is missing.", files_.source(), name);
    if (found->second.dtype != dtype)
      throw_input_error("{}: tensor '{}' is {} where {} is needed.", files_.source(), name, found->second.dtype, dtype);
    seen_.insert(name);
    return found->second;
  }

  /// `in` == 0: a vector of `out`; `out` == 0: as many as there are, at least 1.
  std::vector<float> floats(const std::string& name, std::uint64_t out, std::uint64_t in) {
    const TensorInfo& info = get(name, "F32");
    const std::size_t dims = in == 0 ? 1 : 2;
    const bool fits = info.shape.size() == dims && (in == 0 || info.shape[1] == in) &&
                      (out == 0 ? info.shape[0] >= 1 && info.shape[0] <= kMaxWidth : info.shape[0] == out);
    if (!fits) {
      const std::string rows = out == 0 ? fmt::format("1 to {}", kMaxWidth) : std::to_string(out);
      throw_input_error("{}: tensor '{}' has the shape [{}] where [{}{}] is needed.", files_.source(), name,
                        fmt::join(info.shape, ", "), rows, in == 0 ? "" : fmt::format(", {}", in));
    }
    std::vector<float> values(info.bytes.size() / sizeof(float));
    std::memcpy(values.data(), info.bytes.data(), info.bytes.size());
    for (const float x : values) {
      if (!std::isfinite(x))
        throw_input_error("{}: tensor '{}' has a value that is not a finite number.", files_.source(), name);
    }
    return values;
  }

  void finish() const {
    for (const auto& [name, info] : files_.tensors()) {
      if (!seen_.contains(name))
        throw_input_error("{}: the tensor '{}' is no part of a Fluxion predictor.", files_.source(), name);
    }
    MappedFile::check_all();
  }
  const std::string& source() const { return files_.source(); }
  std::uint64_t hash() const { return files_.hash(); }

 private:
  TensorFiles files_;
  std::set<std::string> seen_;
};

struct Training {
  Predictor::Subject subject;
  BudgetPolicy policy;
};

Training read_training(Tensors& tensors) {
  const TensorInfo& info = tensors.get("model", "I32");
  std::array<std::int32_t, 7> n{};
  if (info.bytes.size() != sizeof n)
    throw_input_error("{}: tensor 'model' has {} numbers where 7 are needed.", tensors.source(), info.bytes.size() / 4);
  std::memcpy(n.data(), info.bytes.data(), sizeof n);
  if (std::any_of(n.begin(), n.begin() + 4, [](std::int32_t x) { return x < 1; }) || n[4] < 0 || n[5] < 0 ||
      n[1] % n[2] != 0) {
    throw_input_error(
        "{}: tensor 'model' says {}, which is no model's layers, heads, KV heads, head dim, sinks, window.",
        tensors.source(), fmt::join(n.begin(), n.end() - 1, ", "));
  }
  if (n[6] < 0 || n[6] >= static_cast<std::int32_t>(kBudgetPolicies)) {
    throw_input_error("{}: tensor 'model' ends with the budget rule {} where a number from 0 to {} ({}) is needed.",
                      tensors.source(), n[6], kBudgetPolicies - 1, fmt::join(kBudgetPolicyNames, ", "));
  }
  const auto u = [](std::int32_t x) { return static_cast<std::uint32_t>(x); };
  return {{u(n[0]), u(n[1]), u(n[2]), u(n[3]), u(n[4]), u(n[5])}, static_cast<BudgetPolicy>(n[6])};
}

/// Empty where the file has none.
std::string read_weights_hash(Tensors& tensors) {
  if (!tensors.has("weights")) return "";
  const TensorInfo& info = tensors.get("weights", "I32");
  std::array<std::uint32_t, 2> digits{};
  if (info.bytes.size() != sizeof digits) {
    throw_input_error("{}: tensor 'weights' has {} numbers where 2 are needed.", tensors.source(),
                      info.bytes.size() / 4);
  }
  std::memcpy(digits.data(), info.bytes.data(), sizeof digits);
  return fmt::format("{:08x}{:08x}", digits[0], digits[1]);
}

/// The decimal number that an f32 stands for: 0.1, where the f32 is 0.100000001.
double round_off(float x) {
  return std::round(double{x} * 1e6) / 1e6;
}

std::string file_name(BudgetPolicy policy) {
  return fmt::format("{}.safetensors", kBudgetPolicyNames[static_cast<std::size_t>(policy)]);
}

std::filesystem::path file_of(const std::string& heads, BudgetPolicy policy) {
  std::filesystem::path path = heads;
  if (const char* home = std::getenv("HOME"); home != nullptr && heads.starts_with("~/"))
    path = std::filesystem::path(home) / heads.substr(2);
  std::error_code refused;
  if (!std::filesystem::is_directory(path, refused)) return path;
  const std::string name = file_name(policy);
  for (std::filesystem::path file : {path / "fluxion" / name, path / name}) {
    if (std::filesystem::exists(file, refused)) return file;
  }
  throw_input_error(
      "Method fluxion, option 'heads': the folder '{}' has no predictor: neither {} nor fluxion/{}. Train one "
      "(docs/train_a_predictor.md), or name its file.",
      heads, name, name);
}

}  // namespace

Predictor Predictor::load(const std::filesystem::path& file) {
  Tensors tensors(file);
  Predictor p;
  const Training training = read_training(tensors);
  p.subject_ = training.subject;
  p.policy_ = training.policy;
  p.weights_hash_ = read_weights_hash(tensors);
  const std::vector<float> limits = tensors.floats("limits", 2, 0);
  p.limits_ = {round_off(limits[0]), round_off(limits[1])};
  if (!(p.limits_.tau > 0 && p.limits_.tau < 1 && p.limits_.mass > 0 && p.limits_.mass < 1)) {
    throw_input_error("{}: tensor 'limits' is [{}, {}] where two numbers between 0 and 1 are needed.", file.string(),
                      limits[0], limits[1]);
  }
  p.mean_ = tensors.floats("feature.mean", kFeatures, 0);
  p.scale_ = tensors.floats("feature.std", kFeatures, 0);
  for (float& x : p.scale_) {
    // Smaller ones have no finite inverse.
    if (!(x >= 1e-30f))
      throw_input_error("{}: tensor 'feature.std' has the value {} where a positive one is needed.", file.string(), x);
    x = 1 / x;
  }
  std::uint32_t in = kFeatures;
  const auto add = [&](const std::string& name, std::uint64_t out) {
    Layer layer;
    layer.in = in;
    layer.weight = tensors.floats(name + ".weight", out, in);
    layer.out = static_cast<std::uint32_t>(layer.weight.size() / in);
    layer.bias = tensors.floats(name + ".bias", layer.out, 0);
    in = layer.out;
    p.layers_.push_back(std::move(layer));
  };
  for (std::size_t i = 0; tensors.has(fmt::format("trunk.{}.weight", i)); ++i) add(fmt::format("trunk.{}", i), 0);
  add("heads", kHeadOutputs);
  tensors.finish();
  p.hash_ = tensors.hash();
  return p;
}

std::vector<std::string> Predictor::shipped_models() {
  std::vector<std::string> models;
  for (const auto& entry : std::filesystem::directory_iterator(data_path("models"))) {
    std::error_code refused;
    if (std::filesystem::is_directory(entry.path() / "fluxion", refused))
      models.push_back(entry.path().filename().string());
  }
  std::sort(models.begin(), models.end());
  models.insert(models.begin(), "embedded");
  return models;
}

std::shared_ptr<const Predictor> Predictor::find(const std::string& heads, BudgetPolicy policy) {
  std::vector<std::string> known = shipped_models();
  if (std::find(known.begin(), known.end(), heads) != known.end()) return shipped(heads, policy);
  const std::filesystem::path file = file_of(heads, policy);
  std::error_code refused;
  if (std::filesystem::exists(file, refused)) return std::make_shared<const Predictor>(load(file));
  const std::string models = join_names(known);
  known.insert(known.end(), {"fixed", "oracle", "published"});
  throw_input_error(
      "Method fluxion, option 'heads': there is no file '{}'. Give fixed, oracle, published, a predictor's file or "
      "folder (its path without commas), or a model whose predictor ships with Tandem: {}.{}",
      heads, models, did_you_mean(heads, known));
}

std::shared_ptr<const Predictor> Predictor::shipped(const std::string& model, BudgetPolicy policy) {
  static std::mutex mutex;
  static std::map<std::filesystem::path, std::shared_ptr<const Predictor>> loaded;
  const std::filesystem::path folder = data_path("models") / (model == "embedded" ? kEmbeddedModel : model) / "fluxion";
  const std::filesystem::path file = folder / file_name(policy);
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Predictor>& predictor = loaded[file];
  if (!predictor) predictor = std::make_shared<const Predictor>(load(file));
  return predictor;
}

HeadNetwork Predictor::network(std::vector<NetworkLayer>& layers) const {
  layers.clear();
  layers.reserve(layers_.size());
  std::uint32_t widest = kFeatures;
  for (const Layer& layer : layers_) {
    layers.push_back({layer.weight.data(), layer.bias.data(), layer.in, layer.out});
    widest = std::max(widest, layer.out);
  }
  return {mean_.data(), scale_.data(), layers.data(), static_cast<std::uint32_t>(layers.size()), kFeatures, widest};
}

void Predictor::predict(const float* features, int n, HeadProperties* out) const {
  std::vector<NetworkLayer> layers;
  const HeadNetwork network = this->network(layers);
  std::vector<float> said(static_cast<std::size_t>(n) * kHeadOutputs);
  predict_heads(network, features, static_cast<std::uint32_t>(n), said.data());
  for (const float* head = said.data(); head != said.data() + said.size(); head += kHeadOutputs)
    *out++ = {head[0], head[1], head[2] != 0};
}

std::uint64_t Predictor::parameters() const {
  std::uint64_t count = 0;
  for (const Layer& layer : layers_) count += layer.weight.size() + layer.bias.size();
  return count;
}

std::uint64_t Predictor::flops(int n) const {
  std::uint64_t count = 2 * kFeatures;
  for (const Layer& layer : layers_) count += 2 * layer.weight.size();
  return count * static_cast<std::uint64_t>(n);
}

std::uint64_t Predictor::bytes() const {
  return (parameters() + 2 * kFeatures) * sizeof(float);
}

}  // namespace tandem
