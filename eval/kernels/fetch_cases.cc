// Cases of what lies between a choice and the KV that it moves: page lists of chosen blocks, and lists of the pieces to
// fetch. All are numbers.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <random>

#include "engine/kernels/fetch_list.h"
#include "engine/kernels/paged_attention.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

/// `keep` of the numbers below n, ascending, behind their count and followed by room up to `room`.
std::vector<std::uint32_t> list_of(std::uint32_t n, std::uint32_t keep, std::uint32_t room, std::mt19937& random) {
  std::vector<std::uint32_t> all(n), list(1, keep);
  std::iota(all.begin(), all.end(), 0u);
  std::sample(all.begin(), all.end(), std::back_inserter(list), keep, random);
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

FetchList room_for(CaseMemory& memory, std::uint32_t sequences, std::uint32_t room) {
  const std::size_t all = std::size_t{sequences} * room;
  return {memory.output<std::uint32_t>(all), memory.output<std::uint32_t>(all), memory.output<std::uint32_t>(sequences),
          room};
}

/// Of each sequence: how many pieces, where from and where to.
std::vector<float> listed(CaseMemory& memory, std::uint32_t sequences, const FetchList& list) {
  std::vector<float> all;
  for (std::uint32_t s = 0; s < sequences; ++s) {
    const std::uint32_t count = memory.read(list.count + s, 1)[0];
    all.push_back(static_cast<float>(count));
    append(all, memory.read(list.from + std::size_t{s} * list.room, count));
    append(all, memory.read(list.to + std::size_t{s} * list.room, count));
  }
  return all;
}
std::vector<double> wanted_lists(const std::vector<std::vector<double>>& from,
                                 const std::vector<std::vector<double>>& to) {
  std::vector<double> all;
  for (std::size_t s = 0; s < from.size(); ++s) {
    all.push_back(static_cast<double>(from[s].size()));
    append(all, from[s]);
    append(all, to[s]);
  }
  return all;
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
    std::vector<std::vector<double>> from(sequences), to(sequences);
    for (std::uint32_t s = 0; s < sequences; ++s) {
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
              from[s].push_back(row / piece);
              to[s].push_back(first + ((1.0 * head * 2 + is_v) * room * unit + i * unit + p * piece) / piece);
            }
          }
        }
      }
      fetches.push_back({memory.input(chosen), room, memory.input(pages), first});
    }
    const FetchList list = room_for(memory, sequences, most);
    const UnitFetch* const at = memory.input(fetches);
    prepared.run = [=, &memory] {
      if (memory.cuda()) return list_units_cuda(at, sequences, heads, unit, slots, list, memory.stream());
      list_units(at, sequences, heads, unit, slots, list);
    };
    prepared.result = [=, &memory] { return listed(memory, sequences, list); };
    prepared.expected = [=] { return wanted_lists(from, to); };
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
    made.rows.push_back(
        {memory.input(chosen), memory.input(made.slots.back()), c.blocks, c.per_block, c.tokens(), c.blocks});
  }
  return made;
}

struct Entry {
  std::uint32_t slot, tokens, mask;
};
/// The list of one row and KV head.
std::vector<Entry> entries_of(const Choices& c, const MadeChoices& made, std::uint32_t row, std::uint32_t head) {
  std::vector<Entry> list;
  for (std::uint32_t page = 0; page < c.blocks * c.per_block; ++page) {
    const std::uint32_t mask = made.masks[row][head][page / c.per_block];
    if (mask == 0) continue;
    const std::uint32_t left =
        c.tokens() > page * kListPageTokens ? std::min(kListPageTokens, c.tokens() - page * kListPageTokens) : 0;
    list.push_back({left > 0 ? made.slots[row][page] : 0, left, left > 0 ? mask : 0});
  }
  return list;
}

// Pages of the blocks that query heads chose, apart or together.
KernelCase pages_of_selection_case(const Choices& c) {
  KernelCase one{"pages_of_selection", c.name()};
  const double lists = 1.0 * c.rows * c.heads;
  one.bytes = 4.0 * lists * c.group / c.together * (c.keep + 1.0) + 16.0 * lists * c.listed();
  one.targets = {KernelTarget::cuda};
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const MadeChoices made = make_choices(c, memory);
    const BlockSelection* const rows = memory.input(made.rows);
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
        all.push_back(static_cast<float>(count));
        for (const PageEntry& e : memory.read(entries + std::size_t{list} * c.capacity(), count)) {
          for (const std::uint32_t x :
               {e.slot, std::uint32_t{e.first}, std::uint32_t{e.tokens}, e.head_mask & 0xffffu, e.head_mask >> 16})
            all.push_back(static_cast<float>(x));
        }
      }
      return all;
    };
    prepared.expected = [=] {
      std::vector<double> all;
      for (std::uint32_t list = 0; list < c.rows * c.heads; ++list) {
        const auto wanted = entries_of(c, made, list / c.heads, list % c.heads);
        all.push_back(static_cast<double>(wanted.size()));
        for (const Entry& e : wanted) {
          for (const std::uint32_t x : {e.slot, 0u, e.tokens, e.mask & 0xffffu, e.mask >> 16}) all.push_back(x);
        }
      }
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
    std::vector<double> numbered;
    std::vector<std::vector<double>> from(c.rows), to(c.rows);
    for (std::uint32_t list = 0; list < lists; ++list) {
      const std::uint32_t row = list / c.heads, head = list % c.heads;
      const auto wanted = entries_of(c, made, row, head);
      held.push_back(static_cast<std::uint32_t>(wanted.size()));
      for (std::uint32_t i = 0; i < wanted.size(); ++i) {
        const Entry& e = wanted[i];
        before[std::size_t{list} * c.capacity() + i] = {e.slot, 0, static_cast<std::uint16_t>(e.tokens), e.mask};
        numbered.push_back(i);
        if (e.tokens == 0) continue;
        from[row].push_back(e.slot * c.heads + head);
        to[row].push_back(i * c.heads + head);
      }
    }
    PageEntry* const entries = memory.input(before);
    const std::uint32_t* const counts = memory.input(held);
    const FetchList list = room_for(memory, c.rows, c.heads * c.capacity());
    prepared.run = [=, &memory] {
      if (numbers)
        number_pages_cuda(entries, counts, lists, c.capacity(), memory.stream());
      else
        list_pages_cuda(entries, counts, c.rows, c.heads, c.capacity(), kFirstSlot + c.pages(), list, memory.stream());
    };
    prepared.result = [=, &memory] {
      if (!numbers) return listed(memory, c.rows, list);
      std::vector<float> all;
      for (std::uint32_t l = 0; l < lists; ++l) {
        for (const PageEntry& e : memory.read(entries + std::size_t{l} * c.capacity(), held[l]))
          all.push_back(static_cast<float>(e.slot));
      }
      return all;
    };
    prepared.expected = [=] { return numbers ? numbered : wanted_lists(from, to); };
  };
  return one;
}

}  // namespace

void append_fetch_cases(CaseSize size, const TakeCase& take) {
  if (size == CaseSize::bench) {
    take(list_units_case(8, 8, 1024, 204, 32));
    take(list_units_case(1, 8, 32768, 6144, 1));
    for (const Choices& c : {Choices{8, 8, 4, 1, 2048, 64, 1}, Choices{8, 8, 4, 4, 2048, 64, 1}}) {
      take(pages_of_selection_case(c));
      for (const bool numbers : {false, true}) take(list_pages_case(c, numbers));
    }
    return;
  }
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
