// Partial results of attention (PartialBuffers): room for them, the way of the host's to the device, and their merge.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/plan.h"

namespace tandem {

/// Room for so many rows. `part`, `lse`: the buffers' names.
PartialBuffers make_partials(Device& device, const ModelShape& shape, std::uint32_t rows, std::string part,
                             std::string lse);
/// The same for attention on the host; the buffers' names begin with `prefix`.
HostRoom make_host_room(Device& device, const ModelShape& shape, std::uint32_t rows, const std::string& prefix);

/// Makes `op` the merge of `parts` into `out` [row][Hq][D]: body and launch. The caller declares access and cost.
/// has_last: of rows, or of rows' KV heads, in order: whether the last part counts there; empty: everywhere.
void set_merge(Op& op, const ModelShape& shape, std::uint32_t rows, std::vector<PartialBuffers> parts,
               const DeviceBuffer& out, std::vector<bool> has_last);

/// Submits the copy of a host's part to the device, and its merge with `own`, the device's part of all rows (nullptr:
/// none), into the layer's attention [rows].
void merge_host_part(Device& device, const Forward& forward, std::uint32_t rows, const HostPart& host,
                     const PartialBuffers* own);

}  // namespace tandem
