#include "engine/kernels/isa.h"

#include <algorithm>
#include <atomic>
#include <cpuid.h>
#include <cstdlib>
#include <iterator>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/kernel_table.h"

namespace tandem {
namespace {

Isa choose() {
  if (const char* name = std::getenv("TANDEM_ISA"); name && *name) {
    std::vector<std::string> known;
    known.reserve(std::size(kIsas));
    for (const Isa isa : kIsas) {
      known.emplace_back(to_string(isa));
      if (name != known.back()) continue;
      if (!isa_supported(isa))
        throw_input_error(
            "The environment variable TANDEM_ISA asks for '{}', which this CPU does not support; unset it.", name);
      return isa;
    }
    throw_input_error("The environment variable TANDEM_ISA is '{}'; it can be {}.{}", name, join_names(known),
                      did_you_mean(name, known));
  }
  const auto best = std::find_if(std::rbegin(kIsas), std::rend(kIsas), isa_supported);
  if (best != std::rend(kIsas)) return *best;
  throw_input_error("This CPU lacks SSE4.2, the least that Tandem runs on (any x86-64 CPU since 2009 has it).");
}

std::atomic<int> forced{-1};  // of the innermost ScopedIsa

}  // namespace

const char* to_string(Isa isa) {
  static constexpr const char* kNames[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};
  static_assert(std::size(kNames) == std::size(kIsas));
  return kNames[static_cast<std::size_t>(isa)];
}

// Tiles of bf16, and Linux's leave to use them: it keeps their 8 KiB of registers only for processes that ask.
static bool has_amx() {
  static const bool granted = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16) == 0 || (d & kTile) == 0) return false;
    constexpr int kAskForRegisters = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kAskForRegisters, kTileData) == 0;
  }();
  return granted;
}

bool isa_supported(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Isa::avx512:
      return isa_supported(Isa::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Isa::avx512_bf16:
      return isa_supported(Isa::avx512) && __builtin_cpu_supports("avx512bf16");
    case Isa::amx:
      return isa_supported(Isa::avx512_bf16) && has_amx();
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
  static constexpr const KernelTable* kTables[] = {&isa_baseline::table, &isa_avx2::table, &isa_avx512::table,
                                                   &isa_avx512_bf16::table, &isa_amx::table};
  static_assert(std::size(kTables) == std::size(kIsas));
  return *kTables[static_cast<std::size_t>(active_isa())];
}

}  // namespace tandem
