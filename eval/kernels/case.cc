#include "eval/kernels/case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/core.h>
#include <numeric>
#include <random>

#include "engine/kernels/convert.h"
#include "eval/kernels/private_memory.h"

namespace tandem::eval {

namespace {
/// What many normal numbers repeat.
std::vector<char> normals_block(std::size_t count, DType type, unsigned seed, float scale) {
  const std::vector<float> values = case_normals(std::min(count, kNormals * 16), seed, scale);
  std::vector<char> narrow(values.size() * size_of(type));
  from_f32(values.data(), type, values.size(), narrow.data());
  return narrow;
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
  write(to, narrow.data(), narrow.size());
  return to;
}

void* CaseMemory::stored_normals(std::size_t count, DType type, unsigned seed, float scale) {
  const std::vector<char> block = normals_block(count, type, seed, scale);
  const std::size_t size = count * size_of(type);
  char* const to = static_cast<char*>(bytes(size));
  for (std::size_t at = 0; at < size; at += block.size())
    write(to + at, block.data(), std::min(block.size(), size - at));
  return to;
}

MatrixView CaseMemory::matrix(const std::vector<float>& values, DType type, std::uint32_t rows, std::uint32_t cols) {
  return {stored(values, type), type, rows, cols};
}

std::vector<float> CaseMemory::read_stored(const void* from, DType type, std::size_t count) {
  const auto bytes = read(static_cast<const char*>(from), count * size_of(type));
  std::vector<float> values(count);
  to_f32(bytes.data(), type, 0, count, values.data());
  return values;
}

void CaseMemory::write(void* to, const void* from, std::size_t count) {
  if (!cuda()) {
    if (count > 0) std::memcpy(to, from, count);
    return;
  }
  cuda_copy(to, from, count, stream());
  wait();  // `from` may be a temporary
}

void CaseMemory::read(void* to, const void* from, std::size_t count) {
  if (!cuda()) {
    if (count > 0) std::memcpy(to, from, count);
    return;
  }
  cuda_copy(to, from, count, stream());
  wait();
}

void CaseMemory::wait() {
  if (cuda()) cuda_wait(stream());
}

std::vector<KernelCase> kernel_cases(CaseSize size) {
  std::vector<KernelCase> cases;
  const TakeCase take = [&](KernelCase one) { cases.push_back(std::move(one)); };
  append_attention_cases(size, take);
  append_prefill_cases(size, take);
  append_merge_cases(size, take);
  append_pointwise_cases(size, take);
  append_next_token_cases(size, take);
  append_linear_cases(size, take);
  append_gather_cases(size, take);
  append_fetch_cases(size, take);
  append_selection_cases(size, take);
  append_weight_cases(size, take);
  append_choice_cases(size, take);
  append_heavy_cases(size, take);
  append_skewed_cases(size, take);
  append_prediction_cases(size, take);
  append_ahead_cases(size, take);
  append_head_cases(size, take);
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
  const std::vector<char> block = normals_block(count, type, seed, scale);
  std::vector<char> all(count * size_of(type));
  for (std::size_t at = 0; at < all.size(); at += block.size())
    std::memcpy(all.data() + at, block.data(), std::min(block.size(), all.size() - at));
  return all;
}

std::vector<float> rounded(const std::vector<float>& values, DType type) {
  std::vector<char> narrow(values.size() * size_of(type));
  std::vector<float> wide(values.size());
  from_f32(values.data(), type, values.size(), narrow.data());
  to_f32(narrow.data(), type, 0, values.size(), wide.data());
  return wide;
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
