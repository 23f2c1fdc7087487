// Cases of choices: what is resident of one, what heads choose together, and the next token.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>

#include "engine/kernels/attention_weights.h"
#include "engine/kernels/sampling.h"
#include "engine/kernels/topk.h"
#include "engine/mechanisms/residency/kernels/residency.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

// What of a choice is resident, and the swap that follows: tables, choices and moves, all as numbers.
KernelCase residents_case(std::uint32_t lists, std::uint32_t blocks, std::uint32_t slots, std::uint32_t pages,
                          bool swap) {
  KernelCase one{swap ? "swap_residents" : "split_residents",
                 fmt::format("{} lists, {} of {} blocks of {} pages", lists, slots, blocks, pages)};
  one.bytes = 4.0 * lists * slots * (swap ? 2.0 : 4.0);
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    // As in a choice of as many blocks as are resident.
    std::vector<std::vector<std::uint32_t>> chosen(lists), table(lists), missing(lists);
    // The choice that brings the table back: without it only the first run would have something to swap.
    std::vector<std::vector<std::uint32_t>> chosen_back(lists), missing_back(lists);
    for (std::uint32_t list = 0; list < lists; ++list) {
      const auto some = shuffled(blocks, list), others = shuffled(blocks, 100 + list);
      table[list].assign(some.begin(), some.begin() + slots);
      chosen[list].assign(others.begin(), others.begin() + slots);
      chosen_back[list] = table[list];
      std::sort(chosen[list].begin(), chosen[list].end());
      std::sort(chosen_back[list].begin(), chosen_back[list].end());
      const auto differ = [](const auto& of, const auto& without) {
        std::vector<std::uint32_t> list_of{0};
        std::set_difference(of.begin(), of.end(), without.begin(), without.end(), std::back_inserter(list_of));
        list_of[0] = static_cast<std::uint32_t>(list_of.size() - 1);
        return list_of;
      };
      missing[list] = differ(chosen[list], chosen_back[list]);
      missing_back[list] = differ(chosen_back[list], chosen[list]);
      chosen[list].insert(chosen[list].begin(), slots);
      chosen_back[list].insert(chosen_back[list].begin(), slots);
    }
    const std::vector<std::uint32_t> host_pages = shuffled(blocks * pages, 9);
    const std::uint32_t* const device_pages = memory.input(host_pages);
    std::vector<ResidentSplit> splits(lists);
    std::vector<ResidentSwap> swaps(lists), swaps_back(lists);
    for (std::uint32_t list = 0; list < lists; ++list) {
      std::uint32_t* const at = memory.input(table[list]);
      splits[list] = {memory.input(chosen[list]), at, slots, memory.output<std::uint32_t>(1 + slots),
                      memory.output<std::uint32_t>(1 + slots)};
      swaps[list] = {memory.input(chosen[list]),
                     memory.input(missing[list]),
                     at,
                     slots,
                     device_pages,
                     pages,
                     memory.output<std::uint32_t>(std::size_t{slots} * pages),
                     memory.output<std::uint32_t>(std::size_t{slots} * pages),
                     memory.output<std::uint32_t>(1)};
      swaps_back[list] = swaps[list];
      swaps_back[list].chosen = memory.input(chosen_back[list]);
      swaps_back[list].missing = memory.input(missing_back[list]);
    }
    const ResidentSplit* const device_splits = memory.input(splits);
    const ResidentSwap* const device_swaps = memory.input(swaps);
    const ResidentSwap* const device_swaps_back = memory.input(swaps_back);
    prepared.run = [=, &memory, back = false]() mutable {
      const auto& now = back ? swaps_back : swaps;
      const ResidentSwap* const device_now = back ? device_swaps_back : device_swaps;
      back = !back;
      if (memory.cuda()) {
        if (swap) {
          swap_residents_cuda(device_now, lists, memory.stream());
        } else {
          split_residents_cuda(device_splits, lists, memory.stream());
        }
      } else {
        memory.pool().parallel_for(lists, [&](std::size_t list) {
          if (swap) {
            swap_residents(now[list]);
          } else {
            split_residents(splits[list]);
          }
        });
      }
    };
    prepared.result = [=, &memory] {
      std::vector<float> all;
      const auto add = [&](const std::uint32_t* from, std::size_t n) {
        const auto part = memory.read(from, n);
        append(all, part);
        return part;
      };
      for (std::uint32_t list = 0; list < lists; ++list) {
        if (!swap) {
          add(splits[list].chosen, 1 + slots);
          add(splits[list].missing, 1 + std::size_t{memory.read(splits[list].missing, 1)[0]});
          continue;
        }
        add(swaps[list].table, slots);
        const std::size_t moves = add(swaps[list].moves, 1)[0];
        add(swaps[list].from, moves);
        add(swaps[list].to, moves);
      }
      return all;
    };
    prepared.expected = [=] {
      std::vector<double> all;
      for (std::uint32_t list = 0; list < lists; ++list) {
        if (!swap) {
          append(all, chosen[list]);
          append(all, missing[list]);
          continue;
        }
        std::vector<double> from, to;
        auto next = missing[list].begin() + 1;
        for (std::uint32_t slot = 0; slot < slots; ++slot) {
          std::uint32_t block = table[list][slot];
          if (std::find(chosen[list].begin() + 1, chosen[list].end(), block) == chosen[list].end()) {
            block = *next++;
            for (std::uint32_t page = 0; page < pages; ++page) {
              from.push_back(host_pages[block * pages + page]);
              to.push_back(slot * pages + page);
            }
          }
          all.push_back(block);
        }
        all.push_back(static_cast<double>(from.size()));
        append(all, from);
        append(all, to);
      }
      return all;
    };
  };
  return one;
}

