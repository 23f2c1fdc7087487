// Objects that belong to one sequence each (digests, averages, token sets), by id. References stay valid until the
// object is destroyed. Not thread safe: the control thread owns it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>

#include "engine/common/error.h"
#include "engine/kv/kv_store.h"

namespace tandem {

/// Handle of one of them.
template <class T>
struct Ref {
  std::uint32_t id = 0;
};

/// T has `sequence`, a static `kName`, and bytes(Tier).
template <class T>
class PerSequence {
 public:
  std::uint32_t add(T object) {
    objects_.emplace(next_id_, std::move(object));
    return next_id_++;
  }
  T& get(std::uint32_t id) {
    const auto found = objects_.find(id);
    TANDEM_CHECK(found != objects_.end(), "{} {} does not exist", T::kName, id);
    return found->second;
  }
  /// LogicError where it is another sequence's.
  T& of(SequenceId sequence, std::uint32_t id) {
    T& object = get(id);
    TANDEM_CHECK(object.sequence == sequence, "{} {} is another sequence's", T::kName, id);
    return object;
  }
  const T& get(std::uint32_t id) const { return const_cast<PerSequence*>(this)->get(id); }
  void destroy_of(SequenceId sequence) {
    std::erase_if(objects_, [sequence](const auto& entry) { return entry.second.sequence == sequence; });
  }
  std::size_t bytes_of(SequenceId sequence, Tier tier) const {
    std::size_t bytes = 0;
    for (const auto& [id, object] : objects_) bytes += object.sequence == sequence ? object.bytes(tier) : 0;
    return bytes;
  }
  /// Where T has peer_bytes(): of one sequence, and of all.
  std::size_t peer_bytes_of(SequenceId sequence) const {
    std::size_t bytes = 0;
    for (const auto& [id, object] : objects_) bytes += object.sequence == sequence ? object.peer_bytes() : 0;
    return bytes;
  }
  std::size_t peer_bytes() const {
    std::size_t bytes = 0;
    for (const auto& [id, object] : objects_) bytes += object.peer_bytes();
    return bytes;
  }

 private:
  std::unordered_map<std::uint32_t, T> objects_;
  std::uint32_t next_id_ = 1;
};

}  // namespace tandem
