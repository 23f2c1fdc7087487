#include "engine/model/byte_pairs.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"

namespace tandem {
namespace {

// Scanning for the best pair is quadratic in the word's length, a heap is not but costs more per merge.
constexpr std::size_t kShortWord = 48;
// Bytes. A longer one is more than a context, and would take gigabytes.
constexpr std::size_t kLongestWord = std::size_t{4} << 20;

std::uint64_t scrambled(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0x9e3779b97f4a7c15u;
  return x ^ (x >> 29);
}

}  // namespace

BytePairs::BytePairs(std::vector<std::string> tokens, const std::vector<Merge>& merges, bool whole_words,
                     bool drop_unknown, const std::string& file)
    : tokens_(std::move(tokens)) {
  std::fill(std::begin(byte_ids_), std::end(byte_ids_), -1);
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) continue;
    all_ids_.try_emplace(tokens_[id], static_cast<std::int32_t>(id));
    if (tokens_[id].size() == 1) byte_ids_[static_cast<unsigned char>(tokens_[id][0])] = static_cast<std::int32_t>(id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_ids_[byte] >= 0) continue;
    drops_ = true;
    const bool in_most_texts = byte == '\n' || (byte >= 0x20 && byte < 0x7F);
    if (!drop_unknown || in_most_texts)
      throw_input_error("{}: there is no token for the byte 0x{:02x}, so not every text can be encoded.", file, byte);
  }
  slots_.resize(std::bit_ceil(std::max<std::size_t>(16, 2 * merges.size())));
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right, result] = merges[rank];
    Slot& slot = slots_[place_of(key(left, right))];
    if (slot.pair == kEmpty) slot = {key(left, right), static_cast<std::uint32_t>(rank), result};
  }
  // A word that is a token need not be merged, if its merges lead to that token: in trained vocabularies nearly always.
  std::vector<std::int32_t> merged;
  for (const auto& [bytes, id] : all_ids_) {
    merged.clear();
    if (!whole_words) merge(bytes, merged);
    if (whole_words || (merged.size() == 1 && merged[0] == id)) ids_.emplace(bytes, id);
  }
}

std::int32_t BytePairs::find(std::string_view bytes) const {
  const auto found = all_ids_.find(bytes);
  return found == all_ids_.end() ? -1 : found->second;
}

std::size_t BytePairs::place_of(std::uint64_t pair) const {
  std::size_t at = scrambled(pair) & (slots_.size() - 1);
  while (slots_[at].pair != pair && slots_[at].pair != kEmpty) at = (at + 1) & (slots_.size() - 1);
  return at;
}

const BytePairs::Slot* BytePairs::merge_of(std::int32_t left, std::int32_t right) const {
  const Slot& slot = slots_[place_of(key(left, right))];
  return slot.pair == kEmpty ? nullptr : &slot;
}

void BytePairs::encode(std::string_view word, std::vector<std::int32_t>& out) const {
  if (word.empty()) return;
  if (const auto found = ids_.find(word); found != ids_.end()) {
    out.push_back(found->second);
    return;
  }
  merge(word, out);
}

void BytePairs::merge(std::string_view word, std::vector<std::int32_t>& out) const {
  const auto unknown = [this](char c) { return byte_ids_[static_cast<unsigned char>(c)] < 0; };
  if (drops_ && std::ranges::any_of(word, unknown)) {
    std::string known(word);
    std::erase_if(known, unknown);
    merge(known, out);
    return;
  }
  if (word.size() <= kShortWord) {
    merge_short(word, out);
  } else {
    merge_long(word, out);
  }
}

void BytePairs::merge_short(std::string_view word, std::vector<std::int32_t>& out) const {
  std::int32_t symbols[kShortWord];
  const Slot* merges[kShortWord];  // of symbol i with its right neighbour
  std::size_t n = word.size();
  for (std::size_t i = 0; i < n; ++i) symbols[i] = byte_ids_[static_cast<unsigned char>(word[i])];
  for (std::size_t i = 0; i + 1 < n; ++i) merges[i] = merge_of(symbols[i], symbols[i + 1]);
  while (n > 1) {
    std::size_t best = n;
    for (std::size_t i = 0; i + 1 < n; ++i)
      if (merges[i] != nullptr && (best == n || merges[i]->rank < merges[best]->rank)) best = i;
    if (best == n) break;
    symbols[best] = merges[best]->result;
    for (std::size_t i = best + 1; i + 1 < n; ++i) {
      symbols[i] = symbols[i + 1];
      if (i + 2 < n) merges[i] = merges[i + 1];
    }
    --n;
    if (best + 1 < n) merges[best] = merge_of(symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = merge_of(symbols[best - 1], symbols[best]);
  }
  out.insert(out.end(), symbols, symbols + n);
}

void BytePairs::merge_long(std::string_view word, std::vector<std::int32_t>& out) const {
  struct Symbol {
    std::int32_t id;
    std::size_t previous, next;  // word.size(): none
  };
  struct Candidate {
    std::uint32_t rank;
    std::size_t at;
    std::int32_t left, right, result;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  const std::size_t none = word.size();
  if (word.size() > kLongestWord)
    throw_input_error("The text has {} bytes that are one word for this tokenizer, which takes words of at most {}.",
                      word.size(), kLongestWord);
  std::vector<Symbol> symbols(word.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto propose = [&](std::size_t at) {
    const std::size_t next = symbols[at].next;
    if (next == none) return;
    if (const Slot* m = merge_of(symbols[at].id, symbols[next].id))
      queue.push({m->rank, at, symbols[at].id, symbols[next].id, m->result});
  };
  for (std::size_t i = 0; i < word.size(); ++i)
    symbols[i] = {byte_ids_[static_cast<unsigned char>(word[i])], i == 0 ? none : i - 1, i + 1};
  for (std::size_t i = 0; i < word.size(); ++i) propose(i);
  while (!queue.empty()) {
    stop_if_interrupted();
    const Candidate c = queue.top();
    queue.pop();
    Symbol& left = symbols[c.at];
    // Either symbol may have been merged since; a merged right one has id -1.
    if (left.id != c.left || left.next == none || symbols[left.next].id != c.right) continue;
    Symbol& right = symbols[left.next];
    left.id = c.result;
    right.id = -1;
    left.next = right.next;
    if (left.next != none) symbols[left.next].previous = c.at;
    propose(c.at);
    if (left.previous != none) propose(left.previous);
  }
  for (std::size_t i = 0; i != none; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace tandem
