// Cases of the choice of a token: the two best logits of a row, and the log probability of a given one.
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "engine/kernels/sampling.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

// Results: best, its logit, second, its logit, the log probability of a given token, of each row.
KernelCase choose_case(std::uint32_t n, std::uint32_t vocab, const char* kind) {
  KernelCase one{"choose", fmt::format("n {}, vocabulary {}, {}", n, vocab, kind)};
  one.bytes = static_cast<double>(n) * vocab * 4;
  one.tolerance = 1e-6;
  one.set_up = [=, what = std::string(kind)](CaseMemory& memory, PreparedCase& prepared) {
    auto logits = case_normals(std::size_t{n} * vocab, 13, 4);
    std::vector<std::int32_t> tokens(n);
    for (std::uint32_t i = 0; i < n; ++i) tokens[i] = static_cast<std::int32_t>(i * 7919u % vocab);
    for (float& logit : logits) {
      if (what == "ties") logit = std::round(logit);
      if (what == "mostly -inf" && logit < 4) logit = -std::numeric_limits<float>::infinity();
    }
    if (what == "mostly -inf")
      for (std::uint32_t i = 0; i < n; ++i) logits[std::size_t{i} * vocab + static_cast<std::size_t>(tokens[i])] = 1;
    const float* const at = memory.input(logits);
    const std::int32_t* const ids = memory.input(tokens);
    TopTwo* const top = memory.output<TopTwo>(n);
    double* const log_probabilities = memory.output<double>(n);
    void* const scratch = memory.cuda() ? memory.bytes(choose_scratch_bytes(n, vocab)) : nullptr;
    prepared.run = [=, &memory] {
      if (memory.cuda())
        return choose_cuda(at, n, vocab, ids, top, nullptr, log_probabilities, scratch, memory.stream());
      for (std::size_t i = 0; i < n; ++i) {
        top[i] = top_two(at + i * vocab, vocab);
        log_probabilities[i] = log_probability(at + i * vocab, vocab, static_cast<std::uint32_t>(ids[i]));
      }
    };
    prepared.result = [=, &memory] {
      std::vector<float> result;
      const auto tops = memory.read(top, n);
      const auto logs = memory.read(log_probabilities, n);
      for (std::size_t i = 0; i < n; ++i)
        for (const float value :
             {static_cast<float>(tops[i].best), tops[i].best_logit, static_cast<float>(tops[i].second),
              tops[i].second_logit, static_cast<float>(logs[i])})
          result.push_back(value);
      return result;
    };
    prepared.expected = [=] {
      std::vector<double> expected;
      for (std::size_t row = 0; row < n; ++row) {
        const float* const x = logits.data() + row * vocab;
        std::size_t best = 0, second = vocab;
        for (std::size_t i = 1; i < vocab; ++i)
          if (x[i] > x[best]) best = i;
        for (std::size_t i = 0; i < vocab; ++i)
          if (i != best && (second == vocab || x[i] > x[second])) second = i;
        double sum = 0;
        for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(double{x[i]} - double{x[best]});
        const double infinity = std::numeric_limits<double>::infinity();
        for (const double value :
             {static_cast<double>(best), double{x[best]}, second == vocab ? -1.0 : static_cast<double>(second),
              second == vocab ? -infinity : double{x[second]},
              double{x[static_cast<std::size_t>(tokens[row])]} - double{x[best]} - std::log(sum)})
          expected.push_back(value);
      }
      return expected;
    };
  };
  return one;
}

}  // namespace

void append_next_token_cases(CaseSize size, const TakeCase& take) {
  if (size == CaseSize::bench) {
    for (const std::uint32_t n : {1u, 16u}) take(choose_case(n, 151936, "random"));
    return;
  }
  for (const char* kind : {"random", "ties", "mostly -inf"})
    for (const std::uint32_t vocab : {2u, 31u, 8192u, 20000u}) take(choose_case(3, vocab, kind));
  take(choose_case(2, 1, "random"));
}

}  // namespace tandem::eval
