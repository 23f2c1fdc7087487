// Cases of norms, rotary embedding, activations, embedding and conversions.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <limits>

#include "engine/kernels/convert.h"
#include "engine/kernels/pointwise.h"
#include "engine/kernels/rope.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

constexpr std::size_t kPageRows = 16;

float rounded_alone(float value, DType type) {
  if (type == DType::f32) return value;
  return type == DType::bf16 ? bf16_to_float(float_to_bf16(value)) : f16_to_float(float_to_f16(value));
}

// Results rounded to a type are right to half a unit of its last place.
double tolerance_of(DType type) {
  return type == DType::f32 ? 2e-6 : type == DType::f16 ? 0x1p-11 + 2e-6 : 0x1p-8 + 2e-6;
}

KernelCase rms_norm_case(std::uint32_t n, std::uint32_t d, DType weight_type, DType y_type) {
  KernelCase one{"rms_norm",
                 fmt::format("n {}, d {}, weight {}, out {}", n, d, to_string(weight_type), to_string(y_type))};
  const std::size_t all = std::size_t{n} * d;
  one.bytes = static_cast<double>(all * (sizeof(float) + size_of(y_type)) + d * size_of(weight_type));
  one.cpu_bytes = static_cast<double>(all * 2 * sizeof(float) + d * size_of(weight_type));
  one.tolerance = tolerance_of(y_type);
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const auto x = memory.normals(all, 1);
    const auto weight = rounded(case_normals(d, 3), weight_type);
    const MatrixView norm = memory.matrix(weight, weight_type, 1, d);
    void* const y = memory.rounded_result(y_type, all);
    prepared.run = [=, &memory] {
      if (memory.cuda()) return rms_norm_cuda(x.target, norm, 1e-6f, y, y_type, n, d, memory.stream());
      rms_norm(x.target, norm, 1e-6f, static_cast<float*>(y), n, d);
    };
    prepared.expected = [=] {
      std::vector<double> expected(all);
      for (std::size_t row = 0; row < n; ++row) {
        double squares = 0;
        for (std::size_t i = row * d; i < (row + 1) * d; ++i) squares += double{x[i]} * double{x[i]};
        const double scale = 1 / std::sqrt(squares / d + 1e-6);
        for (std::size_t i = 0; i < d; ++i) expected[row * d + i] = double{x[row * d + i]} * scale * double{weight[i]};
      }
      return expected;
    };
  };
  return one;
}

KernelCase swiglu_case(std::uint32_t n, std::uint32_t d, DType type) {
  KernelCase one{"swiglu", fmt::format("n {}, d {}, out {}", n, d, to_string(type))};
  const std::size_t all = std::size_t{n} * d;
  one.bytes = static_cast<double>(all) * 8.0 + static_cast<double>(all * size_of(type));
  one.cpu_bytes = static_cast<double>(all) * 12.0;
  one.tolerance = tolerance_of(type);
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    auto both = case_normals(2 * all, 4, 3);  // rows [gate d | up d]
    const float extremes[] = {-200, -88, -1e-30f, 0, 87.5f, 200};
    for (std::size_t i = 0; i < d && i < std::size(extremes); ++i) both[i] = extremes[i];
    const auto rows = memory.input(std::move(both));
    void* const out = memory.rounded_result(type, all);
    prepared.run = [=, &memory] {
      const float* const at = rows.target;
      if (memory.cuda()) return swiglu_cuda(at, at + d, std::size_t{2} * d, out, type, n, d, memory.stream());
      for (std::size_t row = 0; row < n; ++row)
        swiglu(at + 2 * row * d, at + (2 * row + 1) * d, static_cast<float*>(out) + row * d, d);
    };
    prepared.expected = [=] {
      return generated(all, [&](std::size_t i) {
        const double gate = double{rows[i / d * 2 * d + i % d]}, up = double{rows[(i / d * 2 + 1) * d + i % d]};
        return gate / (1 + std::exp(-gate)) * up;
      });
    };
  };
  return one;
}

KernelCase convert_case(std::size_t n, DType from, DType to, std::size_t skip) {
  KernelCase one{"convert",
                 fmt::format("n {}, {} to {}, {} beyond alignment", n, to_string(from), to_string(to), skip)};
  one.bytes = static_cast<double>(n * (size_of(from) + size_of(to)));
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    auto values = case_normals(n, 7, 100);
    if (n > 4) {
      values[0] = 70000;  // infinity in f16
      values[1] = -1e-7f;
      values[2] = std::numeric_limits<float>::quiet_NaN();
      values[3] = -std::numeric_limits<float>::infinity();
    }
    const void* const in = memory.stored(values, from, skip);
    void* const out = memory.stored_result(to, n);
    float* const between = memory.cuda() ? nullptr : memory.output<float>(n);
    prepared.run = [=, &memory] {
      if (memory.cuda()) return convert_cuda(in, from, out, to, n, memory.stream());
      if (from == DType::f32) {
        from_f32(static_cast<const float*>(in), to, n, out);
      } else {
        to_f32(in, from, 0, n, to == DType::f32 ? static_cast<float*>(out) : between);
        if (to != DType::f32) from_f32(between, to, n, out);
      }
    };
    prepared.expected = [=] {  // element by element: the vectors are what is checked
      return generated(n, [&](std::size_t i) { return double{rounded_alone(rounded_alone(values[i], from), to)}; });
    };
  };
  return one;
}

