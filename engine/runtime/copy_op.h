// Operations that copy. One function lists the pieces; it serves as the body, as the launch on a GPU, and for the cost.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/device/copy_list.h"
#include "engine/device/device.h"
#include "engine/device/launch_context.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/link_pieces.h"
#include "engine/kv/tier_buffer.h"

namespace tandem {

/// Takes the pieces of a copy: copies them at once (body), gathers them (launch) or counts them (cost).
class Copier {
 public:
  explicit Copier(BodyContext& ctx) : ctx_(&ctx) {}
  Copier(LaunchContext& ctx, CopyList& list) : ctx_(&ctx), launch_(&ctx), list_(&list) {}
  explicit Copier(Cost& cost) : cost_(&cost) {}

  /// Pieces that go from one buffer to one other; places in bytes from where each begins.
  class Between {
   public:
    void add(std::size_t to, std::size_t from, std::size_t bytes);
    void add(std::span<const SlotCopy> slots, std::size_t slot_bytes) {
      for (const SlotCopy& slot : slots) add(slot.to * slot_bytes, slot.from * slot_bytes, slot_bytes);
    }
    /// The same rows of both buffers.
    void add_rows(std::span<const std::uint32_t> rows, std::size_t row_bytes) {
      for (const std::uint32_t row : rows) add(row * row_bytes, row * row_bytes, row_bytes);
    }

   private:
    friend class Copier;
    char* to_ = nullptr;
    const char* from_ = nullptr;
    CopyList* list_ = nullptr;
    Cost* cost_ = nullptr;
    bool to_host_ = false, from_host_ = false, short_ = false;
    LinkPieces pieces_;
  };
  Between between(const TierBuffer& to, const TierBuffer& from);
  /// Runs that the cost model counts as short (Cost::short_bytes).
  Between short_runs(const TierBuffer& to, const TierBuffer& from);
  /// Pieces of values that the operation holds, in place of a buffer.
  Between from_values(const TierBuffer& to, std::span<const std::byte> values);

  /// False in a cost-only body (Op::has_cost_only_part).
  bool computes() const { return ctx_ == nullptr || ctx_->computes(); }
  CopyWay way() const { return over_link_ ? CopyWay::over_link : CopyWay::within_device; }

 private:
  Between begin(const TierBuffer& to, bool from_host);

  const BodyContext* ctx_ = nullptr;
  LaunchContext* launch_ = nullptr;
  CopyList* list_ = nullptr;
  Cost* cost_ = nullptr;
  bool over_link_ = false;
};

using Copies = std::function<void(Copier&)>;

/// Makes `op` a copy of these pieces: its kind, body, launch, bytes, and pieces over the link. The caller declares what
/// is accessed, and sets costs that differ.
void set_copies(Op& op, Copies copies);

/// The first rows of one buffer, `bytes` in all, to those of another.
struct RowsCopy {
  TierBuffer to, from;
  std::size_t bytes = 0;
};
/// set_copies() for whole rows; declares them, too.
void copy_rows(Op& op, std::uint32_t rows, std::vector<RowsCopy> copies);

/// Copy-on-write of a sequence's last page: where that is partly filled and shared, submits its copy into slots of the
/// sequence's own. Without a copy the event is invalid.
Event copy_shared_tail(Device& device, KvStore& kv, SequenceId sequence);

}  // namespace tandem
