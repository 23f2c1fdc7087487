#include "engine/kernels/embedding.h"

#include "engine/common/error.h"
#include "engine/kernels/convert.h"

namespace tandem {

void embed(const MatrixView& table, const std::int32_t* tokens, float* out, std::uint32_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    TANDEM_CHECK(tokens[i] >= 0 && static_cast<std::uint32_t>(tokens[i]) < table.rows,
                 "Token {} lies outside the embedding table of {} rows.", tokens[i], table.rows);
    to_f32(table.data, table.type, static_cast<std::size_t>(tokens[i]) * table.cols, table.cols, out + i * table.cols);
  }
}

}  // namespace tandem
