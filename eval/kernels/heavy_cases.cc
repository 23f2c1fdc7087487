// Cases of H2O's competition for places on the device.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "engine/mechanisms/survivors/kernels/heavy.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

/// Positive numbers with, on request, many equal ones.
std::vector<float> masses(std::size_t n, unsigned seed, bool ties) {
  std::vector<float> values = case_normals(n, seed);
  for (float& value : values) value = ties ? std::round(std::fabs(value)) : std::fabs(value);
  return values;
}

// A layer's sets, one per KV head, meet a new prompt.
KernelCase keep_heavy_case(std::uint32_t heads, std::uint32_t dim, std::uint32_t held, std::uint32_t begin,
                           std::uint32_t end, std::uint32_t room, std::uint32_t window, DType type, bool ties) {
  KernelCase one{"keep_heavy", fmt::format("{} heads, {} + {} to {}, window {}, D {}, {}{}", heads, held, end - begin,
                                           room, window, dim, to_string(type), ties ? ", ties" : "")};
  const std::uint32_t arrive = end - begin, count = held + arrive, kept = std::min(count, room);
  const std::uint32_t first_page = begin / kListPageTokens, pages = pages_of(end) - first_page;
  const std::size_t row = 2 * dim * size_of(type);
  one.bytes = 1.0 * heads * (4.0 * count + 4.0 * held + 2.0 * kept * static_cast<double>(row) + 8.0 * kept);
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const auto mass = masses(std::size_t{heads} * count, 1, ties);  // [head][held, arriving]
    std::vector<std::uint32_t> positions;                           // of the held ones, below `begin`, in no order
    for (std::uint32_t head = 0; head < heads; ++head) {
      const auto order = shuffled(begin, head);
      positions.insert(positions.end(), order.begin(), order.begin() + held);
    }
    const std::vector<std::uint32_t> slots = shuffled(pages, 7);
    const std::size_t old_values = std::size_t{heads} * held * dim, new_values = std::size_t{pages} * heads * 32 * dim;
    const void* const old_keys = memory.stored_normals(old_values, type, 2);
    const void* const old_kv = memory.stored_normals(old_values, type, 3);
    const KvPages kv{memory.stored_normals(new_values, type, 4), type, heads, dim};
    const float* const device_mass = memory.input(mass);
    const std::uint32_t* const device_positions = memory.input(positions);
    const std::uint32_t* const device_slots = memory.input(slots);
    float* const kept_mass = memory.output<float>(std::size_t{heads} * kept);
    std::uint32_t* const kept_positions = memory.output<std::uint32_t>(std::size_t{heads} * kept);
    const std::size_t kept_values = std::size_t{heads} * kept * dim, width = dim * size_of(type);
    void* const keys = memory.bytes(kept_values * size_of(type));
    void* const values = memory.bytes(kept_values * size_of(type));
    std::vector<HeavyCompetition> sets(heads);
    for (std::uint32_t head = 0; head < heads; ++head) {
      HeavyCompetition& set = sets[head];
      set.mass = device_mass + std::size_t{head} * count;
      set.positions = device_positions + std::size_t{head} * held;
      set.keys = static_cast<const char*>(old_keys) + std::size_t{head} * held * width;
      set.values = static_cast<const char*>(old_kv) + std::size_t{head} * held * width;
      set.held = held;
      set.arriving = set.mass + held;
      set.arriving_begin = begin;
      set.arriving_end = end;
      set.slots = device_slots;
      set.kv_head = head;
      set.room = room;
      set.window_begin = end - std::min(window, end);
      set.kept_mass = kept_mass + std::size_t{head} * kept;
      set.kept_positions = kept_positions + std::size_t{head} * kept;
      set.kept_keys = static_cast<char*>(keys) + head * kept * width;
      set.kept_values = static_cast<char*>(values) + head * kept * width;
      if (memory.cuda()) set.scratch = memory.output<std::uint32_t>(std::size_t{end} + room);
    }
    const HeavyCompetition* const device = memory.input(sets);
    prepared.run = [=, &memory] {
      if (memory.cuda()) return keep_heavy_cuda(device, heads, kept, kv, memory.stream());
      memory.pool().parallel_for(heads, [&](std::size_t head) { keep_heavy(sets[head], kv); });
    };
    prepared.result = [=, &memory] {
      std::vector<float> all = memory.read(kept_mass, std::size_t{heads} * kept);
      append(all, memory.read(kept_positions, std::size_t{heads} * kept));
      for (const void* rows : {keys, values}) {
        append(all, memory.read_stored(rows, type, kept_values));
      }
      return all;
    };
    prepared.expected = [=] {
      const auto k = rounded(case_normals(old_values, 2), type), v = rounded(case_normals(old_values, 3), type);
      const auto page = rounded(case_normals(new_values, 4), type);
      std::vector<double> out_mass, out_positions, out_keys, out_values;
      for (std::uint32_t head = 0; head < heads; ++head) {
        struct Candidate {
          std::uint32_t position;
          float mass;
          const float* k;
          const float* v;
        };
        std::vector<Candidate> all;
        for (std::uint32_t i = 0; i < count; ++i) {
          const std::size_t place = std::size_t{head} * held + i;
          if (i < held) {
            all.push_back({positions[place], mass[std::size_t{head} * count + i], &k[place * dim], &v[place * dim]});
            continue;
          }
          const std::uint32_t p = begin + i - held;
          const float* row_k =
              &page[((std::size_t{slots[p / kListPageTokens - first_page]} * heads + head) * 2 * kListPageTokens +
                     p % kListPageTokens) *
                    dim];
          all.push_back({p, mass[std::size_t{head} * count + i], row_k, row_k + std::size_t{kListPageTokens} * dim});
        }
        // The window first, newest first; then by mass, older first.
        const std::uint32_t window_begin = end - std::min(window, end);
        std::sort(all.begin(), all.end(), [&](const Candidate& a, const Candidate& b) {
          const bool in_a = a.position >= window_begin, in_b = b.position >= window_begin;
          if (in_a != in_b) return in_a;
          if (in_a) return a.position > b.position;
          return a.mass != b.mass ? a.mass > b.mass : a.position < b.position;
        });
        all.resize(kept);
        std::sort(all.begin(), all.end(),
                  [](const Candidate& a, const Candidate& b) { return a.position < b.position; });
        for (const Candidate& c : all) {
          out_mass.push_back(double{c.mass});
          out_positions.push_back(c.position);
          out_keys.insert(out_keys.end(), c.k, c.k + dim);
          out_values.insert(out_values.end(), c.v, c.v + dim);
        }
      }
      for (const auto* part : {&out_positions, &out_keys, &out_values}) append(out_mass, *part);
      return out_mass;
    };
  };
  return one;
}

