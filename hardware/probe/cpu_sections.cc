#include "hardware/probe/cpu_sections.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "engine/common/cgroup.h"
#include "hardware/probe/cpu_kernels.h"
#include "hardware/probe/machine.h"
#include "hardware/probe/thread_team.h"

namespace tandem::probe {
namespace {

/// Bytes a section reads per pass: several times the last-level cache, so that a pass finds nothing of the previous
/// one, within the user's cap and half of what is free.
std::size_t pass_bytes(const Recorder& recorder) {
  const std::size_t room = std::min(recorder.options().memory, available_memory() / 2);
  const std::size_t wanted = std::max(std::size_t{recorder.quick() ? 256u : 1024u} << 20, 4 * last_level_cache());
  const std::size_t bytes = std::min(room, wanted) >> 22 << 22;
  if (bytes < (std::size_t{16} << 20)) {
    throw ProbeError("Only " + std::to_string(room) +
                     " bytes of host memory may be used; 16M is the least that works.");
  }
  return bytes;
}

Fields with(Fields fields, const Fields& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

/// Part `index` of `count` of [0, total).
std::pair<std::size_t, std::size_t> part(std::size_t total, int index, int count) {
  const auto at = [&](int i) { return total * static_cast<std::size_t>(i) / static_cast<std::size_t>(count); };
  return {at(index), at(index + 1)};
}

void run_dram(Recorder& recorder) {
  const std::size_t words = pass_bytes(recorder) / 8;
  if (const std::size_t cache = last_level_cache(); words * 8 < 2 * cache) {
    recorder.skip("dram_read from memory alone: its " + std::to_string(words * 8) +
                  " bytes are less than twice the last-level cache's " + std::to_string(cache) +
                  ", so that the figures are partly of the cache; --memory allows more");
  }
  const HostBuffer buffer(words * 8);
  std::uint64_t* data = buffer.as<std::uint64_t>();
  const Isa isa = best_isa();
  const int most = usable_threads();
  {
    // All threads write their own part first, so that pages spread over the NUMA nodes of those threads.
    ThreadTeam team(most);
    team.run([&](int thread) {
      const auto [begin, end] = part(words, thread, most);
      for (std::size_t i = begin; i < end; ++i) data[i] = i * 3 + 1;
    });
  }
  const std::uint64_t n = words;
  const std::uint64_t expected = 3 * (n / 2) * (n - 1) + n;  // words is even, so n (n - 1) / 2 is whole
  for (const int threads : thread_counts(most, recorder.quick())) {
    ThreadTeam team(threads);
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads) * 8);  // one cache line each
    const auto pass = [&] {
      return team.run([&](int thread) {
        const auto [begin, end] = part(words, thread, threads);
        sums[static_cast<std::size_t>(thread) * 8] = sum_words(isa, data + begin, end - begin);
      });
    };
    pass();
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < sums.size(); i += 8) sum += sums[i];
    if (sum != expected)
      throw ProbeError("The DRAM read returned a wrong checksum with " + std::to_string(threads) + " threads.");
    recorder.figure("dram_read", "GB/s", {{"threads", threads}, {"bytes", words * 8}, {"isa", to_string(isa)}}, pass,
                    [&](double seconds) { return static_cast<double>(words) * 8 / seconds * 1e-9; });
  }
  recorder.checked("The sum of all words read matches the closed form at every number of threads.");
}

struct AttentionCase {
  bool random;
  int page_tokens;
  bool prefetch;
  Isa isa;
};

class AttentionBench {
 public:
  explicit AttentionBench(Recorder& recorder)
      : recorder_(recorder),
        tokens_(pass_bytes(recorder) / (2 * kHeadDim * sizeof(std::uint16_t))),
        k_(tokens_ * kHeadDim * sizeof(std::uint16_t)),
        v_(tokens_ * kHeadDim * sizeof(std::uint16_t)),
        q_(kGroup * kHeadDim) {
    const int most = usable_threads();
    ThreadTeam team(most);
    team.run([&](int thread) {
      const auto [begin, end] = part(tokens_ * kHeadDim, thread, most);
      std::uint64_t state = 0x9E3779B97F4A7C15ull * (static_cast<std::uint64_t>(thread) + 1);
      for (std::size_t i = begin; i < end; ++i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        k_.as<std::uint16_t>()[i] = small_bf16(static_cast<std::uint32_t>(state >> 32));
        v_.as<std::uint16_t>()[i] = small_bf16(static_cast<std::uint32_t>(state >> 40));
      }
    });
    std::mt19937 random(7);
    for (float& value : q_) value = bf16_to_float(small_bf16(static_cast<std::uint32_t>(random())));
  }

