// An independent oracle for the engine: the whole model in double precision, one token at a time, no pages, no kernels,
// no partial results. Which tokens a query head attends in a decode step is a callback, so that methods can be modelled
// too.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "engine/kernels/convert.h"
#include "engine/model/model.h"

namespace tandem::testing {

inline double stored_value(const MatrixView& m, std::size_t i) {
  if (m.type == DType::f32) {
    float f;
    std::memcpy(&f, static_cast<const char*>(m.data) + i * 4, 4);
    return f;
  }
  std::uint16_t h;
  std::memcpy(&h, static_cast<const char*>(m.data) + i * 2, 2);
  const std::uint32_t bits = std::uint32_t{h} << 16;  // bf16; the tests use no f16
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

/// Adds to head h of `out` [head][dim] its attention over `tokens` of its KV head.
inline void attend_tokens(std::uint32_t dim, std::uint32_t h, const std::vector<double>& q /*[head][dim]*/,
                          const std::vector<std::vector<double>>& keys, const std::vector<std::vector<double>>& values,
                          const std::vector<std::uint32_t>& tokens, std::vector<double>& out) {
  std::vector<double> score;
  for (const std::uint32_t t : tokens) {
    double s = 0;
    for (std::uint32_t d = 0; d < dim; ++d) s += q[h * dim + d] * keys[t][d];
    score.push_back(s / std::sqrt(double(dim)));
  }
  const double top = *std::max_element(score.begin(), score.end());
  double sum = 0;
  for (double& s : score) sum += s = std::exp(s - top);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    for (std::uint32_t d = 0; d < dim; ++d) out[h * dim + d] += score[i] / sum * values[tokens[i]][d];
}

class SlowModel {
 public:
  using Vector = std::vector<double>;
  /// Keys of the KV head so far, roped, own token included -> for each, whether this query head attends it.
  using Visible = std::function<std::vector<bool>(std::uint32_t layer, std::uint32_t q_head, const Vector& q,
                                                  const std::vector<Vector>& keys)>;

  /// What a layer computed for this token: its input, its roped query [Hq * D], and keys and values so far by KV head.
  using Look =
      std::function<void(std::uint32_t layer, const Vector& x, const Vector& q,
                         const std::vector<std::vector<Vector>>& keys, const std::vector<std::vector<Vector>>& values)>;

  /// What a layer's attention gives [Hq * D], where no set of visible tokens says it.
  using Attention = std::function<Vector(std::uint32_t layer, const Vector& x, const Vector& q,
                                         const std::vector<std::vector<Vector>>& keys,
                                         const std::vector<std::vector<Vector>>& values)>;
  Attention attention;

  explicit SlowModel(const Model& model) : model_(model), keys_(cache()), values_(cache()) {}

  /// What an engine of this precision rounds: K and V, and with bf16 the query.
  DType precision = DType::f32;
  /// And what prefill with bf16 rounds: the inputs of products with weights.
  bool rounds_inputs = false;

  /// Logits after this token. No `visible`: all tokens.
  Vector step(std::int32_t token, const Visible& visible = {}, const Look& look = {}) {
    const ModelConfig& c = model_.config;
    const ModelWeights& w = model_.weights;
    Vector x(c.hidden);
    for (std::uint32_t i = 0; i < c.hidden; ++i) x[i] = stored_value(w.embedding, std::size_t(token) * c.hidden + i);
    for (std::uint32_t layer = 0; layer < c.layers; ++layer) {
      const LayerWeights& l = w.layers[layer];
      const Vector normed = norm(x, 0, c.hidden, l.input_norm);
      const Vector q = query(layer, x, l.input_norm);
      Vector k = times(l.k, normed), v = times(l.v, normed);
      if (c.qkv_bias) {
        for (std::size_t i = 0; i < k.size(); ++i) k[i] += stored_value(l.k_bias, i);
        for (std::size_t i = 0; i < v.size(); ++i) v[i] += stored_value(l.v_bias, i);
      }
      prepare(k, c.kv_heads, l.k_norm);
      round(k, precision);
      round(v, precision);
      Vector attended(std::size_t{c.q_heads} * c.head_dim);
      for (std::uint32_t g = 0; g < c.kv_heads; ++g) {
        keys_[layer][g].emplace_back(k.begin() + g * c.head_dim, k.begin() + (g + 1) * c.head_dim);
        values_[layer][g].emplace_back(v.begin() + g * c.head_dim, v.begin() + (g + 1) * c.head_dim);
      }
      if (look) look(layer, x, q, keys_[layer], values_[layer]);
      if (attention) {
        attended = attention(layer, x, q, keys_[layer], values_[layer]);
      } else {
        for (std::uint32_t h = 0; h < c.q_heads; ++h) attend(layer, h, q, visible, attended);
      }
      add(x, times(l.o, attended));
      const Vector second = norm(x, 0, c.hidden, l.post_norm);
      Vector gate = times(l.gate, second);
      const Vector up = times(l.up, second);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      add(x, times(l.down, gate));
    }
    ++position_;
    return times(w.lm_head, norm(x, 0, c.hidden, w.final_norm));
  }

  /// The roped query of a layer for the input `x` under a norm, at the current token's position.
  Vector query(std::uint32_t layer, const Vector& x, const MatrixView& input_norm) const {
    const LayerWeights& l = model_.weights.layers[layer];
    Vector q = times(l.q, norm(x, 0, model_.config.hidden, input_norm));
    if (model_.config.qkv_bias) {
      for (std::size_t i = 0; i < q.size(); ++i) q[i] += stored_value(l.q_bias, i);
    }
    prepare(q, model_.config.q_heads, l.q_norm);
    if (precision == DType::bf16) round(q, precision);
    return q;
  }

 private:
  std::vector<std::vector<std::vector<Vector>>> cache() const {
    return std::vector<std::vector<std::vector<Vector>>>(model_.config.layers,
                                                         std::vector<std::vector<Vector>>(model_.config.kv_heads));
  }
  static void add(Vector& x, const Vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  static void round(Vector& x, DType type) {
    for (double& value : x) {
      float stored = static_cast<float>(value);
      if (type == DType::f16) stored = f16_to_float(float_to_f16(stored));
      if (type == DType::bf16) stored = bf16_to_float(float_to_bf16(stored));
      if (type != DType::f32) value = stored;
    }
  }
  Vector times(const MatrixView& m, Vector x) const {
    if (rounds_inputs) round(x, DType::bf16);
    Vector y(m.rows);
    for (std::uint32_t r = 0; r < m.rows; ++r) {
      for (std::uint32_t i = 0; i < m.cols; ++i) y[r] += stored_value(m, std::size_t{r} * m.cols + i) * x[i];
    }
    return y;
  }
  Vector norm(const Vector& x, std::size_t begin, std::size_t n, const MatrixView& weight) const {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += x[begin + i] * x[begin + i];
    const double scale = 1 / std::sqrt(sum / double(n) + double(model_.config.rms_eps));
    Vector y(n);
    for (std::size_t i = 0; i < n; ++i) y[i] = x[begin + i] * scale * stored_value(weight, i);
    return y;
  }
  void prepare(Vector& heads, std::uint32_t count, const MatrixView& weight) const {
    const std::uint32_t d = model_.config.head_dim;
    for (std::uint32_t h = 0; h < count; ++h) {
      if (model_.config.qk_norm) {
        const Vector n = norm(heads, h * d, d, weight);
        std::copy(n.begin(), n.end(), heads.begin() + h * d);
      }
      for (std::uint32_t i = 0; i < d / 2; ++i) {
        const double angle = position_ * std::pow(model_.config.rope.theta, -2.0 * i / d);
        const double a = heads[h * d + i], b = heads[h * d + d / 2 + i];
        heads[h * d + i] = a * std::cos(angle) - b * std::sin(angle);
        heads[h * d + d / 2 + i] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  void attend(std::uint32_t layer, std::uint32_t h, const Vector& q, const Visible& visible, Vector& out) const {
    const ModelConfig& c = model_.config;
    const std::uint32_t g = h / (c.q_heads / c.kv_heads);
    const std::vector<Vector>& keys = keys_[layer][g];
    const Vector own(q.begin() + h * c.head_dim, q.begin() + (h + 1) * c.head_dim);
    const std::vector<bool> seen = visible ? visible(layer, h, own, keys) : std::vector<bool>(keys.size(), true);
    std::vector<std::uint32_t> tokens;
    for (std::uint32_t t = 0; t < keys.size(); ++t)
      if (seen[t]) tokens.push_back(t);
    attend_tokens(c.head_dim, h, q, keys, values_[layer][g], tokens, out);
  }

  const Model& model_;
  double position_ = 0;
  std::vector<std::vector<std::vector<Vector>>> keys_, values_;  // [layer][kv head][token]
};

}  // namespace tandem::testing
