// Memory in huge pages where the system has them: large reads need fewer address translations.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace tandem {

/// Zeroed, lazily touched memory that starts on a huge page. RunError naming `what` if the system refuses.
std::shared_ptr<std::byte> huge_memory(std::size_t bytes, std::string_view what);

/// Bytes of this process's anonymous memory that are in huge pages now; 0 if the system does not tell.
std::size_t bytes_in_huge_pages();

}  // namespace tandem
