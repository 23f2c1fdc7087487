// The tile registers of AMX. Included by *_cpu.cc alone.
#pragma once

#include "engine/kernels/vec.h"

#if defined(__AMX_BF16__)

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr size_t kRowBytes = 64;     // of a tile's row
constexpr uint32_t kTileRows = 16;   // of a whole tile
constexpr size_t kTileFloats = 256;  // or pairs of bf16, of a whole tile

// What a tile is loaded from is in memory from here on, and what was stored from a tile is read from there: GCC 12's
// intrinsics do not say that they read and write it, so that stores before them were moved behind them or left out (the
// configuration arrived empty, and the program crashed).
TANDEM_INLINE void written(const void* memory) {
  asm volatile("" : : "r"(memory) : "memory");
}

// Rows of each tile, up to 16 of 64 bytes; one of no rows may not be used.
struct TileShapes {
  uint8_t rows[8];
};

// The tiles of this thread while it lives.
class Tiles {
 public:
  explicit Tiles(const TileShapes& shapes) {
    struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int i = 0; i < 8; ++i)
      if (shapes.rows[i] > 0) config.rows[i] = shapes.rows[i], config.bytes[i] = kRowBytes;
    written(&config);
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// Subnormal numbers count as 0 while it lives, as in tiles: what is computed without them has the same bits.
class FlushSubnormals {
 public:
  FlushSubnormals() { _mm_setcsr(before_ | 0x8040); }
  ~FlushSubnormals() { _mm_setcsr(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  unsigned before_ = _mm_getcsr();
};

}  // namespace
}  // namespace tandem::TANDEM_ISA_NAMESPACE

#endif
