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
    using List = std::vector<std::uint32_t>;  // chosen and missing blocks behind their count
    const auto counted = [](List list) {
      list.insert(list.begin(), static_cast<std::uint32_t>(list.size()));
      return list;
    };
    const auto differ = [](const List& of, const List& without) {
      List difference;
      std::ranges::set_difference(of, without, std::back_inserter(difference));
      return difference;
    };
    const auto host_pages = memory.input(shuffled(blocks * pages, 9));
    std::vector<List> chosen, table, missing;
    std::vector<ResidentSplit> splits;
    // `back`: the choice that brings the table back: without it only the first run would have something to swap.
    std::vector<ResidentSwap> swaps, swaps_back;
    for (std::uint32_t list = 0; list < lists; ++list) {
      // As in a choice of as many blocks as are resident.
      List some = shuffled(blocks, list), others = shuffled(blocks, 100 + list);
      some.resize(slots);
      others.resize(slots);
      std::uint32_t* const at = memory.input(some).target;
      table.push_back(some);
      std::ranges::sort(some);
      std::ranges::sort(others);
      chosen.push_back(counted(others));
      missing.push_back(counted(differ(others, some)));
      const auto placed = [&](const List& values) { return memory.input(values).target; };
      if (!swap) {
        std::uint32_t* const copy = memory.result<std::uint32_t>(1 + slots);
        std::uint32_t* const lacks = memory.output<std::uint32_t>(1 + slots);
        splits.push_back({placed(chosen[list]), at, slots, copy, lacks});
        memory.result_lists(lacks, {lacks + 1});
        continue;
      }
      swaps.push_back({placed(chosen[list]), placed(missing[list]), memory.result_at(at, slots), slots,
                       host_pages.target, pages, memory.output<std::uint32_t>(std::size_t{slots} * pages),
                       memory.output<std::uint32_t>(std::size_t{slots} * pages), memory.output<std::uint32_t>(1)});
      memory.result_lists(swaps[list].moves, {swaps[list].from, swaps[list].to});
      swaps_back.push_back(swaps[list]);
      swaps_back[list].chosen = placed(counted(some));
      swaps_back[list].missing = placed(counted(differ(some, others)));
    }
    const auto split_list = memory.input(splits);
    const auto there = memory.input(swaps), back_again = memory.input(swaps_back);
    prepared.run = [=, &memory, back = false]() mutable {
      const auto& now = back ? back_again : there;
      back = !back;
      if (memory.cuda() && swap) return swap_residents_cuda(now.target, lists, memory.stream());
      if (memory.cuda()) return split_residents_cuda(split_list.target, lists, memory.stream());
      memory.each(lists, [&](std::size_t list) {
        if (swap) {
          swap_residents(now[list]);
        } else {
          split_residents(split_list[list]);
        }
      });
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
    const std::size_t all_heads = std::size_t{lists} * heads * group;
    const auto scores = generated(rows, [&](std::size_t row) {
      return memory.normals(all_heads * (most - row), static_cast<unsigned>(1 + row), 3);
    });
    const auto work = memory.input(generated(rows, [&](std::size_t row) {
      const std::uint32_t n = most - static_cast<std::uint32_t>(row);
      const auto sums = generated(all_heads, [&](std::size_t i) { return log_sum_exp(&scores[row][i * n], n); });
      return ScoreReduction{scores[row].target, memory.result<float>(std::size_t{lists} * n), n,
                            memory.input(sums).target};
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda())
        return reduce_scores_cuda(work.target, rows, most, {lists, heads, group}, reduce, memory.stream());
      memory.each(std::size_t{rows} * lists, [&](std::size_t i) {
        const ScoreReduction& row = work[i / lists];
        const std::size_t list = i % lists;
        reduce_scores(row.scores + list * heads * group * row.n, heads, group, row.n, reduce, row.out + list * row.n);
      });
    };
    prepared.expected = [=] {
      std::vector<double> expected;
      for (std::uint32_t row = 0; row < rows; ++row) {
        const std::size_t n = most - row;
        for (std::size_t i = 0; i < lists * n; ++i) {
          double& own = expected.emplace_back(0);
          for (std::size_t head = i / n * heads; head < (i / n + 1) * heads; ++head) {
            double best = -INFINITY, sum = 0, weights = 0;
            for (std::size_t g = head * group; g < (head + 1) * group; ++g) {
              const auto of_head = std::span(scores[row].host()).subspan(g * n, n);
              const double score = double{of_head[i % n]};
              best = std::max(best, score);
              sum += score;
              double all = 0;
              for (std::size_t other = 0; reduce == Reduce::softmax_mean && other < n; ++other)
                all += std::exp(double{of_head[other]});
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
    const float* const at = memory.input(std::move(logits)).target;
    std::int32_t* const tokens = memory.result<std::int32_t>(rows);
    const auto list = memory.input(generated(rows, [=](std::size_t row) {
      return SampleRow{at + row * vocab, how, row, tokens + row};
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda()) return sample_tokens_cuda(list.target, rows, vocab, memory.stream());
      memory.each(
          rows, [&](std::size_t row) { tokens[row] = sample_token(list[row].logits, vocab, how, list[row].position); });
    };
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
