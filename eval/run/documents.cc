#include "eval/run/documents.h"

#include <unordered_map>

namespace tandem::eval {

std::vector<std::uint32_t> number_documents(std::span<const std::string_view> texts) {
  std::unordered_map<std::string_view, std::uint32_t> numbers;
  std::vector<std::uint32_t> of;
  of.reserve(texts.size());
  for (const std::string_view text : texts)
    of.push_back(numbers.try_emplace(text, static_cast<std::uint32_t>(numbers.size())).first->second);
  if (numbers.size() == texts.size()) of.clear();
  return of;
}

}  // namespace tandem::eval
