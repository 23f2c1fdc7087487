// Traces for ui.perfetto.dev and chrome://tracing.
#pragma once

#include <filesystem>

#include "engine/device/trace.h"

namespace tandem {

/// Writes the trace as Chrome trace JSON: a track per lane and one for step windows, arrows along critical edges
/// between lanes, arguments layer, cause, bytes and FLOPs; microseconds with three decimals. RunError when the file
/// cannot be written.
void write_perfetto(const Trace& trace, const std::filesystem::path& path);

}  // namespace tandem
