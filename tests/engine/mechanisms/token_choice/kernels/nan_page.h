// A page with infinities and NaN, for tests of what chooses single tokens.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "engine/kernels/attention_span.h"
#include "engine/kernels/convert.h"

namespace tandem {

/// Ten tokens of one KV head with two query heads, (1, 0 ...) and (1, 1, 0 ...): token t's key is (t, 0 ...), but for
/// token 3, whose scores are NaN and infinity, and token 7, whose scores are NaN.
struct NanPage {
  explicit NanPage(std::uint32_t dim, DType type = DType::f32) : shape{2, dim, type}, q(2 * dim) {
    q[0] = q[dim] = q[dim + 1] = 1;
    std::vector<float> values(32 * dim);
    for (std::uint32_t t = 0; t < 16; ++t) values[t * dim] = static_cast<float>(t);
    for (std::uint32_t i = 0; i < 16 * dim; ++i) values[16 * dim + i] = static_cast<float>(i % 200);
    values[3 * dim + 1] = std::numeric_limits<float>::infinity();
    values[7 * dim] = std::nanf("");
    page.resize(values.size() * size_of(type));
    from_f32(values.data(), type, values.size(), page.data());
  }
  std::vector<KvSpan> spans() const { return {{page.data(), page.data() + page.size() / 2, 10, ~0u}}; }
  AttentionShape shape;
  std::vector<char> page;
  std::vector<float> q;
};

}  // namespace tandem
