#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "engine/common/utf8_character.h"
#include "engine/model/sentencepiece_model.h"
#include "engine/model/sentencepiece_tokenizer.h"

namespace tandem {
namespace {

bool is_byte(const std::string& text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  return text.size() == 6 && text.starts_with("<0x") && text[5] == '>' &&
         kHex.find(text[3]) != std::string_view::npos && kHex.find(text[4]) != std::string_view::npos;
}

using Ranks = std::unordered_map<std::string, std::size_t>;  // by piece: of the first merge that makes it

/// How often `text` has its first character, where it has no other; 0 elsewhere.
std::size_t repeats(std::string_view text) {
  if (text.empty()) return 0;
  const std::size_t size = first_character(text).bytes;
  for (std::size_t at = size; at < text.size(); at += size)
    if (text.substr(at, size) != text.substr(0, size)) return 0;
  return text.size() / size;
}

/// Lengths of the pieces that `count` equal characters become: the leftmost pair with the least order is joined first.
/// `order`: of two lengths; ~0: not joined.
template <class Order>
std::vector<std::size_t> join_run(std::size_t count, const Order& order) {
  std::vector<std::size_t> run(count, 1);
  while (true) {
    std::size_t best = run.size(), least = ~std::size_t{0};
    for (std::size_t i = 0; i + 1 < run.size(); ++i) {
      if (const std::size_t rank = order(run[i], run[i + 1]); rank < least) {
        least = rank;
        best = i;
      }
    }
    if (best == run.size()) return run;
    run[best] += run[best + 1];
    run.erase(run.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

/// Whether runs of one character come out alike if all the pieces that `merges` make of it, from rank `first` on, count
/// the same and the leftmost pair is joined first, as SentencePiece does it.
bool runs_are_alike(const Merges& merges, const std::string& character, std::size_t first) {
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> ranks;
  std::size_t longest = 1;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    if (!left.starts_with(character) || repeats(left + right) == 0) continue;
    ranks.emplace(std::pair{repeats(left), repeats(right)}, rank);
    longest = std::max(longest, repeats(left + right));
  }
  const auto by_rank = [&](std::size_t left, std::size_t right) {
    const auto found = ranks.find({left, right});
    return found == ranks.end() ? ~std::size_t{0} : found->second;
  };
  const auto by_place = [&](std::size_t left, std::size_t right) {
    const std::size_t rank = by_rank(left, right);
    return rank == ~std::size_t{0} ? rank : std::min(rank, first);
  };
  constexpr std::size_t kMost = 64;
  for (std::size_t count = 2; count <= std::min(2 * longest + 1, kMost); ++count)
    if (join_run(count, by_rank) != join_run(count, by_place)) return false;
  return true;
}

/// Ranks that say what the merges say. The merges into one piece must follow each other: SentencePiece knows no order
/// among them. Runs of a character are the exception, such as Llama 2's spaces, which all have one score there.
Ranks ranks_of(const Merges& merges, const std::string& file) {
  Ranks ranks;
  std::vector<std::string> in_order;  // pieces by their first merge
  std::unordered_map<std::string, std::size_t> last;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    stop_if_interrupted();
    std::string made = merges[rank].first + merges[rank].second;
    last[made] = rank;
    if (ranks.emplace(made, rank).second) in_order.push_back(std::move(made));
  }
  for (std::size_t begin = 0; begin < in_order.size();) {  // blocks of pieces whose merges are mixed
    stop_if_interrupted();
    std::size_t end = begin + 1, behind = last[in_order[begin]];
    while (end < in_order.size() && ranks[in_order[end]] < behind) behind = std::max(behind, last[in_order[end++]]);
    const std::string& made = in_order[begin];
    const std::size_t first = ranks[made];
    if (end > begin + 1) {
      const std::string character = made.substr(0, made.size() / std::max<std::size_t>(repeats(made), 1));
      const bool runs = std::all_of(
          in_order.begin() + static_cast<std::ptrdiff_t>(begin), in_order.begin() + static_cast<std::ptrdiff_t>(end),
          [&](const std::string& piece) { return repeats(piece) != 0 && piece.starts_with(character); });
      if (!runs || !runs_are_alike(merges, character, first))
        throw_input_error(
            "{}: model.merges makes '{}' in two places with other pieces between them, which is supported for "
            "byte-level tokens alone.",
            file, made);
    }
    for (; begin < end; ++begin) ranks[in_order[begin]] = first;
  }
  return ranks;
}

/// SentencePiece joins any two pieces that make a third.
void check_complete(const Ranks& ranks, const Merges& merges, const std::unordered_set<std::string_view>& reachable,
                    const std::string& file) {
  std::set<std::pair<std::string_view, std::string_view>> listed(merges.begin(), merges.end());
  for (const auto& [made, rank] : ranks) {
    stop_if_interrupted();
    for (std::size_t cut = 1; cut < made.size(); ++cut) {
      if ((static_cast<unsigned char>(made[cut]) & 0xC0) == 0x80) continue;
      const std::string_view left = std::string_view(made).substr(0, cut), right = std::string_view(made).substr(cut);
      if (!reachable.contains(left) || !reachable.contains(right) || listed.contains({left, right})) continue;
      throw_input_error(
          "{}: model.merges makes '{}', but not of '{}' and '{}', which model.vocab has too: supported for byte-level "
          "tokens alone.",
          file, made, left, right);
    }
  }
}

}  // namespace

std::string sentencepiece_of(const Vocabulary& vocabulary, const Merges& merges, const std::string& unknown,
                             bool prefix_space, const std::string& file) {
  SentencePieceModel model;
  model.prefix_space = prefix_space;
  model.pieces.resize(vocabulary.size());
  const Ranks ranks = ranks_of(merges, file);
  std::unordered_set<std::string_view> reachable;
  std::size_t bytes = 0;
  for (const auto& [text, id] : vocabulary) {
    stop_if_interrupted();
    if (static_cast<std::size_t>(id) >= vocabulary.size() || !model.pieces[static_cast<std::size_t>(id)].text.empty())
      throw_input_error("{}: model.vocab gives the id {} to '{}'; of {} pieces each must have its own.", file, id, text,
                        vocabulary.size());
    if (text.empty()) throw_input_error("{}: model.vocab has a piece without a text.", file);
    SentencePieceModel::Piece& piece = model.pieces[static_cast<std::size_t>(id)];
    piece.text = text;
    if (text == unknown) {
      piece.type = SentencePieceModel::unknown;
    } else if (is_byte(text)) {
      piece.type = SentencePieceModel::byte;
      ++bytes;
    } else if (const auto rank = ranks.find(text); rank != ranks.end()) {
      piece.score = -static_cast<float>(rank->second);
      reachable.insert(text);
    } else if (first_character(text).bytes == text.size()) {
      piece.score = -static_cast<float>(merges.size());
      reachable.insert(text);
    } else {
      piece.type = SentencePieceModel::control;  // no text becomes it
    }
  }
  if (bytes != 0 && bytes != 256) throw_input_error("{}: model.vocab has {} of the 256 bytes.", file, bytes);
  model.byte_fallback = bytes != 0;
  for (const auto& [made, rank] : ranks)
    if (!reachable.contains(made))
      throw_input_error("{}: model.merges makes '{}', which model.vocab does not have.", file, made);
  check_complete(ranks, merges, reachable, file);
  return serialize_sentencepiece(model);
}

std::string mark_spaces(std::string_view text) {
  std::string marked;
  for (const char c : text) c == ' ' ? marked += kSpaceMark : marked += c;
  return marked;
}

std::string mark_spaces_and_prepend(std::string_view text) {
  return text.empty() ? std::string() : kSpaceMark + mark_spaces(text);
}

}  // namespace tandem
