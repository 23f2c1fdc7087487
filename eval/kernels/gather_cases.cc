// Cases of moving KV over the link. Their results are exact copies.
#include <algorithm>
#include <fmt/core.h>
#include <numeric>

#include "engine/kernels/gather.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

enum class Slots : std::uint8_t { on_host, on_device, counted_on_device };

// Pieces of a pinned pool in a scattered order to a device pool, or back.
KernelCase gather_case(std::size_t bytes, std::uint32_t count, GatherWay way, bool to_device, Slots where) {
  KernelCase one{to_device ? "gather" : "scatter_to_host",
                 fmt::format("{} pieces of {}, {}{}", count, bytes, way == GatherWay::dma ? "DMA" : "zero copy",
                             where == Slots::on_host     ? ""
                             : where == Slots::on_device ? ", slots on the device"
                                                         : ", counted on the device")};
  one.bytes = static_cast<double>(bytes) * count;
  one.link = to_device ? Link::to_device : Link::to_host;
  one.targets = {KernelTarget::cuda};
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
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
  };
  return one;
}

}  // namespace

void append_gather_cases(CaseSize size, const TakeCase& take) {
  if (size == CaseSize::bench) {
    // The grid of the probe: a page of 8B's KV head is 8 KiB, all heads of a block 64 KiB.
    for (const std::size_t bytes : {std::size_t{4} << 10, std::size_t{8} << 10, std::size_t{64} << 10,
                                    std::size_t{256} << 10, std::size_t{1} << 20})
      for (const std::uint32_t count : {1u, 8u, 64u, 512u}) {
        if (bytes * count > std::size_t{128} << 20) continue;
        for (const GatherWay way : {GatherWay::dma, GatherWay::zero_copy})
          take(gather_case(bytes, count, way, true, Slots::on_host));
      }
    for (const GatherWay way : {GatherWay::dma, GatherWay::zero_copy})
      take(gather_case(8 << 10, 512, way, false, Slots::on_host));
    return;
  }
  for (const std::size_t bytes : {std::size_t{16}, std::size_t{208}, std::size_t{4096}}) {
    for (const std::uint32_t count : {1u, 7u, 100u}) {
      for (const GatherWay way : {GatherWay::dma, GatherWay::zero_copy})
        for (const bool to_device : {false, true}) take(gather_case(bytes, count, way, to_device, Slots::on_host));
      take(gather_case(bytes, count, GatherWay::zero_copy, true, Slots::on_device));
      take(gather_case(bytes, count, GatherWay::zero_copy, true, Slots::counted_on_device));
    }
  }
  for (const GatherWay way : {GatherWay::dma, GatherWay::zero_copy})
    take(gather_case(8192, 100, way, true, Slots::on_host));
}

}  // namespace tandem::eval