// What KV heads choose together. Each row has fewer blocks than the one before.
KernelCase reduce_scores_case(std::uint32_t rows, std::uint32_t lists, std::uint32_t heads, std::uint32_t group,
                              std::uint32_t most, Reduce reduce) {
  KernelCase one{"reduce_scores",
                 fmt::format("{} rows of {} lists of {} heads of {}, {}, {}", rows, lists, heads, group, most,
                             reduce == Reduce::max    ? "max"
                             : reduce == Reduce::mean ? "mean"
                                                      : "softmax mean")};
  one.bytes = 4.0 * lists * (rows * most - rows * (rows - 1) / 2.0) * (1.0 * heads * group + 1.0);
  one.tolerance = 1e-5;
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    std::vector<std::vector<float>> scores;
    std::vector<ScoreReduction> work;
    for (std::uint32_t row = 0; row < rows; ++row) {
      const std::uint32_t n = most - row;
      scores.push_back(case_normals(std::size_t{lists} * heads * group * n, 1 + row, 3));
      std::vector<float> sums(std::size_t{lists} * heads * group);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = log_sum_exp(scores.back().data() + i * n, n);
      work.push_back(
          {memory.input(scores.back()), memory.output<float>(std::size_t{lists} * n), n, memory.input(sums)});
    }
    const ScoreReduction* const at = memory.input(work);
    prepared.run = [=, &memory] {
      if (memory.cuda()) return reduce_scores_cuda(at, rows, most, {lists, heads, group}, reduce, memory.stream());
      memory.pool().parallel_for(std::size_t{rows} * lists, [&](std::size_t i) {
        const ScoreReduction& row = work[i / lists];
        const std::size_t list = i % lists;
        reduce_scores(row.scores + list * heads * group * row.n, heads, group, row.n, reduce, row.out + list * row.n);
      });
    };
    prepared.result = [=, &memory] {
      std::vector<float> all;
      for (const ScoreReduction& row : work) {
        append(all, memory.read(row.out, std::size_t{lists} * row.n));
      }
      return all;
    };
    prepared.expected = [=] {
      std::vector<double> expected;
      for (std::uint32_t row = 0; row < rows; ++row) {
        const std::size_t n = most - row, per_list = std::size_t{heads} * group * n;
        for (std::size_t i = 0; i < lists * n; ++i) {
          double& own = expected.emplace_back(0);
          for (std::uint32_t head = 0; head < heads; ++head) {
            double best = -INFINITY, sum = 0, weights = 0;
            for (std::uint32_t g = 0; g < group; ++g) {
              const double score = double{scores[row][i / n * per_list + (std::size_t{head} * group + g) * n + i % n]};
              best = std::max(best, score);
              sum += score;
              double all = 0;
              for (std::size_t other = 0; reduce == Reduce::softmax_mean && other < n; ++other)
                all += std::exp(double{scores[row][i / n * per_list + (std::size_t{head} * group + g) * n + other]});
              weights += std::exp(score) / all / group;
            }
            own += reduce == Reduce::max ? best : reduce == Reduce::mean ? sum / group : std::log(weights);
          }
        }
      }
      return expected;
    };
  };
  return one;
}

