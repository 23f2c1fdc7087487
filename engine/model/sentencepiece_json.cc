#include "engine/model/sentencepiece_json.h"

#include <set>
#include <unordered_map>
#include <unordered_set>

#include "engine/common/error.h"
#include "engine/model/sentencepiece_model.h"

namespace tandem {
namespace {

bool is_byte(const std::string& text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  return text.size() == 6 && text.starts_with("<0x") && text[5] == '>' &&
         kHex.find(text[3]) != std::string_view::npos && kHex.find(text[4]) != std::string_view::npos;
}

std::size_t characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

using Ranks = std::unordered_map<std::string, std::size_t>;  // by piece: of the first merge that makes it

Ranks ranks_of(const std::vector<std::pair<std::string, std::string>>& merges, const std::string& file) {
  Ranks ranks;
  std::string last;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    std::string made = merges[rank].first + merges[rank].second;
    if (made == last) continue;
    if (!ranks.emplace(made, rank).second) {
      throw_input_error("{}: model.merges makes '{}' in two places, which is supported for byte-level tokens alone.",
                        file, made);
    }
    last = std::move(made);
  }
  return ranks;
}

/// SentencePiece joins any two pieces that make a third.
void check_complete(const Ranks& ranks, const std::vector<std::pair<std::string, std::string>>& merges,
                    const std::unordered_set<std::string_view>& reachable, const std::string& file) {
  std::set<std::pair<std::string_view, std::string_view>> listed(merges.begin(), merges.end());
  for (const auto& [made, rank] : ranks) {
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

std::string sentencepiece_of(const Vocabulary& vocabulary,
                             const std::vector<std::pair<std::string, std::string>>& merges, const std::string& unknown,
                             bool prefix_space, const std::string& file) {
  SentencePieceModel model;
  model.prefix_space = prefix_space;
  model.pieces.resize(vocabulary.size());
  const Ranks ranks = ranks_of(merges, file);
  std::unordered_set<std::string_view> reachable;
  std::size_t bytes = 0;
  for (const auto& [text, id] : vocabulary) {
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
    } else if (characters(text) == 1) {
      piece.score = -static_cast<float>(merges.size());
      reachable.insert(text);
    } else {
      piece.type = SentencePieceModel::control;  // no text becomes it
    }
  }
  if (bytes != 0 && bytes != 256) throw_input_error("{}: model.vocab has {} of the 256 bytes.", file, bytes);
  model.byte_fallback = bytes != 0;
  for (const auto& [made, rank] : ranks) {
    if (!reachable.contains(made))
      throw_input_error("{}: model.merges makes '{}', which model.vocab does not have.", file, made);
  }
  check_complete(ranks, merges, reachable, file);
  return serialize_sentencepiece(model);
}

std::string mark_spaces(std::string_view text) {
  std::string marked;
  for (const char c : text) {
    if (c == ' ') {
      marked += kSpaceMark;
    } else {
      marked += c;
    }
  }
  return marked;
}

std::string mark_spaces_and_prepend(std::string_view text) {
  return text.empty() ? std::string() : kSpaceMark + mark_spaces(text);
}

}  // namespace tandem