KernelCase embed_case(std::uint32_t vocab, std::uint32_t hidden, std::uint32_t n, DType type) {
  KernelCase one{"embed", fmt::format("{} of {} rows of {}, {}", n, vocab, hidden, to_string(type))};
  const std::size_t all = std::size_t{n} * hidden;
  one.bytes = static_cast<double>(all * (size_of(type) + sizeof(float)));
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const std::size_t count = std::size_t{vocab} * hidden;
    const auto tokens = memory.input(generated(n, [=](std::size_t i) {
      return static_cast<std::int32_t>(static_cast<std::uint32_t>(i * 2654435761u) % vocab);
    }));
    const MatrixView table{memory.stored_normals(count, type, 8), type, vocab, hidden};
    float* const out = memory.result<float>(all);
    prepared.run = [=, &memory] {
      if (memory.cuda()) return embed_cuda(table, tokens.target, out, n, memory.stream());
      embed(table, tokens.target, out, n);
    };
    prepared.expected = [=] {
      const auto stored = rounded(case_normals(std::min(count, kNormals), 8), type);  // which the table repeats
      return generated(all, [&](std::size_t i) {
        return double{stored[(static_cast<std::size_t>(tokens[i / hidden]) * hidden + i % hidden) % stored.size()]};
      });
    };
  };
  return one;
}

// Bias, the norms of q and k, rotation, and K and V stored as a page lays them out: [kv head][K 16 x D | V 16 x D].
KernelCase qkv_case(std::uint32_t n, QkvShape shape, DType type, bool with_bias, bool with_norm, bool paged) {
  KernelCase one{"prepare_qkv", fmt::format("n {}, heads {}/{} of {}, KV {}{}{}{}", n, shape.q_heads, shape.kv_heads,
                                            shape.head_dim, to_string(type), with_bias ? ", bias" : "",
                                            with_norm ? ", QK-norm" : "", paged ? ", in pages" : "")};
  const std::size_t dim = shape.head_dim, all = std::size_t{n} * shape.columns();
  const std::size_t q_count = std::size_t{n} * shape.q_heads * dim,
                    kv_count = 2 * std::size_t{n} * shape.kv_heads * dim;
  one.bytes = static_cast<double>(4 * all + 4 * q_count + size_of(type) * kv_count);
  one.tolerance = type == DType::f32 ? 4e-6 : tolerance_of(type) + 2e-6;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const auto qkv = memory.normals(all, 9), bias = memory.normals(shape.columns(), 10);
    const auto q_norm = rounded(case_normals(dim, 11), DType::bf16), k_norm = case_normals(dim, 12);
    const RopeTable table(shape.head_dim, 1e6);
    const std::size_t row = dim * size_of(type), half = kPageRows * row, page = 2 * half * shape.kv_heads,
                      pages = n / kPageRows + 2;
    const auto tokens = memory.input(generated(n, [=](std::size_t i) {
      // Tokens fill pages from the last page on, from row 3 on.
      const std::size_t in_pages = (pages - 1 - (i + 3) / kPageRows) * page + (i + 3) % kPageRows * row;
      return QkvToken{paged ? in_pages : i * shape.kv_heads * row,
                      static_cast<std::uint32_t>(i < 2 ? i * 1048575 : 100 + 37 * i)};
    }));
    QkvWeights weights;
    weights.bias = with_bias ? bias.target : nullptr;
    if (with_norm) {
      weights.q_norm = memory.matrix(q_norm, DType::bf16, 1, shape.head_dim);
      weights.k_norm = memory.matrix(k_norm, DType::f32, 1, shape.head_dim);
    }
    weights.eps = 1e-6f;
    weights.inverse_frequency = memory.input(table.inverse_frequency).target;
    float* const q = memory.output<float>(q_count);
    // Rows that nobody writes are read back with the others, so all begin as NaN.
    const std::size_t pool_bytes = paged ? pages * page : kv_count * size_of(type);
    char* const pool = memory.input(std::vector<char>(pool_bytes, static_cast<char>(0xff))).target;
    KvPlaces kv;
    kv.type = type;
    kv.k = pool;
    kv.v = pool + (paged ? half : pool_bytes / 2);
    kv.head_stride = paged ? 2 * half : row;
    float* const work = memory.output<float>(shape.columns());
    prepared.run = [=, &memory] {
      const float* const in = qkv.target;
      if (memory.cuda()) return prepare_qkv_cuda(in, shape, weights, tokens.target, q, kv, n, memory.stream());
      const std::size_t heads = shape.q_heads + shape.kv_heads;
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < shape.columns(); ++j)
          work[j] = in[i * shape.columns() + j] + (with_bias ? bias[j] : 0.0f);
        float* const keys = work + shape.q_heads * dim;
        if (with_norm) {
          rms_norm(work, weights.q_norm, weights.eps, work, shape.q_heads, shape.head_dim);
          rms_norm(keys, weights.k_norm, weights.eps, keys, shape.kv_heads, shape.head_dim);
        }
        rope(work, &tokens[i].position, table, 1, static_cast<std::uint32_t>(heads));
        std::copy_n(work, shape.q_heads * dim, q + i * shape.q_heads * dim);
        for (std::size_t h = 0; h < shape.kv_heads; ++h) {
          const std::uint64_t offset = tokens[i].kv_offset + h * kv.head_stride;
          from_f32(keys + h * dim, type, dim, static_cast<char*>(kv.k) + offset);
          from_f32(work + (heads + h) * dim, type, dim, static_cast<char*>(kv.v) + offset);
        }
      }
    };
    prepared.result = [=, &memory] {
      auto result = memory.read(q, q_count);
      const auto bytes = memory.read(pool, pool_bytes);
      for (const void* part : {kv.k, kv.v}) {
        for (std::size_t i = 0; i < n; ++i) {
          for (std::size_t h = 0; h < shape.kv_heads; ++h) {
            const std::uint64_t offset = static_cast<std::uint64_t>(static_cast<const char*>(part) - pool) +
                                         tokens[i].kv_offset + h * kv.head_stride;
            for (std::size_t j = 0; j < dim; ++j) result.push_back(load_element(bytes.data() + offset, type, j));
          }
        }
      }
      return result;
    };
    prepared.expected = [=] {
      std::vector<double> q_expected, k_expected, v_expected;
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t h = 0; h < shape.q_heads + 2 * shape.kv_heads; ++h) {
          std::vector<double> head(dim);
          double squares = 0;
          for (std::size_t j = 0; j < dim; ++j) {
            head[j] = double{qkv[i * shape.columns() + h * dim + j]} + (with_bias ? double{bias[h * dim + j]} : 0);
            squares += head[j] * head[j];
          }
          const bool is_v = h >= shape.q_heads + shape.kv_heads, is_q = h < shape.q_heads;
          const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + 1e-6);
          for (std::size_t j = 0; !is_v && with_norm && j < dim; ++j)
            head[j] *= scale * double{(is_q ? q_norm : k_norm)[j]};
          for (std::size_t j = 0; !is_v && j < dim / 2; ++j) {
            const double angle = table.inverse_frequency[j] * tokens[i].position;
            const double a = head[j], b = head[j + dim / 2];
            head[j] = a * std::cos(angle) - b * std::sin(angle);
            head[j + dim / 2] = b * std::cos(angle) + a * std::sin(angle);
          }
          append(is_q ? q_expected : is_v ? v_expected : k_expected, head);
        }
      }
      append(q_expected, k_expected);
      append(q_expected, v_expected);
      return q_expected;
    };
  };
  return one;
}

}  // namespace

