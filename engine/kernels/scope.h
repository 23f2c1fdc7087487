// Who chooses together which tokens or blocks are attended or fetched.
#pragma once

#include <cstdint>

namespace tandem {

/// Each query head alone, the query heads of a KV head, or all heads of a layer.
enum class Scope : std::uint8_t { query_head, kv_head, layer };

}  // namespace tandem
