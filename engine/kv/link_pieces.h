// How the pieces of a transfer over the link are counted, by what crosses it: what is contiguous in host
// memory is one piece, wherever it comes from or goes to on the device, whose kernels gather and scatter their own
// memory at HBM's rate. With the layout of KvStore this makes
//   a run of adjacent slots (all KV heads of adjacent pages)    one piece: ScoutAttention's unit, section 2.3, where a
//                                                               block of 32 tokens of all heads crosses as 128 KB
//   K and V of a page of one KV head                            one piece: they are adjacent
//   the pages of a block of one KV head of several              a piece each: the other heads lie between
//   the keys of such a page alone, or K or V of one token       a piece each: InfiniGen's fetch=token
// Runs join in the order in which they are added. One transfer counts by hand, in the same units: InfiniGen's of what
// it speculated (PartialKeyIndexes::fetch), where pages join within a block and never across two. Where only shapes
// are simulated its choice is as many blocks as the method would take, the first ones, and all of them would join.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem {

class LinkPieces {
 public:
  /// `bytes` from `offset` of one host buffer.
  void add(std::size_t offset, std::size_t bytes) {
    if (count_ == 0 || offset != end_) ++count_;
    end_ = offset + bytes;
  }
  std::uint32_t count() const { return count_; }

 private:
  std::size_t end_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace tandem
