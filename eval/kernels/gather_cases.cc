// Cases of moving KV over the link. Their results are exact copies.
#include <algorithm>
#include <fmt/core.h>
#include <numeric>

#include "engine/kernels/gather.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

constexpr std::size_t kPageRows = 16;

enum class Slots : std::uint8_t { on_host, on_device, counted_on_device };

// Pieces of a pinned pool in a scattered order to a device pool, or back.
KernelCase gather_case(std::size_t bytes, std::uint32_t count, GatherWay way, bool to_device, Slots where) {
  KernelCase one;
  one.kernel = to_device ? "gather" : "scatter_to_host";
  one.shape = fmt::format("{} pieces of {}, {}{}", count, bytes, way == GatherWay::dma ? "DMA" : "zero copy",
                          where == Slots::on_host     ? ""
                          : where == Slots::on_device ? ", slots on the device"
                                                      : ", counted on the device");
  one.bytes = static_cast<double>(bytes) * count;
  one.link = to_device ? Link::to_device : Link::to_host;
  one.targets = {Target::cuda};
  one.prepare = [=](CaseMemory& memory) {
    const std::size_t words = bytes / 4;
    const std::uint32_t pool_slots = count + count / 2 + 1;
    std::vector<std::uint32_t> from(pool_slots), to(pool_slots);
    std::iota(from.begin(), from.end(), 0u);
    std::iota(to.begin(), to.end(), 0u);
    for (std::uint32_t i = pool_slots - 1; i > 0; --i) {  // any permutations will do
      std::swap(from[i], from[(i * 2654435761u) % (i + 1)]);
      std::swap(to[i], to[(i * 40503u + 7) % (i + 1)]);
    }
    from.resize(count);
    to.resize(count);
    const std::uint32_t moved = where == Slots::counted_on_device ? count / 2 : count;
    const auto numbers = [=](std::size_t i) { return static_cast<float>(i % 1000003); };
    // The larger stride leaves a gap behind every piece on the device.
    const std::size_t gap = 16, host_words = pool_slots * words, device_words = pool_slots * (words + gap / 4);
    auto* const host = static_cast<float*>(memory.host_bytes(4 * host_words));
    std::vector<float> start(device_words, -1.0f);
    for (std::size_t i = 0; !to_device && i < device_words; ++i) start[i] = numbers(i);
    float* const device = memory.input(start);
    for (std::size_t i = 0; i < host_words; ++i) host[i] = to_device ? numbers(i) : -1.0f;
    const auto place = [&](const std::vector<std::uint32_t>& slots) -> const std::uint32_t* {
      if (where != Slots::on_host) return memory.input(slots);
      auto* const at = static_cast<std::uint32_t*>(memory.host_bytes(4 * slots.size()));
      std::copy(slots.begin(), slots.end(), at);
      return at;
    };
    Pieces pieces;
    pieces.from = to_device ? host : device;
    pieces.to = to_device ? device : host;
    pieces.from_stride = to_device ? bytes : bytes + gap;
    pieces.to_stride = to_device ? bytes + gap : bytes;
    pieces.bytes = bytes;
    pieces.from_slots = place(from);
    pieces.to_slots = place(to);
    pieces.count = count;
    pieces.slots_on_host = where == Slots::on_host;
    if (where == Slots::counted_on_device) pieces.device_count = memory.input(std::vector<std::uint32_t>{moved});
    PreparedCase prepared;
    prepared.run = [=, &memory] { gather_cuda(pieces, way, memory.stream()); };
    prepared.result = [=, &memory] {
      return to_device ? memory.read(device, device_words) : memory.read(host, host_words);
    };
    prepared.expected = [=] {
      std::vector<double> expected(to_device ? device_words : host_words, -1.0);
      const std::size_t from_stride = pieces.from_stride / 4, to_stride = pieces.to_stride / 4;
      for (std::uint32_t i = 0; i < moved; ++i)
        for (std::size_t j = 0; j < words; ++j)
          expected[to[i] * to_stride + j] = double{numbers(from[i] * from_stride + j)};
      return expected;
    };
    return prepared;
  };
  return one;
}

enum class Move : std::uint8_t { rows_to_pages, pages_to_set };

