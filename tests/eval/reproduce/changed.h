// A text with one place changed: how tests make an experiment that is wrong in one thing.
#pragma once

#include <gtest/gtest.h>
#include <string>

namespace tandem::eval {

inline std::string changed(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

}  // namespace tandem::eval
