// Cases of what lies between a choice and the KV that it moves (page lists of chosen blocks, and lists of the pieces to
// fetch), and of moving KV over the link. Results are numbers and copies, exact.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <random>

#include "engine/kernels/fetch_list.h"
#include "engine/kernels/gather.h"
#include "engine/kernels/paged_attention.h"
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
    auto from = shuffled(pool_slots, 1), to = shuffled(pool_slots, 2);
    from.resize(count);
    to.resize(count);
    const std::uint32_t moved = where == Slots::counted_on_device ? count / 2 : count;
    const auto numbers = [=](std::size_t i) { return static_cast<float>(i % 1000003); };
    // The larger stride leaves a gap behind every piece on the device.
    const std::size_t gap = 16, host_words = pool_slots * words, device_words = pool_slots * (words + gap / 4);
    auto* const host = static_cast<float*>(memory.host_bytes(4 * host_words));
    std::vector<float> start(device_words, -1.0f);
    for (std::size_t i = 0; !to_device && i < device_words; ++i) start[i] = numbers(i);
    float* const device = memory.input(std::move(start)).target;
    for (std::size_t i = 0; i < host_words; ++i) host[i] = to_device ? numbers(i) : -1.0f;
    const auto place = [&](const std::vector<std::uint32_t>& slots) {
      return where == Slots::on_host ? memory.host_input(slots) : memory.input(slots).target;
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
    if (where == Slots::counted_on_device) pieces.device_count = memory.input(std::vector{moved}).target;
    prepared.run = [=, &memory] { gather_cuda(pieces, way, memory.stream()); };
    memory.result_at(to_device ? device : host, to_device ? device_words : host_words);
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

/// `keep` of the numbers below n, ascending, behind their count and followed by room up to `room`.
std::vector<std::uint32_t> list_of(std::uint32_t n, std::uint32_t keep, std::uint32_t room, std::mt19937& random) {
  std::vector<std::uint32_t> all(n), list(1, keep);
  std::iota(all.begin(), all.end(), 0u);
  std::ranges::sample(all, std::back_inserter(list), keep, random);
  list.resize(1 + std::size_t{room}, 0xdeadbeefu);
  return list;
}

constexpr std::uint32_t kFirstSlot = 100;
/// Some slots of a pool, each for one page.
std::vector<std::uint32_t> slots_of(std::uint32_t pages, std::mt19937& random) {
  std::vector<std::uint32_t> slots(pages);
  std::iota(slots.begin(), slots.end(), kFirstSlot);
  std::shuffle(slots.begin(), slots.end(), random);
  return slots;
}

/// The result of each sequence: how many pieces, where from and where to.
FetchList result_list(CaseMemory& memory, std::uint32_t sequences, std::uint32_t room) {
  const std::size_t all = std::size_t{sequences} * room;
  const FetchList list{memory.output<std::uint32_t>(all), memory.output<std::uint32_t>(all),
                       memory.output<std::uint32_t>(sequences), room};
  for (std::size_t s = 0; s < sequences; ++s)
    memory.result_lists(list.count + s, {list.from + s * room, list.to + s * room});
  return list;
}
void append_list(std::vector<double>& wanted, const std::vector<double>& from, const std::vector<double>& to) {
  wanted.push_back(static_cast<double>(from.size()));
  append(wanted, from);
  append(wanted, to);
}

// What InfiniGen fetches: every head another number of units.
KernelCase list_units_case(std::uint32_t sequences, std::uint32_t heads, std::uint32_t units, std::uint32_t room,
                           std::uint32_t unit) {
  KernelCase one{"list_units", fmt::format("{} sequences, {} heads, up to {} of {} units of {}", sequences, heads, room,
                                           units, unit)};
  const std::uint32_t piece = std::min(unit, kListPageTokens), per_unit = unit / piece;
  const std::uint32_t most = 2 * heads * room * per_unit + 3;  // of a sequence, with some that are not used
  // Of a head that keeps some: the list of units, and per piece of K and of V where it lies and goes, and its page.
  const auto kept = [=](std::uint32_t s, std::uint32_t head) {
    return head % 3 == 2 ? 0 : room - (head + s) % 3 * room / 3;
  };
  for (std::uint32_t s = 0; s < sequences; ++s) {
    for (std::uint32_t head = 0; head < heads; ++head)
      one.bytes += 4.0 * (1 + kept(s, head)) + kept(s, head) * per_unit * (2 * 8.0 + 4.0);
  }
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    std::mt19937 random(units + unit);
    const std::uint32_t pages_each = pages_of(units * unit), slots = kFirstSlot + pages_each;
    std::vector<UnitFetch> fetches;
    std::vector<double> wanted;
    for (std::uint32_t s = 0; s < sequences; ++s) {
      std::vector<double> from, to;
      const auto pages = slots_of(pages_each, random);
      std::vector<std::uint32_t> chosen;
      const std::uint32_t first = 7 * s;
      for (std::uint32_t head = 0; head < heads; ++head) {
        const std::uint32_t keep = kept(s, head);
        const auto list = list_of(units, keep, room, random);
        append(chosen, list);
        for (std::uint32_t i = 0; i < keep; ++i) {
          for (std::uint32_t p = 0; p < per_unit; ++p) {
            const std::uint32_t token = list[1 + i] * unit + p * piece;
            for (std::uint32_t is_v = 0; is_v < 2; ++is_v) {  // in tokens of the pools first
              const double row = ((1.0 * pages[token / kListPageTokens] * heads + head) * 2 + is_v) * kListPageTokens +
                                 token % kListPageTokens;
              from.push_back(row / piece);
              to.push_back(first + ((1.0 * head * 2 + is_v) * room * unit + i * unit + p * piece) / piece);
            }
          }
        }
      }
      append_list(wanted, from, to);
      fetches.push_back({memory.input(chosen).target, room, memory.input(pages).target, first});
    }
    const FetchList list = result_list(memory, sequences, most);
    const UnitFetch* const at = memory.input(fetches).target;
    prepared.run = [=, &memory] {
      if (memory.cuda()) return list_units_cuda(at, sequences, heads, unit, slots, list, memory.stream());
      list_units(at, sequences, heads, unit, slots, list);
    };
    prepared.expected = [=] { return wanted; };
  };
  return one;
}