  void check(Isa isa) {
    for (const int page_tokens : {16, 32, 64}) {
      const KvPool kv = pool(page_tokens);
      std::vector<std::uint32_t> pages = page_list(true, page_tokens);
      pages.resize(std::min<std::size_t>(pages.size(), 48));
      std::vector<double> expected(kGroup * kHeadDim);
      attend_pages_reference(kv, pages, q_.data(), expected.data());
      for (const bool prefetch : {false, true}) {
        std::vector<float> out(kGroup * kHeadDim);
        attend_pages(isa, kv, pages, q_.data(), out.data(), prefetch);
        double worst = 0, largest = 0;
        for (std::size_t i = 0; i < out.size(); ++i) {
          worst = std::max(worst, std::abs(double{out[i]} - expected[i]));
          largest = std::max(largest, std::abs(expected[i]));
        }
        // f32 sums of a few thousand terms: rounding stays far under this, a wrong lane or row far above.
        if (!(worst <= 2e-4 * largest)) {
          throw ProbeError(std::string("The attention read of ") + to_string(isa) + " is off by " +
                           std::to_string(worst) + " against the plain version.");
        }
      }
    }
    recorder_.checked(std::string("attention read, ") + to_string(isa) +
                      ": equal to the plain double-precision version for pages of 16, 32 and 64 tokens.");
  }

  void measure(const AttentionCase& which, ThreadTeam& team) {
    const std::vector<std::uint32_t> pages = page_list(which.random, which.page_tokens);
    const KvPool kv = pool(which.page_tokens);
    std::vector<float> outs(static_cast<std::size_t>(team.size()) * kGroup * kHeadDim);
    const auto pass = [&] {
      return team.run([&](int thread) {
        const auto [begin, end] = part(pages.size(), thread, team.size());
        attend_pages(which.isa, kv, std::span(pages).subspan(begin, end - begin), q_.data(),
                     outs.data() + static_cast<std::size_t>(thread) * kGroup * kHeadDim, which.prefetch);
      });
    };
    const double bytes = static_cast<double>(pages.size()) * which.page_tokens * kHeadDim * 2 * 2;
    const Fields conditions = {{"threads", team.size()},
                               {"pattern", which.random ? "random" : "contiguous"},
                               {"page_tokens", which.page_tokens},
                               {"prefetch", which.prefetch},
                               {"isa", to_string(which.isa)}};
    recorder_.figure("cpu_attention", "GB/s",
                     with(conditions, {{"gqa", kGroup}, {"head_dim", kHeadDim}, {"bytes", bytes}}), pass,
                     [&](double seconds) { return bytes / seconds * 1e-9; });
  }

 private:
  /// A bf16 value in +-[0.5, 1): sign and mantissa from random bits.
  static std::uint16_t small_bf16(std::uint32_t bits) {
    return static_cast<std::uint16_t>(0x3F00u | (bits & 0x7Fu) | ((bits & 0x80u) << 8));
  }
  KvPool pool(int page_tokens) const { return {k_.as<std::uint16_t>(), v_.as<std::uint16_t>(), page_tokens}; }
  std::vector<std::uint32_t> page_list(bool random, int page_tokens) const {
    std::vector<std::uint32_t> pages(tokens_ / static_cast<std::size_t>(page_tokens));
    std::iota(pages.begin(), pages.end(), 0u);
    if (random) std::shuffle(pages.begin(), pages.end(), std::mt19937(11));
    return pages;
  }

  Recorder& recorder_;
  std::size_t tokens_;
  HostBuffer k_, v_;
  std::vector<float> q_;
};

void run_attention(Recorder& recorder) {
  AttentionBench bench(recorder);
  const std::vector<Isa> isas = available_isas();
  const Isa best = isas.back();
  for (const Isa isa : isas) bench.check(isa);

  // What a profile cannot do without comes first: the time cap cuts from the end.
  std::vector<AttentionCase> cases = {{true, 16, true, best}, {false, 16, true, best}};
  if (!recorder.quick()) {
    for (const int tokens : {32, 64}) cases.push_back({true, tokens, true, best});
    for (const int tokens : {16, 32, 64}) cases.push_back({true, tokens, false, best});
    cases.push_back({false, 16, false, best});
  }
  std::vector<int> threads = thread_counts(usable_threads(), recorder.quick());
  for (const int count : threads) {
    ThreadTeam team(count);
    for (const AttentionCase& which : cases) bench.measure(which, team);
  }
  // Other instruction sets: what this CPU would do as an older one, for profiles of machines nobody here has.
  if (recorder.quick()) return;
  for (const int count : thread_counts(usable_threads(), true)) {
    ThreadTeam team(count);
    for (const Isa isa : isas) {
      if (isa == best || isa == Isa::scalar) continue;
      for (const bool random : {true, false}) bench.measure({random, 16, true, isa}, team);
    }
  }
}

}  // namespace

std::vector<int> thread_counts(int most, bool quick) {
  std::vector<int> counts;
  if (!quick) {
    for (int count = 1; count < most; count *= 2) {
      counts.push_back(count);
      if (count > 1 && count + count / 2 < most) counts.push_back(count + count / 2);
    }
  } else if (most > 1) {
    counts.push_back(1);
  }
  counts.push_back(most);
  return counts;
}

void run_cpu_section(const std::string& name, Recorder& recorder) {
  if (name == "dram") return run_dram(recorder);
  if (name == "cpu_attention") return run_attention(recorder);
  throw ProbeError("There is no CPU section '" + name + "'.");
}

}  // namespace tandem::probe
