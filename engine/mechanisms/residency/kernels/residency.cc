#include "engine/mechanisms/residency/kernels/residency.h"

#include <algorithm>
#include <vector>

namespace tandem {
namespace {

bool contains(const std::uint32_t* list, std::uint32_t block) {
  return std::binary_search(list + 1, list + 1 + list[0], block);
}

}  // namespace

void split_residents(const ResidentSplit& list) {
  static thread_local std::vector<std::uint32_t> resident;
  resident.assign(list.table, list.table + list.residents);
  std::sort(resident.begin(), resident.end());
  std::copy_n(list.selected, 1 + list.selected[0], list.chosen);
  std::uint32_t missing = 0;
  for (std::uint32_t i = 1; i <= list.chosen[0]; ++i) {
    if (!std::binary_search(resident.begin(), resident.end(), list.chosen[i])) list.missing[++missing] = list.chosen[i];
  }
  list.missing[0] = missing;
}

void swap_residents(const ResidentSwap& list) {
  static thread_local std::vector<std::uint32_t> left, filled, hits;
  for (auto* part : {&left, &filled, &hits}) part->clear();
  std::uint32_t next = 1, moves = 0;
  const bool ordered = list.order != nullptr;
  for (std::uint32_t i = 0; i < list.slots && (ordered || next <= list.missing[0]); ++i) {
    const std::uint32_t slot = ordered ? list.order[i] : i;
    const bool hit = contains(list.chosen, list.table[slot]), fills = !hit && next <= list.missing[0];
    if (ordered) (hit ? hits : fills ? filled : left).push_back(slot);
    if (!fills) continue;
    const std::uint32_t block = list.table[slot] = list.missing[next++];
    for (std::uint32_t page = 0; page < list.pages_per_block; ++page, ++moves) {
      list.from[moves] = list.pages[std::size_t{block} * list.pages_per_block + page];
      list.to[moves] = slot * list.pages_per_block + page;
    }
  }
  *list.moves = moves;
  if (!ordered) return;
  std::uint32_t* end = list.order;
  for (const auto* part : {&left, &filled, &hits}) end = std::copy(part->begin(), part->end(), end);
}

}  // namespace tandem
