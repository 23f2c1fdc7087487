#include "eval/kernels/case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/core.h>
#include <numeric>
#include <random>

#include "engine/kernels/convert.h"
#include "eval/kernels/cpu_limits.h"

namespace tandem::eval {

namespace {
/// Gives the bytes of normal numbers to write(at, from, bytes), a block at a time.
void write_normals(std::size_t count, DType type, unsigned seed, float scale, const auto& write) {
  const std::vector<float> values = case_normals(std::min(count, kNormals * 16), seed, scale);
  std::vector<char> block(values.size() * size_of(type));
  from_f32(values.data(), type, values.size(), block.data());
  for (std::size_t at = 0, size = count * size_of(type); at < size; at += block.size())
    write(at, block.data(), std::min(block.size(), size - at));
}
}  // namespace

struct CaseMemory::Held {
  std::vector<std::unique_ptr<PrivateMemory>> host;
  std::vector<CudaMemory> device;
  std::vector<PinnedMemory> pinned;
};

CaseMemory::CaseMemory(KernelTarget target, ThreadPool& pool)
    : target_(target), pool_(pool), held_(std::make_unique<Held>()) {
  if (cuda()) stream_ = std::make_unique<OwnedStream>();
}
CaseMemory::~CaseMemory() = default;

void* CaseMemory::bytes(std::size_t count) {
  count = std::max<std::size_t>(count, 1);
  if (cuda()) return held_->device.emplace_back(count).as<>();
  held_->host.push_back(std::make_unique<PrivateMemory>(count));
  return held_->host.back()->data();
}

void* CaseMemory::host_bytes(std::size_t count) {
  return cuda() ? held_->pinned.emplace_back(std::max<std::size_t>(count, 1)).as<>() : bytes(count);
}

void* CaseMemory::stored(const std::vector<float>& values, DType type, std::size_t skip) {
  std::vector<char> narrow(values.size() * size_of(type));
  from_f32(values.data(), type, values.size(), narrow.data());
  char* const to = static_cast<char*>(bytes(narrow.size() + skip * size_of(type))) + skip * size_of(type);
  copy(to, narrow.data(), narrow.size());
  return to;
}

void* CaseMemory::stored_normals(std::size_t count, DType type, unsigned seed, float scale) {
  char* const to = static_cast<char*>(bytes(count * size_of(type)));
  write_normals(count, type, seed, scale,
                [&](std::size_t at, const char* from, std::size_t some) { copy(to + at, from, some); });
  return to;
}

KvPages CaseMemory::normal_pages(std::size_t pages, std::uint32_t kv_heads, std::uint32_t dim, DType type,
                                 unsigned seed) {
  return {stored_normals(pages * kv_heads * 2 * kListPageTokens * dim, type, seed), type, kv_heads, dim};
}

MatrixView CaseMemory::matrix(const std::vector<float>& values, DType type, std::uint32_t rows, std::uint32_t cols) {
  return {stored(values, type), type, rows, cols};
}

void* CaseMemory::stored_result_at(void* at, DType type, std::size_t count) {
  results_.emplace_back([=, this](std::vector<float>& all) { append(all, read_stored(at, type, count)); });
  return at;
}

void* CaseMemory::rounded_result(DType type, std::size_t count) {
  if (cuda()) return stored_result(type, count);
  float* const at = output<float>(count);
  results_.emplace_back([=, this](std::vector<float>& all) { append(all, rounded(read(at, count), type)); });
  return at;
}

void CaseMemory::result_lists(const std::uint32_t* count, const std::vector<const std::uint32_t*>& lists) {
  results_.emplace_back([=, this](std::vector<float>& all) {
    append(all, read(count, 1));
    for (const std::uint32_t* list : lists) append(all, read(list, read(count, 1)[0]));
  });
}

std::vector<float> CaseMemory::results() const {
  std::vector<float> all;
  for (const auto& part : results_) part(all);
  return all;
}

std::vector<float> CaseMemory::read_stored(const void* from, DType type, std::size_t count) {
  const auto bytes = read(static_cast<const char*>(from), count * size_of(type));
  std::vector<float> values(count);
  to_f32(bytes.data(), type, 0, count, values.data());
  return values;
}

void CaseMemory::copy(void* to, const void* from, std::size_t count) {
  if (count == 0) return;
  if (!cuda()) {
    std::memcpy(to, from, count);
    return;
  }
  cuda_copy(to, from, count, stream());
  wait();  // `from` may be a temporary
}

void CaseMemory::wait() {
  if (cuda()) cuda_wait(stream());
}

std::vector<KernelCase> kernel_cases(CaseSize size) {
  std::vector<KernelCase> cases;
  const TakeCase take = [&](KernelCase one) { cases.push_back(std::move(one)); };
  for (const auto append_cases :
       {append_attention_cases, append_pointwise_cases, append_linear_cases, append_fetch_cases, append_selection_cases,
        append_choice_cases, append_heavy_cases, append_skewed_cases, append_prediction_cases, append_ahead_cases,
        append_head_cases, append_mass_cases})
    append_cases(size, take);
  return cases;
}

std::string wrong_result(const KernelCase& one, std::span<const float> result, std::span<const double> expected) {
  if (result.size() != expected.size())
    return fmt::format("There are {} numbers instead of {}.", result.size(), expected.size());
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double is = double{result[i]}, should = expected[i];
    const bool right = std::isnan(should) || std::isinf(should)
                           ? (std::isnan(should) ? std::isnan(is) : is == should)
                           : std::fabs(is - should) <= one.tolerance * std::max(1.0, std::fabs(should));
    if (!right && wrong++ == 0) first = i;
  }
  if (wrong == 0) return {};
  return fmt::format("{} of {} numbers are wrong, the first at {}: {} instead of {} (tolerance {}).", wrong,
                     result.size(), first, result[first], expected[first], one.tolerance);
}