// A decode step of a layer's sets, each for itself or all alike. Masses are apart by more than a weight can move them,
// so that rounding decides nothing; the lightest of a step alone are apart by more than rounding as they come.
KernelCase update_heavy_case(std::uint32_t heads, std::uint32_t group, std::uint32_t dim, std::uint32_t held,
                             std::uint32_t room, std::uint32_t window, DType type, bool alike = false,
                             bool repeats = false) {
  KernelCase one{alike ? "update_heavy_alike" : "update_heavy",
                 fmt::format("{} heads of {}, {} of {}, window {}, D {}, {}", heads, group, held, room, window, dim,
                             to_string(type))};
  one.bytes = 1.0 * heads * (4.0 * group * (held + 1.0) + 12.0 * held + 4.0 * dim * static_cast<double>(size_of(type)));
  one.tolerance = 1e-5;
  one.threaded = !alike;
  // `repeats`: the newcomer is itself outside the window, so that it is what the next run drops: every run has one.
  const std::uint32_t position = repeats ? held - window - 1 : held + 5;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    std::vector<float> before;
    std::vector<std::uint32_t> places;
    for (std::uint32_t head = 0; head < heads; ++head) {
      const auto order = shuffled(held, 3 + head), at = shuffled(held, 30 + (alike ? 0 : head));
      for (const std::uint32_t rank : order)
        before.push_back(static_cast<float>(rank) * 2.0f * static_cast<float>(group));
      before.resize(std::size_t{head + 1} * room);
      append(places, at);
      places.resize(std::size_t{head + 1} * room);
    }
    const auto scores = case_normals(std::size_t{heads} * group * (held + 1), 1);
    std::vector<float> sums(std::size_t{heads} * group);
    for (std::size_t h = 0; h < sums.size(); ++h) {
      double sum = 0;
      for (std::uint32_t t = 0; t <= held; ++t) sum += std::exp(double{scores[h * (held + 1) + t]});
      sums[h] = static_cast<float>(std::log(sum));
    }
    const std::size_t page_values = std::size_t{2} * heads * 32 * dim;
    const KvPages kv{memory.stored_normals(page_values, type, 4), type, heads, dim};
    const float* const device_scores = memory.input(scores);
    const float* const lse = memory.input(sums);
    float* const mass = memory.input(before);
    std::uint32_t* const positions = memory.input(places);
    const std::size_t values = std::size_t{heads} * room * dim, width = dim * size_of(type);
    void* const keys = memory.stored(std::vector<float>(values), type);
    void* const rows = memory.stored(std::vector<float>(values), type);
    std::vector<HeavyStep> sets(heads);
    for (std::uint32_t head = 0; head < heads; ++head) {
      HeavyStep& set = sets[head];
      set.lse = lse + std::size_t{head} * group;
      set.mass = mass + std::size_t{head} * room;
      set.positions = positions + std::size_t{head} * room;
      set.keys = static_cast<char*>(keys) + head * room * width;
      set.values = static_cast<char*>(rows) + head * room * width;
      set.held = held;
      set.set_scores(device_scores + std::size_t{head} * group * (held + 1));
      set.room = room;
      set.window_begin = held - std::min(held, window);
      set.position = position;
      set.slot = 1;
      set.kv_head = head;
    }
    const HeavyStep* const device = memory.input(sets);
    prepared.run = [=, &memory] {
      if (memory.cuda()) {
        if (alike) {
          update_heavy_alike_cuda(device, 1, heads, held, group, kv, memory.stream());
        } else {
          update_heavy_cuda(device, heads, group, kv, memory.stream());
        }
      } else if (alike) {
        update_heavy_alike(sets, group, kv);
      } else {
        memory.pool().parallel_for(heads, [&](std::size_t head) { update_heavy(sets[head], group, kv); });
      }
    };
    prepared.result = [=, &memory] {
      std::vector<float> all = memory.read(mass, std::size_t{heads} * room);
      append(all, memory.read(positions, std::size_t{heads} * room));
      for (const void* part : {keys, rows}) {
        append(all, memory.read_stored(part, type, values));
      }
      return all;
    };
    prepared.expected = [=] {
      const auto page = rounded(case_normals(page_values, 4), type);
      std::vector<double> masses_after(before.begin(), before.end()), at(places.begin(), places.end());
      std::vector<double> k(values), v(values), owns, all(held);
      for (std::uint32_t head = 0; head < heads; ++head) {
        double own = 0;
        if (alike) std::fill_n(masses_after.begin() + static_cast<std::ptrdiff_t>(std::size_t{head} * room), held, 0.0);
        for (std::uint32_t g = 0; g < group; ++g) {
          const std::size_t h = std::size_t{head} * group + g;
          for (std::uint32_t t = 0; t <= held; ++t) {
            const double weight = std::exp(double{scores[h * (held + 1) + t]} - double{sums[h]});
            (t == 0 ? own : masses_after[std::size_t{head} * room + t - 1]) += weight;
          }
        }
        for (std::uint32_t i = 0; i < held; ++i) all[i] += masses_after[std::size_t{head} * room + i];
        owns.push_back(own);
      }
      for (std::uint32_t head = 0; head < heads; ++head) {
        std::uint32_t place = held;
        const auto mass_of = [&](std::uint32_t i) {
          return alike ? all[i] : masses_after[std::size_t{head} * room + i];
        };
        for (std::uint32_t i = 0; i < held && held == room; ++i) {
          if (places[std::size_t{head} * room + i] >= held - std::min(held, window)) continue;
          if (place == held || mass_of(i) < mass_of(place)) place = i;
        }
        masses_after[std::size_t{head} * room + place] = owns[head];
        at[std::size_t{head} * room + place] = position;
        const std::size_t from = ((std::size_t{heads} + head) * 2 * kListPageTokens + position % kListPageTokens) * dim;
        for (std::uint32_t d = 0; d < dim; ++d) {
          k[(std::size_t{head} * room + place) * dim + d] = double{page[from + d]};
          v[(std::size_t{head} * room + place) * dim + d] = double{page[from + std::size_t{kListPageTokens} * dim + d]};
        }
      }
      for (const auto* part : {&at, &k, &v}) append(masses_after, *part);
      return masses_after;
    };
  };
  return one;
}

}  // namespace

