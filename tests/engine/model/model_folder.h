// A copy of a golden model in a temporary folder that a test may damage.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "tests/files.h"
#include "tests/golden/golden.h"

namespace tandem::testing {

using Json = nlohmann::json;

/// Header (as JSON) and body of a safetensors file.
inline std::pair<Json, std::string> split_safetensors(const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  return {parse_json(bytes.substr(8, length), "JSON"), bytes.substr(8 + length)};
}

/// The sentence of the InputError that `action` throws; "" where it succeeds. Anything else fails the test.
template <class Action>
std::string sentence_of(Action action) {
  try {
    action();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::AnyOf(::testing::EndsWith("."), ::testing::EndsWith("?")));
    return error.what();
  }
  return "";
}

}  // namespace tandem::testing