void append_pointwise_cases(CaseSize size, const TakeCase& take) {
  constexpr DType kF32 = DType::f32, kF16 = DType::f16, kBf16 = DType::bf16;
  if (size == CaseSize::bench) {
    for (const std::uint32_t n : {1u, 4096u}) {
      take(rms_norm_case(n, 4096, kBf16, kBf16));
      take(swiglu_case(n, 14336, kBf16));
      take(embed_case(128256, 4096, n, kBf16));
      take(qkv_case(n, {32, 8, 128}, kBf16, false, false, true));
      take(qkv_case(n, {32, 8, 128}, kBf16, true, true, true));
    }
    take(convert_case(std::size_t{1} << 24, kF32, kBf16, 0));
    take(convert_case(std::size_t{1} << 24, kBf16, kF32, 0));
    return;
  }
  take(rms_norm_case(1, 1, kF32, kF32));
  take(rms_norm_case(1, 8200, kBf16, kF16));
  for (const DType type : {kF32, kF16, kBf16}) {
    take(rms_norm_case(3, 64, type, kBf16));
    take(rms_norm_case(2, 300, kBf16, type));
    take(rms_norm_case(2, 37, type, kF32));
    for (const std::uint32_t d : {1u, 33u, 1000u, 1028u}) take(swiglu_case(3, d, type));
    for (const std::size_t n : {1, 33, 1000}) {
      take(convert_case(n, kF32, type, 1));
      take(convert_case(n, type, kF32, 0));
      take(convert_case(n, type, type == kBf16 ? kF16 : kBf16, 2));
    }
    for (const std::uint32_t hidden : {1u, 37u, 512u}) take(embed_case(10, hidden, 6, type));
    take(qkv_case(19, {4, 2, 64}, type, false, false, true));
    take(qkv_case(3, {9, 3, 128}, type, true, false, false));
    take(qkv_case(2, {2, 1, 256}, type, true, true, true));
    take(qkv_case(2, {3, 3, 80}, type, false, true, false));
    take(qkv_case(1, {1, 1, 2}, type, true, true, false));
  }
}

}  // namespace tandem::eval
