#include "eval/scoring/edit_similarity.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>
#include <vector>

#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

struct Block {
  std::size_t first = 0, second = 0, size = 0;  // where it begins in either text
};

/// Parts of both texts, ends excluded.
struct Parts {
  std::size_t first_begin, first_end, second_begin, second_end;
};

class Matcher {
 public:
  Matcher(std::u32string_view first, std::u32string_view second) : first_(first), second_(second) {
    for (std::size_t j = 0; j < second.size(); ++j) places_[second[j]].push_back(j);
    constexpr std::size_t kLong = 200;
    if (second.size() >= kLong)
      std::erase_if(places_, [&](const auto& entry) { return entry.second.size() > second.size() / 100 + 1; });
  }

  /// Characters in matching blocks: the longest block, then the same left and right of it.
  std::size_t matches() {
    std::size_t sum = 0;
    std::vector<Parts> left = {{0, first_.size(), 0, second_.size()}};
    while (!left.empty()) {
      const Parts parts = left.back();
      left.pop_back();
      const Block block = longest(parts);
      if (block.size == 0) continue;
      sum += block.size;
      if (parts.first_begin < block.first && parts.second_begin < block.second)
        left.push_back({parts.first_begin, block.first, parts.second_begin, block.second});
      if (block.first + block.size < parts.first_end && block.second + block.size < parts.second_end)
        left.push_back({block.first + block.size, parts.first_end, block.second + block.size, parts.second_end});
    }
    return sum;
  }

 private:
  /// Of several longest ones the first in the first text, and of those the first in the second. What is longest is
  /// decided before a block grows over popular characters.
  Block longest(const Parts& parts) {
    Block best{parts.first_begin, parts.second_begin, 0};
    std::unordered_map<std::size_t, std::size_t> runs;  // lengths of matches, by their end in the second text
    for (std::size_t i = parts.first_begin; i < parts.first_end; ++i) {
      std::unordered_map<std::size_t, std::size_t> longer;
      const auto& places = places_[first_[i]];
      for (auto at = std::lower_bound(places.begin(), places.end(), parts.second_begin);
           at != places.end() && *at < parts.second_end; ++at) {
        const auto before = runs.find(*at);
        const std::size_t size = before == runs.end() ? 1 : before->second + 1;
        longer[*at + 1] = size;
        if (size > best.size) best = {i + 1 - size, *at + 1 - size, size};
      }
      runs.swap(longer);
    }
    while (best.first > parts.first_begin && best.second > parts.second_begin &&
           first_[best.first - 1] == second_[best.second - 1])
      best = {best.first - 1, best.second - 1, best.size + 1};
    while (best.first + best.size < parts.first_end && best.second + best.size < parts.second_end &&
           first_[best.first + best.size] == second_[best.second + best.size])
      ++best.size;
    return best;
  }

  std::u32string_view first_, second_;
  std::unordered_map<char32_t, std::vector<std::size_t>> places_;  // in the second text, popular characters left out
};

std::string_view first_useful_line(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  while (true) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.find_first_of("`#") == line.npos && line.find("//") == line.npos) return line;
    if (end == text.size()) return {};
    text.remove_prefix(end + 1);
  }
}

}  // namespace

int fuzzy_ratio(std::string_view first, std::string_view second) {
  const std::u32string a = code_points(first), b = code_points(second);
  if (a == b) return 100;
  if (a.empty() || b.empty()) return 0;
  const double ratio = 2.0 * static_cast<double>(Matcher(a, b).matches()) / static_cast<double>(a.size() + b.size());
  return static_cast<int>(std::nearbyint(100 * ratio));
}

double code_similarity(std::string_view prediction, std::string_view answer) {
  return fuzzy_ratio(first_useful_line(prediction), answer) / 100.0;
}

}  // namespace tandem::eval
