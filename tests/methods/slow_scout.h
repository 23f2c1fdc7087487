// ScoutAttention's rules in double precision, on top of SlowModel: which blocks are resident, chosen and recalled, what
// each side attends with which query.
#pragma once

#include <algorithm>
#include <cmath>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/runtime/slow_model.h"

namespace tandem::testing {

struct ScoutRule {
  std::uint32_t prompt, steps;
  std::uint32_t budget, block, sinks, recall;
  bool per_head = false, selected = false, own_norm = false, layer0_resident = false, not_ahead = false;
  std::uint32_t true_layers = 1;
  bool mean = false;

  std::string spec() const {
    const auto number = [](std::uint32_t n) { return std::to_string(n); };
    return "scoutattention:budget=" + number(budget) + ",block=" + number(block) + ",sinks=" + number(sinks) +
           ",recall=" + number(recall) + ",scope=" + (per_head ? "kv_head" : "layer") +
           ",device_scope=" + (selected ? "selected" : "resident") + ",pred_norm=" + (own_norm ? "own" : "next") +
           ",layer0=" + (layer0_resident ? "resident" : "true_query") + ",ahead=" + (not_ahead ? "none" : "next") +
           ",true_layers=" + number(true_layers) + ",digest=" + (mean ? "mean" : "bounds");
  }
  std::uint32_t slots() const { return (budget - sinks) / block - 1; }
};

inline void PrintTo(const ScoutRule& rule, std::ostream* out) {
  *out << rule.spec() << ", " << rule.prompt << " tokens";
}

/// The whole model under the rule, token by token, on top of SlowModel's formulas: attention of two queries over two
/// sets of tokens is not a set of visible tokens, so it computes the layers itself.
class SlowScout {
  using Vector = SlowModel::Vector;
  using Keys = std::vector<std::vector<Vector>>;  // [kv head][token]

 public:
  SlowScout(const Model& model, const ScoutRule& rule)
      : model_(model),
        rule_(rule),
        c_(model.config),
        slow_(model),
        resident_(c_.layers),
        keys_(c_.layers),
        values_(c_.layers) {}

  /// A token of a prompt: attends to everything.
  void prefill(std::int32_t token) {
    slow_.step(token, {},
               [&](std::uint32_t layer, const Vector&, const Vector& q, const Keys& keys, const Keys& values) {
                 keys_[layer] = keys;
                 values_[layer] = values;
                 if (layer == 0) last_query_.clear();
                 last_query_.push_back(q);
               });
    ++tokens_;
  }
  /// The context is complete: residents by the last query.
  void place() {
    for (std::uint32_t layer = 0; layer < c_.layers; ++layer) {
      candidates_ = filled();
      resident_[layer] = choose(layer, last_query_[layer]);
    }
  }

  /// What layer l attends in this step, called while SlowModel runs the step.
  Vector step(std::int32_t token) {
    candidates_ = filled();
    on_host = on_device = 0;
    Vector previous_x;
    ++tokens_;
    slow_.attention = [&](std::uint32_t layer, const Vector& x, const Vector& q, const Keys& keys, const Keys& values) {
      keys_[layer] = keys;
      values_[layer] = values;
      Vector predicted = q;
      if (layer >= rule_.true_layers && !rule_.not_ahead) {
        const MatrixView& norm = model_.weights.layers[rule_.own_norm ? layer - 1 : layer].input_norm;
        predicted = slow_.query(layer, previous_x, norm);
      }
      previous_x = x;
      return attend(layer, q, predicted);
    };
    const Vector logits = slow_.step(token);
    slow_.attention = {};
    ++steps_;
    return logits;
  }

  double closest = INFINITY;                 // of two scores where a choice was made, relative
  std::uint64_t on_host = 0, on_device = 0;  // tokens attended in the last step, summed over layers and KV heads
  std::uint64_t recalled = 0, missed = 0;    // blocks

 private:
  using Lists = std::vector<std::vector<std::uint32_t>>;  // [list] ascending

