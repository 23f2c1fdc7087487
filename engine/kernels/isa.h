// Which instruction set the hot kernels use. Each *_cpu.cc is compiled once per entry of Isa (CMakeLists.txt) and one
// of the builds is chosen at run time.
#pragma once

#include <cstdint>

namespace tandem {

enum class Isa : std::uint8_t {
  baseline,     // x86-64-v2: SSE4.2
  avx2,         // AVX2, FMA, F16C
  avx512,       // AVX-512 F, BW, DQ, VL
  avx512_bf16,  // and BF16: dot products of bf16 pairs
  amx,          // and AMX: products of bf16 tiles
};
inline constexpr Isa kIsas[] = {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};  // best last
const char* to_string(Isa isa);

bool isa_supported(Isa isa);

/// The best one this CPU supports, or the one named by the environment variable TANDEM_ISA (baseline, avx2, avx512,
/// avx512_bf16, amx), read once. Throws InputError where TANDEM_ISA is no such name or this CPU does not support it.
Isa active_isa();

/// While it lives, every thread's kernels use `isa`, which must be supported. For tests and benches; not while kernels
/// run.
class ScopedIsa {
 public:
  explicit ScopedIsa(Isa isa);
  ~ScopedIsa();
  ScopedIsa(const ScopedIsa&) = delete;
  ScopedIsa& operator=(const ScopedIsa&) = delete;

 private:
  int previous_;
};

}  // namespace tandem