void append_heavy_cases(CaseSize size, const TakeCase& take) {
  if (size == CaseSize::bench) {
    take(keep_heavy_case(8, 128, 0, 0, 32768, 6144, 3072, DType::bf16, false));
    take(update_heavy_case(64, 4, 128, 6144, 6144, 3072, DType::bf16, false, true));
    take(update_heavy_case(8, 4, 128, 6144, 6144, 3072, DType::bf16, true, true));
    return;
  }
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    take(keep_heavy_case(2, 64, 0, 0, 100, 40, 16, type, false));
    take(keep_heavy_case(1, 5, 30, 70, 75, 20, 8, type, true));
    take(update_heavy_case(2, 4, 64, 40, 40, 9, type));
    take(update_heavy_case(1, 3, 5, 10, 12, 4, type));
    take(update_heavy_case(3, 2, 64, 40, 40, 9, type, true));
  }
  take(keep_heavy_case(1, 8, 40, 200, 200, 16, 4, DType::f32, true));         // a smaller room
  take(keep_heavy_case(1, 8, 3, 50, 53, 100, 16, DType::f32, false));         // all stay
  take(keep_heavy_case(1, 8, 5, 20, 60, 10, 32, DType::f32, false));          // more recent ones than places
  take(keep_heavy_case(2, 8, 60, 80, 96, 40, 32, DType::f32, false));         // some that were held are recent
  take(keep_heavy_case(1, 8, 0, 0, 3000, 1500, 100, DType::f32, true));       // more than a pass of the walk
  take(keep_heavy_case(2, 8, 700, 3000, 5000, 1500, 300, DType::f32, true));  // the same, with many held before
  take(update_heavy_case(1, 1, 8, 0, 4, 2, DType::f32));
  take(update_heavy_case(1, 2, 8, 700, 700, 100, DType::f32));
  take(update_heavy_case(4, 1, 8, 5, 7, 2, DType::f32, true));
  take(update_heavy_case(2, 3, 8, 300, 300, 40, DType::f32, true));
}

}  // namespace tandem::eval
