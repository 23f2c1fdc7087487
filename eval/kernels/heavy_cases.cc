// Cases of H2O's competition for places on the device.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "engine/mechanisms/survivors/kernels/heavy.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

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
    auto masses = case_scores(std::size_t{heads} * count, 1, ties);  // [head][held, arriving]
    for (float& value : masses) value = std::fabs(value);
    std::vector<std::uint32_t> places;  // of the held ones, below `begin`, in no order
    for (std::uint32_t head = 0; head < heads; ++head) {
      append(places, shuffled(begin, head));
      places.resize(std::size_t{head + 1} * held);
    }
    const auto mass = memory.input(std::move(masses));
    const auto positions = memory.input(std::move(places)), slots = memory.input(shuffled(pages, 7));
    const std::size_t old_values = std::size_t{heads} * held * dim, all_kept = std::size_t{heads} * kept;
    const auto old_keys = static_cast<const char*>(memory.stored_normals(old_values, type, 2));
    const auto old_kv = static_cast<const char*>(memory.stored_normals(old_values, type, 3));
    const KvPages kv = memory.normal_pages(pages, heads, dim, type, 4);
    float* const kept_mass = memory.result<float>(all_kept);
    std::uint32_t* const kept_positions = memory.result<std::uint32_t>(all_kept);
    char* const keys = static_cast<char*>(memory.stored_result(type, all_kept * dim));
    char* const values = static_cast<char*>(memory.stored_result(type, all_kept * dim));
    const std::uint32_t window_begin = end - std::min(window, end);
    const auto sets = memory.input(generated(heads, [&](std::size_t head) {
      HeavyCompetition set;
      set.mass = mass.target + head * count;
      set.positions = positions.target + head * held;
      set.keys = old_keys + head * held * kv.row_bytes();
      set.values = old_kv + head * held * kv.row_bytes();
      set.held = held;
      set.arriving = set.mass + held;
      set.arriving_begin = begin;
      set.arriving_end = end;
      set.slots = slots.target;
      set.kv_head = static_cast<std::uint32_t>(head);
      set.room = room;
      set.window_begin = window_begin;
      set.kept_mass = kept_mass + head * kept;
      set.kept_positions = kept_positions + head * kept;
      set.kept_keys = keys + head * kept * kv.row_bytes();
      set.kept_values = values + head * kept * kv.row_bytes();
      if (memory.cuda()) set.scratch = memory.output<std::uint32_t>(std::size_t{end} + room);
      return set;
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda()) return keep_heavy_cuda(sets.target, heads, kept, kv, memory.stream());
      memory.each(heads, [&](std::size_t head) { keep_heavy(sets[head], kv); });
    };
    prepared.expected = [=] {
      const auto k = rounded(case_normals(old_values, 2), type), v = rounded(case_normals(old_values, 3), type);
      const HostKv host = host_kv(kv, pages, 4);
      std::vector<double> out_mass, out_positions, out_keys, out_values;
      for (std::size_t head = 0; head < heads; ++head) {
        struct Candidate {
          std::uint32_t position;
          float mass;
          const float* k;
          const float* v;
        };
        std::vector<Candidate> all;
        for (std::uint32_t i = 0; i < count; ++i) {
          const std::size_t place = head * held + i;
          const float own = mass[head * count + i];
          const std::uint32_t p = i < held ? positions[place] : begin + i - held;
          if (i < held) {
            all.push_back({p, own, &k[place * dim], &v[place * dim]});
          } else {
            const std::uint32_t slot = slots[p / kListPageTokens - first_page];
            all.push_back({p, own, host.key(slot, head, p), host.value(slot, head, p)});
          }
        }
        // The window first, newest first; then by mass, older first.
        std::sort(all.begin(), all.end(), [&](const Candidate& a, const Candidate& b) {
          const bool in_a = a.position >= window_begin, in_b = b.position >= window_begin;
          if (in_a != in_b) return in_a;
          if (in_a) return a.position > b.position;
          return a.mass != b.mass ? a.mass > b.mass : a.position < b.position;
        });
        all.resize(kept);
        std::ranges::sort(all, {}, &Candidate::position);
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
      for (const std::uint32_t rank : shuffled(held, 3 + head))
        before.push_back(static_cast<float>(rank) * 2.0f * static_cast<float>(group));
      before.resize(std::size_t{head + 1} * room);
      append(places, shuffled(held, 30 + (alike ? 0 : head)));
      places.resize(std::size_t{head + 1} * room);
    }
    const std::size_t q_heads = std::size_t{heads} * group, width = held + std::size_t{1};
    const std::size_t all_places = std::size_t{heads} * room;
    const auto scores = memory.normals(q_heads * width, 1);
    const auto lse = memory.input(generated(q_heads, [=](std::size_t h) {
      double sum = 0;
      for (std::size_t t = 0; t < width; ++t) sum += std::exp(double{scores[h * width + t]});
      return static_cast<float>(std::log(sum));
    }));
    const KvPages kv = memory.normal_pages(2, heads, dim, type, 4);
    const auto mass = memory.input(std::move(before));
    const auto positions = memory.input(std::move(places));
    const std::vector<float> zeros(all_places * dim);
    char* const keys = static_cast<char*>(memory.stored(zeros, type));
    char* const values = static_cast<char*>(memory.stored(zeros, type));
    memory.result_at(mass.target, all_places);
    memory.result_at(positions.target, all_places);
    for (void* const part : {keys, values}) memory.stored_result_at(part, type, zeros.size());
    const std::uint32_t window_begin = held - std::min(held, window);
    const auto sets = memory.input(generated(heads, [=](std::size_t head) {
      HeavyStep set;
      set.lse = lse.target + head * group;
      set.mass = mass.target + head * room;
      set.positions = positions.target + head * room;
      set.keys = keys + head * room * kv.row_bytes();
      set.values = values + head * room * kv.row_bytes();
      set.held = held;
      set.set_scores(scores.target + head * group * width);
      set.room = room;
      set.window_begin = window_begin;
      set.position = position;
      set.slot = 1;
      set.kv_head = static_cast<std::uint32_t>(head);
      return set;
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda() && alike)
        return update_heavy_alike_cuda(sets.target, 1, heads, held, group, kv, memory.stream());
      if (memory.cuda()) return update_heavy_cuda(sets.target, heads, group, kv, memory.stream());
      if (alike) return update_heavy_alike(sets.host(), group, kv);
      memory.each(heads, [&](std::size_t head) { update_heavy(sets[head], group, kv); });
    };
    prepared.expected = [=] {
      const HostKv host = host_kv(kv, 2, 4);
      std::vector<double> masses_after(mass.host().begin(), mass.host().end()),
          at(positions.host().begin(), positions.host().end());
      std::vector<double> k(all_places * dim), v(k.size()), owns(heads), all(held);
      for (std::size_t head = 0; head < heads; ++head) {
        double* const after = &masses_after[head * room];
        if (alike) std::fill_n(after, held, 0.0);
        for (std::size_t h = head * group; h < (head + 1) * group; ++h) {
          for (std::size_t t = 0; t < width; ++t)
            (t == 0 ? owns[head] : after[t - 1]) += std::exp(double{scores[h * width + t]} - double{lse[h]});
        }
        for (std::uint32_t i = 0; i < held; ++i) all[i] += after[i];
      }
      for (std::size_t head = 0; head < heads; ++head) {
        const std::size_t first = head * room;
        const double* const ranks = alike ? all.data() : &masses_after[first];
        std::uint32_t place = held;
        for (std::uint32_t i = 0; i < held && held == room; ++i)
          if (positions[first + i] < window_begin && (place == held || ranks[i] < ranks[place])) place = i;
        masses_after[first + place] = owns[head];
        at[first + place] = position;
        for (std::uint32_t d = 0; d < dim; ++d) {
          k[(first + place) * dim + d] = double{host.key(1, head, position)[d]};
          v[(first + place) * dim + d] = double{host.value(1, head, position)[d]};
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
