// ldmatrix and mma by their definition in the PTX manual ("Warp Level Matrix Instructions").
#include <cstring>

#include "tests/engine/kernels/cuda_emulator/emulator.h"

namespace tandem::cuda_emulator {
namespace {

std::uint16_t half_of(std::uint32_t word, unsigned half) {
  return static_cast<std::uint16_t>(word >> (16 * half));
}

struct Multiply {
  float* c;
  const std::uint32_t* a;
  const std::uint32_t* b;
  float (*widen)(std::uint16_t);
};

void multiply(WarpArguments lanes, std::uint32_t) {
  double a[16][16], b[16][8];
  const auto of = [&](unsigned lane) -> const Multiply& { return *static_cast<const Multiply*>(lanes[lane]); };
  for (unsigned lane = 0; lane < 32; ++lane) {
    const Multiply& mine = of(lane);
    const unsigned group = lane / 4, pair = 2 * (lane % 4);
    for (unsigned i = 0; i < 8; ++i)
      a[group + (i % 4 >= 2 ? 8 : 0)][pair + i % 2 + (i >= 4 ? 8 : 0)] =
          double{mine.widen(half_of(mine.a[i / 2], i % 2))};
    for (unsigned i = 0; i < 4; ++i)
      b[pair + i % 2 + (i >= 2 ? 8 : 0)][group] = double{mine.widen(half_of(mine.b[i / 2], i % 2))};
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned group = lane / 4, pair = 2 * (lane % 4);
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = group + (i >= 2 ? 8 : 0), column = pair + i % 2;
      double sum = double{of(lane).c[i]};
      for (unsigned k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      of(lane).c[i] = static_cast<float>(sum);
    }
  }
}

struct Load {
  std::uint32_t* out;
  const void* row;
  bool transposed;
};

void load(WarpArguments lanes, std::uint32_t) {
  const auto of = [&](unsigned lane) -> const Load& { return *static_cast<const Load*>(lanes[lane]); };
  for (unsigned lane = 0; lane < 32; ++lane) {
    const Load& mine = of(lane);
    const unsigned group = lane / 4, pair = 2 * (lane % 4);
    for (unsigned m = 0; m < 4; ++m) {
      const auto element = [&](unsigned row, unsigned column) {
        note_read_by(lane, of(8 * m + row).row, 16);
        std::uint16_t value;
        std::memcpy(&value, static_cast<const char*>(of(8 * m + row).row) + 2 * column, 2);
        return std::uint32_t{value};
      };
      mine.out[m] = mine.transposed ? element(pair, group) | element(pair + 1, group) << 16
                                    : element(group, pair) | element(group, pair + 1) << 16;
    }
  }
}

}  // namespace

void multiply_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                      float (*widen)(std::uint16_t)) {
  Multiply arguments{c, a, b, widen};
  warp_operation(0xffffffffu, "mma", &arguments, multiply);
}

void load_matrices(std::uint32_t (&out)[4], const void* row, bool transposed) {
  check_shared(row, 16, 16, "ldmatrix");
  Load arguments{out, row, transposed};
  warp_operation(0xffffffffu, transposed ? "ldmatrix.x4.trans" : "ldmatrix.x4", &arguments, load);
}

}  // namespace tandem::cuda_emulator
