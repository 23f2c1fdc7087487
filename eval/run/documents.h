// Which samples of a task are about the same text, and so not independent of each other.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tandem::eval {

/// For each sample's text its number among the different ones, in order of appearance: SampleResult::document. Empty
/// where no text is there twice.
std::vector<std::uint32_t> number_documents(std::span<const std::string_view> texts);

}  // namespace tandem::eval
