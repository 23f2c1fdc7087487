#include "engine/kernels/isa.h"

#include <atomic>
#include <cpuid.h>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/kernel_table.h"

namespace tandem {
namespace {

constexpr Isa kAll[] = {Isa::avx512_bf16, Isa::avx512, Isa::avx2, Isa::baseline};  // best first

Isa choose() {
  if (const char* name = std::getenv("TANDEM_ISA"); name && *name) {
    for (const Isa isa : kAll) {
      if (name != std::string(to_string(isa))) continue;
      if (!isa_supported(isa))
        throw_input_error(
            "The environment variable TANDEM_ISA asks for '{}', which this CPU does not support; unset it.", name);
      return isa;
    }
    const std::vector<std::string> known = {"baseline", "avx2", "avx512", "avx512_bf16"};
    throw_input_error("The environment variable TANDEM_ISA is '{}'; it can be {}.{}", name, join_names(known),
                      did_you_mean(name, known));
  }
  for (const Isa isa : kAll)
    if (isa_supported(isa)) return isa;
  throw_input_error("This CPU lacks SSE4.2, the least that Tandem runs on (any x86-64 CPU since 2009 has it).");
}

std::atomic<int> forced{-1};  // of the innermost ScopedIsa

}  // namespace

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return "baseline";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
  }
  return "?";
}

// clang 14 does not know "f16c" as a name for __builtin_cpu_supports.
static bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool isa_supported(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case Isa::avx512:
      return isa_supported(Isa::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Isa::avx512_bf16:
      return isa_supported(Isa::avx512) && __builtin_cpu_supports("avx512bf16");
  }
  return false;
}

Isa active_isa() {
  if (const int isa = forced.load(std::memory_order_relaxed); isa >= 0) return static_cast<Isa>(isa);
  static const Isa chosen = choose();
  return chosen;
}

ScopedIsa::ScopedIsa(Isa isa) : previous_(forced.load()) {
  TANDEM_CHECK(isa_supported(isa), "This CPU does not support {}.", to_string(isa));
  forced.store(static_cast<int>(isa));
}
ScopedIsa::~ScopedIsa() {
  forced.store(previous_);
}

const KernelTable& kernels() {
  switch (active_isa()) {
    case Isa::avx512_bf16:
      return isa_avx512_bf16::table;
    case Isa::avx512:
      return isa_avx512::table;
    case Isa::avx2:
      return isa_avx2::table;
    case Isa::baseline:
      break;
  }
  return isa_baseline::table;
}

}  // namespace tandem
