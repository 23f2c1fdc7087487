#include "engine/kernels/gram.h"

#include <cstddef>

#include "engine/kernels/kernel_table.h"

namespace tandem {

GramSums::GramSums(std::uint32_t dim)
    : dim_(dim),
      padded_((dim + kGramColumns - 1) / kGramColumns * kGramColumns),
      rows_(std::size_t{kTogether} * padded_),
      sums_(std::size_t{padded_} * padded_) {}

void GramSums::add() {
  kernels().add_gram(rows_.data(), waiting_, padded_, sums_.data());
  waiting_ = 0;
}

double* GramSums::next_row() {
  if (waiting_ == kTogether) add();
  return rows_.data() + std::size_t{waiting_++} * padded_;
}

void GramSums::finish(double* gram) {
  add();
  for (std::size_t i = 0; i < dim_; ++i) {
    for (std::size_t j = 0; j <= i; ++j) gram[i * dim_ + j] = gram[j * dim_ + i] = sums_[i * padded_ + j];
  }
}

}  // namespace tandem