// Draws. The oracle is the CPU's rule in float64 where no draw is near an edge: here the token that a draw must hit is
// known, since it has nearly all of the weight, or all that is kept.
KernelCase sample_case(std::uint32_t rows, std::uint32_t vocab, const Sampling& how, const char* name) {
  KernelCase one{"sample_tokens", fmt::format("{} rows, {} tokens, {}", rows, vocab, name)};
  one.bytes = 4.0 * rows * vocab;
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    auto logits = case_normals(std::size_t{rows} * vocab, 1);
    std::vector<std::uint32_t> best(rows);
    for (std::uint32_t row = 0; row < rows; ++row) {
      best[row] = row * 7919 % vocab;
      logits[std::size_t{row} * vocab + best[row]] = how.temperature > 0 ? 60 * how.temperature : 60.0f;
    }
    const float* const at = memory.input(logits);
    std::int32_t* const tokens = memory.output<std::int32_t>(rows);
    std::vector<SampleRow> list(rows);
    for (std::uint32_t row = 0; row < rows; ++row) list[row] = {at + std::size_t{row} * vocab, how, row, tokens + row};
    const SampleRow* const device = memory.input(list);
    prepared.run = [=, &memory] {
      if (memory.cuda()) return sample_tokens_cuda(device, rows, vocab, memory.stream());
      memory.pool().parallel_for(
          rows, [&](std::size_t row) { tokens[row] = sample_token(list[row].logits, vocab, how, list[row].position); });
    };
    prepared.result = [=, &memory] { return memory.numbers(tokens, rows); };
    prepared.expected = [=] { return std::vector<double>(best.begin(), best.end()); };
  };
  return one;
}

}  // namespace

void append_choice_cases(CaseSize size, const TakeCase& take) {
  if (size == CaseSize::bench) {
    take(residents_case(40, 1024, 64, 2, false));
    take(residents_case(40, 1024, 64, 2, true));
    take(reduce_scores_case(8, 8, 1, 4, 1024, Reduce::mean));
    take(sample_case(8, 131072, {0.8f, 0, 0.95f, 0, 1}, "top-p"));
    take(sample_case(8, 131072, {0.8f, 40, 1, 0, 1}, "top-k"));
    return;
  }
  for (const bool swap : {false, true}) {
    take(residents_case(3, 40, 7, 2, swap));
    take(residents_case(1, 5, 5, 1, swap));  // all are resident
    take(residents_case(2, 900, 300, 1, swap));
  }
  for (const Reduce reduce : {Reduce::max, Reduce::mean, Reduce::softmax_mean}) {
    take(reduce_scores_case(1, 1, 2, 4, 70, reduce));
    take(reduce_scores_case(3, 2, 1, 1, 300, reduce));
  }
  take(sample_case(3, 1000, {}, "greedy"));
  take(sample_case(3, 1000, {1, 0, 1, 0, 1}, "all"));
  take(sample_case(2, 3000, {0.7f, 40, 0.9f, 0.1f, 2}, "filtered"));
  take(sample_case(1, 1, {2, 5, 0.5f, 1, 3}, "one token"));
}

}  // namespace tandem::eval