  std::uint32_t group() const { return c_.q_heads / c_.kv_heads; }
  std::uint32_t filled() const {
    return tokens_ / rule_.block * rule_.block <= rule_.sinks ? 0 : tokens_ / rule_.block - rule_.sinks / rule_.block;
  }
  double bound(std::uint32_t layer, const Vector& q, std::uint32_t head, std::uint32_t b) const {
    const std::vector<Vector>& keys = keys_[layer][head / group()];
    double sum = 0;
    for (std::uint32_t d = 0; d < c_.head_dim; ++d) {
      double best = -INFINITY, mean = 0;
      for (std::uint32_t t = 0; t < rule_.block; ++t) {
        const double product = q[head * c_.head_dim + d] * keys[rule_.sinks + b * rule_.block + t][d];
        best = std::max(best, product);
        mean += product / rule_.block;
      }
      sum += rule_.mean ? mean : best;
    }
    return sum;
  }
  Lists choose(std::uint32_t layer, const Vector& q) {
    Lists lists(rule_.per_head ? c_.kv_heads : 1);
    for (std::uint32_t list = 0; list < lists.size(); ++list) {
      std::vector<std::pair<double, std::uint32_t>> order;
      for (std::uint32_t b = 0; b < candidates_; ++b) {
        double score = rule_.per_head ? -INFINITY : 0;
        for (std::uint32_t h = 0; h < c_.q_heads; ++h) {
          if (!rule_.per_head) score += bound(layer, q, h, b);
          if (rule_.per_head && h / group() == list) score = std::max(score, bound(layer, q, h, b));
        }
        order.emplace_back(-score, b);
      }
      std::sort(order.begin(), order.end());
      const std::size_t keep = std::min<std::size_t>(rule_.slots(), order.size());
      if (keep < order.size()) {
        const double edge = order[keep - 1].first, next = order[keep].first;
        closest = std::min(closest, std::abs(edge - next) / std::max(std::abs(edge), 1e-9));
      }
      for (std::size_t i = 0; i < keep; ++i) lists[list].push_back(order[i].second);
      std::sort(lists[list].begin(), lists[list].end());
    }
    return lists;
  }

  Vector attend(std::uint32_t layer, const Vector& q, const Vector& predicted) {
    const bool open = candidates_ > rule_.slots();
    if (!open) {  // every block is resident, those that filled up since too
      resident_[layer].assign(rule_.per_head ? c_.kv_heads : 1, {});
      for (auto& list : resident_[layer]) {
        for (std::uint32_t b = 0; b < candidates_; ++b) list.push_back(b);
      }
    }
    const Lists chosen = choose(layer, predicted), before = resident_[layer];
    const bool host = layer > 0 || !rule_.layer0_resident;
    Vector out(std::size_t{c_.q_heads} * c_.head_dim);
    for (std::uint32_t g = 0; g < c_.kv_heads; ++g) {
      const std::uint32_t list = rule_.per_head ? g : 0;
      const std::set<std::uint32_t> resident(before[list].begin(), before[list].end());
      const std::set<std::uint32_t> wanted(chosen[list].begin(), chosen[list].end());
      std::vector<std::uint32_t> device, missing;
      const std::uint32_t newest = (tokens_ - 1) / rule_.block * rule_.block;
      for (std::uint32_t t = 0; t < tokens_; ++t) {
        if (t < rule_.sinks || t >= newest) {
          device.push_back(t);
          continue;
        }
        const std::uint32_t b = (t - rule_.sinks) / rule_.block;
        if (resident.contains(b)) {
          if (!rule_.selected || !host || wanted.contains(b)) device.push_back(t);
        } else if (host && wanted.contains(b)) {
          missing.push_back(t);
        }
      }
      on_device += device.size();
      on_host += missing.size();
      for (std::uint32_t h = g * group(); h < (g + 1) * group(); ++h)
        merge(layer, h, q, device, predicted, missing, out);
    }
    for (std::uint32_t list = 0; list < chosen.size(); ++list) {
      std::vector<std::uint32_t> gone;
      std::set_difference(chosen[list].begin(), chosen[list].end(), before[list].begin(), before[list].end(),
                          std::back_inserter(gone));
      missed += gone.size();
      if (rule_.recall == 0 || (steps_ + 1 + layer) % rule_.recall != 0 || !open) continue;
      recalled += gone.size();
      resident_[layer][list] = chosen[list];
    }
    return out;
  }

  /// One softmax over both sets: what merging two partial results comes to.
  void merge(std::uint32_t layer, std::uint32_t h, const Vector& q, const std::vector<std::uint32_t>& device,
             const Vector& predicted, const std::vector<std::uint32_t>& host, Vector& out) const {
    Vector score;
    std::vector<std::uint32_t> tokens = device;
    tokens.insert(tokens.end(), host.begin(), host.end());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const Vector& query = i < device.size() ? q : predicted;
      double s = 0;
      for (std::uint32_t d = 0; d < c_.head_dim; ++d)
        s += query[h * c_.head_dim + d] * keys_[layer][h / group()][tokens[i]][d];
      score.push_back(s / std::sqrt(double(c_.head_dim)));
    }
    const double top = *std::max_element(score.begin(), score.end());
    double sum = 0;
    for (double& s : score) sum += s = std::exp(s - top);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      for (std::uint32_t d = 0; d < c_.head_dim; ++d)
        out[h * c_.head_dim + d] += score[i] / sum * values_[layer][h / group()][tokens[i]][d];
    }
  }

  const Model& model_;
  ScoutRule rule_;
  const ModelConfig& c_;
  SlowModel slow_;
  std::uint32_t tokens_ = 0, steps_ = 0, candidates_ = 0;
  std::vector<Lists> resident_;  // [layer]
  std::vector<Vector> last_query_;
  std::vector<Keys> keys_, values_;  // [layer]
};

}  // namespace tandem::testing
