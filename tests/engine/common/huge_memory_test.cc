#include "engine/common/huge_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "engine/common/error.h"

namespace tandem {
namespace {

TEST(HugeMemory, IsZerosFromTheBeginningOfAHugePageOn) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, (std::size_t{5} << 20) + 3}) {
    const auto memory = huge_memory(bytes, "a test");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % (std::size_t{2} << 20), 0u);
    EXPECT_TRUE(std::all_of(memory.get(), memory.get() + bytes, [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(HugeMemory, LiesInHugePagesWhereTheSystemHasThem) {
  std::string allowed;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled") >> std::ws, allowed);
  if (allowed.find("[always]") == std::string::npos && allowed.find("[madvise]") == std::string::npos)
    GTEST_SKIP() << "no transparent huge pages here: '" << allowed << "'";
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const std::size_t before = bytes_in_huge_pages();
  const auto memory = huge_memory(kBytes, "a test");
  std::memset(memory.get(), 1, kBytes);
  if (bytes_in_huge_pages() == before) GTEST_SKIP() << "no huge page is free, or the system does not say";
  EXPECT_GT(bytes_in_huge_pages(), before);
}

TEST(HugeMemory, WhatTheSystemRefusesIsNamed) {
  EXPECT_THAT([] { huge_memory(std::size_t{1} << 60, "the weights"); },
              ::testing::ThrowsMessage<RunError>(::testing::HasSubstr("GB of memory for the weights cannot be had")));
}

}  // namespace
}  // namespace tandem
