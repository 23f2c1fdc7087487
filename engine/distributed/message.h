// A message's bytes: numbers and arrays one after the other, as this machine stores them.
#pragma once

#include <cstring>
#include <type_traits>

#include "engine/common/error.h"
#include "engine/distributed/communicator.h"

namespace tandem {

class MessageWriter {
 public:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes(&value, sizeof(T));
  }
  void put_bytes(const void* data, std::size_t bytes) {
    const auto* const from = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), from, from + bytes);
  }
  Message take() { return std::move(bytes_); }

 private:
  Message bytes_;
};

/// RunError where a message is shorter than what it should hold.
class MessageReader {
 public:
  explicit MessageReader(Message message) : bytes_(std::move(message)) {}
  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, get_bytes(sizeof(T)), sizeof(T));
    return value;
  }
  const std::byte* get_bytes(std::size_t bytes) {
    if (bytes > bytes_.size() - at_)
      throw_run_error("A message between ranks is {} bytes long and should hold {} more.", bytes_.size(), bytes);
    const std::byte* from = bytes_.data() + at_;
    at_ += bytes;
    return from;
  }
  std::string rest() {
    const std::size_t bytes = bytes_.size() - at_;
    return {reinterpret_cast<const char*>(get_bytes(bytes)), bytes};
  }

 private:
  Message bytes_;
  std::size_t at_ = 0;
};

}  // namespace tandem