/// A batch of choices of blocks: what pages_of_selection makes lists of.
struct Choices {
  std::uint32_t rows, heads, group, together, blocks, keep, per_block;
  std::uint32_t capacity() const { return std::min(blocks, group / std::min(together, group) * keep) * per_block; }
  std::uint32_t tokens() const {
    return blocks * per_block * kListPageTokens - kListPageTokens - 3;
  }  // the last block is short
  /// Pages of a list: of the blocks that some query head chose, the mean over choices that do not depend on each other.
  double listed() const {
    const double lists = 1.0 * group / std::min(together, group), missed = 1 - 1.0 * keep / blocks;
    return blocks * (1 - std::pow(missed, lists)) * per_block;
  }
  std::uint32_t pages() const { return pages_of(tokens()); }
  std::string name() const {
    return fmt::format("{} rows, {} heads of {}, {} together, {} of {} blocks of {} pages", rows, heads, group,
                       together, keep, blocks, per_block);
  }
};

struct MadeChoices {
  std::vector<BlockSelection> rows;                            // on the target
  std::vector<std::vector<std::uint32_t>> slots;               // [row][page]
  std::vector<std::vector<std::vector<std::uint32_t>>> masks;  // [row][KV head][block]
};

MadeChoices make_choices(const Choices& c, CaseMemory& memory) {
  std::mt19937 random(c.blocks);
  MadeChoices made;
  for (std::uint32_t row = 0; row < c.rows; ++row) {
    std::vector<std::uint32_t> chosen;
    auto& masks = made.masks.emplace_back(c.heads, std::vector<std::uint32_t>(c.blocks));
    for (std::uint32_t h = 0; h < c.heads * c.group; h += c.together) {
      const auto list = list_of(c.blocks, c.keep, c.blocks, random);
      append(chosen, list);
      for (std::uint32_t head = h / c.group; head <= (h + c.together - 1) / c.group; ++head) {
        for (std::uint32_t i = 1; i <= c.keep; ++i) masks[head][list[i]] |= c.together == 1 ? 1u << h % c.group : ~0u;
      }
    }
    made.slots.push_back(slots_of(c.pages(), random));
    made.rows.push_back({memory.input(chosen).target, memory.input(made.slots.back()).target, c.blocks, c.per_block,
                         c.tokens(), c.blocks});
  }
  return made;
}

/// The list of one row and KV head.
std::vector<PageEntry> entries_of(const Choices& c, const MadeChoices& made, std::uint32_t row, std::uint32_t head) {
  std::vector<PageEntry> list;
  for (std::uint32_t page = 0; page < c.blocks * c.per_block; ++page) {
    const std::uint32_t mask = made.masks[row][head][page / c.per_block];
    if (mask == 0) continue;
    const std::uint32_t left =
        c.tokens() > page * kListPageTokens ? std::min(kListPageTokens, c.tokens() - page * kListPageTokens) : 0;
    if (left == 0) {
      list.emplace_back();
    } else {
      list.push_back({made.slots[row][page], 0, static_cast<std::uint16_t>(left), mask});
    }
  }
  return list;
}

/// A list of pages as numbers.
void append_entries(auto& all, const std::vector<PageEntry>& entries) {
  using Number = std::remove_cvref_t<decltype(all[0])>;
  all.push_back(static_cast<Number>(entries.size()));
  for (const PageEntry& e : entries)
    for (const std::uint32_t x :
         {e.slot, std::uint32_t{e.first}, std::uint32_t{e.tokens}, e.head_mask & 0xffffu, e.head_mask >> 16})
      all.push_back(static_cast<Number>(x));
}

