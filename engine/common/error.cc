#include "engine/common/error.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace tandem {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw LogicError(fmt::format("internal error at {}:{}: {} ({})", file, line, message, condition));
}

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours count one each.
static size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(1, name.size() / 3);
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance <= best_distance && (best == nullptr || distance < best_distance)) {
      best = &candidate;
      best_distance = distance;
    }
  }
  const auto has_name = [&](std::string_view candidate) { return candidate.find(name) != std::string_view::npos; };
  std::string longer;  // that have all of the name in them: more likely than one that is as short
  for (const std::string& candidate : candidates)
    if (name.size() >= 4 && has_name(candidate) && (best == nullptr || !has_name(*best)))
      longer += fmt::format("{}'{}'", longer.empty() ? "" : " or ", candidate);
  if (!longer.empty()) return fmt::format(" Did you mean {}?", longer);
  return best == nullptr ? std::string() : fmt::format(" Did you mean '{}'?", *best);
}

std::string join_names(std::span<const std::string> names) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out.append(i + 1 == names.size() ? " and " : ", ");
    out.append(names[i]);
  }
  return out;
}

}  // namespace tandem