// Rows [token][kv head][D] on the device to host pages, or chosen tokens of device pages to a packed set on the host.
KernelCase move_case(Move move, std::uint32_t n, std::uint32_t kv_heads, std::uint32_t dim, DType type) {
  KernelCase one;
  one.kernel = move == Move::rows_to_pages ? "offload_pages" : "offload_tokens";
  one.shape = fmt::format("n {}, {} heads of {}, {}", n, kv_heads, dim, to_string(type));
  const std::size_t row = dim * size_of(type), rows = std::size_t{n} * kv_heads;
  one.bytes = 2.0 * static_cast<double>(rows * row);  // K and V
  one.link = Link::to_host;
  one.targets = {Target::cuda};
  one.prepare = [=](CaseMemory& memory) {
    const std::size_t page = 2 * kPageRows * row, slot = page * kv_heads;
    const std::size_t tokens = move == Move::rows_to_pages ? n : 3 * std::size_t{n};  // a third of them is chosen
    const std::size_t slots = (tokens + kPageRows - 1) / kPageRows;
    const auto page_offset = [=](std::size_t token) {
      return (slots - 1 - token / kPageRows) * slot + token % kPageRows * row;
    };
    // Every number says where it came from.
    const auto number = [=](bool is_v, std::size_t token, std::size_t head, std::size_t i) {
      return static_cast<float>((token * 5 + head * 3 + i * 7 + (is_v ? 1 : 0)) % 251);
    };
    const auto chosen = [=](std::size_t i) { return move == Move::rows_to_pages ? i : 3 * i + i % 3; };
    KvRows dense, paged;
    dense.type = paged.type = type;
    paged.head_stride = page;
    std::vector<std::uint64_t> offsets(n);
    for (std::size_t i = 0; i < n; ++i) offsets[i] = page_offset(chosen(i));
    paged.token_offsets = memory.input(offsets);
    const std::size_t dense_bytes = 2 * rows * row, page_bytes = slots * slot;
    // Rows [token][head], a packed set [head][token].
    dense.token_stride = move == Move::rows_to_pages ? kv_heads * row : row;
    dense.head_stride = move == Move::rows_to_pages ? row : n * row;
    const bool to_pages = move == Move::rows_to_pages;
    const std::size_t from_count = (to_pages ? dense_bytes : page_bytes) / size_of(type);
    std::vector<float> start(from_count);
    const auto at = [=](bool in_pages, bool is_v, std::size_t i, std::size_t head) {
      const std::size_t bytes = in_pages ? page_offset(chosen(i)) + head * page + (is_v ? kPageRows * row : 0)
                                         : i * dense.token_stride + head * dense.head_stride + (is_v ? rows * row : 0);
      return bytes / size_of(type);
    };
    for (const bool is_v : {false, true})
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t head = 0; head < kv_heads; ++head)
          for (std::size_t j = 0; j < dim; ++j) start[at(!to_pages, is_v, i, head) + j] = number(is_v, i, head, j);
    char* const from = static_cast<char*>(memory.stored(start, type));
    const std::size_t to_bytes = to_pages ? page_bytes : dense_bytes;
    char* const to = static_cast<char*>(memory.host_bytes(to_bytes));
    std::fill_n(to, to_bytes, char{0});
    KvRows& source = to_pages ? dense : paged;
    KvRows& target = to_pages ? paged : dense;
    source.k = from;
    source.v = from + (to_pages ? rows * row : kPageRows * row);
    target.k = to;
    target.v = to + (to_pages ? kPageRows * row : rows * row);
    PreparedCase prepared;
    prepared.run = [=, &memory] {
      move_kv_rows_cuda(to_pages ? dense : paged, to_pages ? paged : dense, kv_heads, dim, n, memory.stream());
    };
    prepared.result = [=, &memory] { return memory.read_stored(to, type, to_bytes / size_of(type)); };
    prepared.expected = [=] {
      std::vector<double> expected(to_bytes / size_of(type));
      for (const bool is_v : {false, true})
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t head = 0; head < kv_heads; ++head)
            for (std::size_t j = 0; j < dim; ++j)
              expected[at(to_pages, is_v, i, head) + j] = double{number(is_v, i, head, j)};
      return expected;
    };
    return prepared;
  };
  return one;
}

}  // namespace

void append_gather_cases(CaseSize size, std::vector<KernelCase>& cases) {
  if (size == CaseSize::bench) {
    // The grid of the probe: a page of 8B's KV head is 8 KiB, all heads of a block 64 KiB.
    for (const std::size_t bytes : {std::size_t{4} << 10, std::size_t{8} << 10, std::size_t{64} << 10,
                                    std::size_t{256} << 10, std::size_t{1} << 20})
      for (const std::uint32_t count : {1u, 8u, 64u, 512u}) {
        if (bytes * count > std::size_t{128} << 20) continue;
        for (const GatherWay way : {GatherWay::dma, GatherWay::zero_copy})
          cases.push_back(gather_case(bytes, count, way, true, Slots::on_host));
      }
    for (const GatherWay way : {GatherWay::dma, GatherWay::zero_copy})
      cases.push_back(gather_case(8 << 10, 512, way, false, Slots::on_host));
    cases.push_back(move_case(Move::rows_to_pages, 4096, 8, 128, DType::bf16));
    cases.push_back(move_case(Move::pages_to_set, 4096, 8, 128, DType::bf16));
    return;
  }
  for (const std::size_t bytes : {std::size_t{16}, std::size_t{208}, std::size_t{4096}}) {
    for (const std::uint32_t count : {1u, 7u, 100u}) {
      for (const GatherWay way : {GatherWay::dma, GatherWay::zero_copy})
        for (const bool to_device : {false, true})
          cases.push_back(gather_case(bytes, count, way, to_device, Slots::on_host));
      cases.push_back(gather_case(bytes, count, GatherWay::zero_copy, true, Slots::on_device));
      cases.push_back(gather_case(bytes, count, GatherWay::zero_copy, true, Slots::counted_on_device));
    }
  }
  for (const GatherWay way : {GatherWay::dma, GatherWay::zero_copy})
    cases.push_back(gather_case(8192, 100, way, true, Slots::on_host));
  for (const Move move : {Move::rows_to_pages, Move::pages_to_set}) {
    cases.push_back(move_case(move, 1, 1, 8, DType::bf16));
    cases.push_back(move_case(move, 35, 3, 64, DType::f16));
    cases.push_back(move_case(move, 50, 2, 100, DType::f32));
    cases.push_back(move_case(move, 300, 2, 256, DType::f32));  // more than one pass of all threads
  }
}

}  // namespace tandem::eval