// Pages of the blocks that query heads chose, apart or together.
KernelCase pages_of_selection_case(const Choices& c) {
  KernelCase one{"pages_of_selection", c.name()};
  const double lists = 1.0 * c.rows * c.heads;
  one.bytes = 4.0 * lists * c.group / c.together * (c.keep + 1.0) + 16.0 * lists * c.listed();
  one.targets = {KernelTarget::cuda};
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const MadeChoices made = make_choices(c, memory);
    const BlockSelection* const rows = memory.input(made.rows).target;
    PageEntry* const entries = memory.output<PageEntry>(std::size_t{c.rows} * c.heads * c.capacity());
    std::uint32_t* const counts = memory.output<std::uint32_t>(std::size_t{c.rows} * c.heads);
    prepared.run = [=, &memory] {
      pages_of_selection_cuda(rows, c.rows, c.heads, c.group, c.together, true, c.capacity(), entries, counts,
                              memory.stream());
    };
    prepared.result = [=, &memory] {
      std::vector<float> all;
      for (std::uint32_t list = 0; list < c.rows * c.heads; ++list) {
        const std::uint32_t count = memory.read(counts + list, 1)[0];
        append_entries(all, memory.read(entries + std::size_t{list} * c.capacity(), count));
      }
      return all;
    };
    prepared.expected = [=] {
      std::vector<double> all;
      for (std::uint32_t list = 0; list < c.rows * c.heads; ++list)
        append_entries(all, entries_of(c, made, list / c.heads, list % c.heads));
      return all;
    };
  };
  return one;
}

// What gpu-fetch fetches: the pieces of its choices, or the lists over what it has fetched.
KernelCase list_pages_case(const Choices& c, bool numbers) {
  KernelCase one{numbers ? "number_pages" : "list_pages", c.name()};
  const std::uint32_t lists = c.rows * c.heads, most = lists * c.capacity();
  one.bytes = (numbers ? 4.0 : 12.0) * lists * c.listed();
  one.targets = {KernelTarget::cuda};
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const MadeChoices made = make_choices(c, memory);
    std::vector<PageEntry> before(most);
    std::vector<std::uint32_t> held;
    std::vector<double> wanted_numbers, wanted_lists, from, to;
    for (std::uint32_t list = 0; list < lists; ++list) {
      const std::uint32_t row = list / c.heads, head = list % c.heads;
      const auto wanted = entries_of(c, made, row, head);
      held.push_back(static_cast<std::uint32_t>(wanted.size()));
      for (std::uint32_t i = 0; i < wanted.size(); ++i) {
        const PageEntry& e = wanted[i];
        before[std::size_t{list} * c.capacity() + i] = e;
        wanted_numbers.push_back(i);
        if (e.tokens == 0) continue;
        from.push_back(e.slot * c.heads + head);
        to.push_back(i * c.heads + head);
      }
      if (head + 1 < c.heads) continue;
      append_list(wanted_lists, from, to);
      from.clear();
      to.clear();
    }
    PageEntry* const entries = memory.input(std::move(before)).target;
    const std::uint32_t* const counts = memory.input(held).target;
    const FetchList list = result_list(memory, c.rows, c.heads * c.capacity());
    prepared.run = [=, &memory] {
      if (numbers)
        number_pages_cuda(entries, counts, lists, c.capacity(), memory.stream());
      else
        list_pages_cuda(entries, counts, c.rows, c.heads, c.capacity(), kFirstSlot + c.pages(), list, memory.stream());
    };
    prepared.result = [=, &memory] {
      if (!numbers) return memory.results();
      std::vector<float> all;
      for (std::uint32_t l = 0; l < lists; ++l) {
        for (const PageEntry& e : memory.read(entries + std::size_t{l} * c.capacity(), held[l]))
          all.push_back(static_cast<float>(e.slot));
      }
      return all;
    };
    prepared.expected = [=] { return numbers ? wanted_numbers : wanted_lists; };
  };
  return one;
}

}  // namespace

void append_fetch_cases(CaseSize size, const TakeCase& take) {
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
    take(list_units_case(8, 8, 1024, 204, 32));
    take(list_units_case(1, 8, 32768, 6144, 1));
    for (const Choices& c : {Choices{8, 8, 4, 1, 2048, 64, 1}, Choices{8, 8, 4, 4, 2048, 64, 1}}) {
      take(pages_of_selection_case(c));
      for (const bool numbers : {false, true}) take(list_pages_case(c, numbers));
    }
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
  take(list_units_case(1, 1, 9, 4, 32));
  take(list_units_case(3, 4, 50, 20, 1));
  take(list_units_case(2, 3, 12, 12, 8));
  take(list_units_case(1, 300, 20, 3, 16));  // more lists than threads
  take(list_units_case(1, 2, 700, 650, 1));
  for (const Choices& c :
       {Choices{2, 2, 3, 1, 40, 7, 1}, Choices{1, 3, 4, 1, 9, 9, 2}, Choices{2, 1, 5, 5, 70, 30, 3},
        Choices{1, 2, 2, 4, 300, 280, 1}, Choices{40, 8, 2, 1, 6, 2, 1}}) {  // the last: more lists than threads
    take(pages_of_selection_case(c));
    for (const bool numbers : {false, true}) take(list_pages_case(c, numbers));
  }
}

}  // namespace tandem::eval
