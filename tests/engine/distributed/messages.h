// What tests of communicators share: numbered messages, and what an error says.
#pragma once

#include <cstring>
#include <string>

#include "engine/distributed/communicator.h"

namespace tandem {

template <class Error, class Work>
std::string sentence_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// `n` and `more` bytes.
inline Message numbered(int n, std::size_t more = 0) {
  Message message(sizeof n + more, std::byte{7});
  std::memcpy(message.data(), &n, sizeof n);
  return message;
}

}  // namespace tandem
