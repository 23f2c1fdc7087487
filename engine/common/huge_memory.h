// Anonymous memory in huge pages, where the system has them: what is read from one end to the other in every step, or
// at random, takes fewer translations of addresses.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace tandem {

/// Zeros, faulted in by whoever touches them first. RunError that names `what` where the system refuses.
std::shared_ptr<std::byte> huge_memory(std::size_t bytes, std::string_view what);

/// Of this process's anonymous memory, what lies in huge pages now; 0 where the system does not say.
std::size_t bytes_in_huge_pages();

}  // namespace tandem
