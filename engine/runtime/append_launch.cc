// What attention of a new prompt launches on a GPU: the kernel of prefills over the pages that are left, and the merge.
#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/attention.h"
#include "engine/runtime/append_attention.h"
#include "engine/runtime/launched_attention.h"

namespace tandem {

/// Pages that have left the device are all older than the new prompt, and attention asks for no order but that: the
/// pages that are there are attended as if they were a whole, shorter prompt.
void AppendAttention::launch_device(LaunchContext& ctx, std::uint32_t first, std::uint32_t rows,
                                    const std::vector<Piece>& pieces, const DeviceBuffer& out) const {
  TANDEM_CHECK(older_ == nullptr, "tokens that survived one by one are attended on a GPU");
  std::vector<std::uint32_t> slots;
  slots.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    TANDEM_CHECK(piece.begin % kPageTokens == 0, "a piece begins at token {}, inside a page", piece.begin);
    slots.push_back(piece.slot);
  }
  const auto missing = blocks_for(first + rows) - static_cast<std::uint32_t>(slots.size());
  TANDEM_CHECK(missing * kPageTokens <= first, "{} pages are missing before token {}", missing, first);
  PrefillChunk chunk;
  chunk.q = ctx.read<float>(forward_.q());
  chunk.kv = device_pages(ctx, kv_);
  chunk.slots = ctx.upload(slots);
  chunk.first_position = first - missing * kPageTokens;
  chunk.n = rows;
  chunk.q_heads = forward_.shape().q_heads;
  chunk.out = ctx.write<float>(out);
  chunk.lse = ctx.write<float>(device_lse_);
  prefill_attention_cuda(chunk, ctx.stream());
}

void AppendAttention::launch_merge(LaunchContext& ctx, std::uint32_t rows) const {
  const std::vector<const float*> parts = {ctx.read<float>(device_part_), ctx.read<float>(landed_part_)},
                                  sums = {ctx.read<float>(device_lse_), ctx.read<float>(landed_lse_)};
  merge_partials_cuda(ctx.pass(parts), ctx.pass(sums), 2, rows * forward_.shape().q_heads, forward_.shape().head_dim,
                      ctx.write<float>(forward_.attention()), nullptr, ctx.stream());
}

}  // namespace tandem