std::vector<float> case_scores(std::size_t n, float scale, bool ties) {
  std::vector<float> scores = case_normals(n, 1, scale);
  for (float& score : scores)
    if (ties) score = std::round(score);
  return scores;
}

std::vector<std::uint32_t> shuffled(std::uint32_t n, unsigned seed) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

std::vector<std::uint32_t> reversed(std::uint32_t n) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.rbegin(), order.rend(), 0u);
  return order;
}

std::vector<std::uint32_t> largest(std::span<const float> scores, std::uint32_t keep) {
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::greater(), [&](std::uint32_t i) { return scores[i]; });
  order.resize(keep);
  std::ranges::sort(order);
  return order;
}

std::vector<float> case_normals(std::size_t n, unsigned seed, float scale) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> block(std::min(n, kNormals)), values(n);
  for (float& value : block) value = scale * normal(engine);
  for (std::size_t i = 0; i < n; ++i) values[i] = block[i % block.size()];
  return values;
}

std::vector<char> host_normals(std::size_t count, DType type, unsigned seed, float scale) {
  std::vector<char> all(count * size_of(type));
  write_normals(count, type, seed, scale,
                [&](std::size_t at, const char* from, std::size_t some) { std::memcpy(&all[at], from, some); });
  return all;
}

std::vector<float> rounded(const std::vector<float>& values, DType type) {
  std::vector<char> narrow(values.size() * size_of(type));
  std::vector<float> wide(values.size());
  from_f32(values.data(), type, values.size(), narrow.data());
  to_f32(narrow.data(), type, 0, values.size(), wide.data());
  return wide;
}

HostKv host_kv(const KvPages& kv, std::size_t pages, unsigned seed) {
  const std::size_t count = pages * kv.kv_heads * 2 * kListPageTokens * kv.dim;
  return {rounded(case_normals(count, seed), kv.type), kv.kv_heads, kv.dim};
}

std::vector<std::size_t> sampled(std::size_t count, std::size_t edge, std::size_t stride) {
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < count; ++i)
    if (i < edge || i + edge >= count || i % stride == 0) chosen.push_back(i);
  return chosen;
}

std::vector<float> rows_of(std::span<const float> all, std::span<const std::size_t> rows, std::size_t width) {
  std::vector<float> some;
  some.reserve(rows.size() * width);
  for (const std::size_t row : rows) append(some, all.subspan(row * width, width));
  return some;
}

}  // namespace tandem::eval
