// Where an answer is in a text, and whether two are equal: any bytes must get a verdict.
#include "eval/answers/rules.h"
#include "tests/fuzz/fuzz.h"

namespace tandem::fuzz {
namespace {

using namespace eval;

/// A text is graded against what the input says behind its last line end.
fuzz::Format graded(const std::string& name, AnswerKind kind, std::vector<std::string> texts) {
  return {name, std::move(texts), [kind](const std::string& input) {
            const std::size_t end = input.rfind('\n');
            const std::string reference = end == std::string::npos ? input : input.substr(end + 1);
            if (const auto answer = reference_answer(reference, kind)) grade_answer(input, *answer, kind);
          }};
}

}  // namespace

int fuzz_answers(int argc, char** argv) {
  return fuzz::run(
      argc, argv,
      {graded("integer", AnswerKind::integer,
              {"So the answer is $\\boxed{204}$.\n204", "I think 12, or \\boxed{013}\n13"}),
       graded("number", AnswerKind::number,
              {"He has 3.\nThe answer is $1,200.50.\n#### 1,200.5\n1200.5", "</think> 18 eggs, -3 left\n-3"}),
       graded("letter", AnswerKind::letter, {"Thus.\nAnswer: B\nB", "**Answer: $\\boxed{\\text{C}}$**\nC"}),
       graded("expression", AnswerKind::expression,
              {"$\\boxed{\\frac{\\sqrt{3}}{2}+\\pi}$ or $x \\in [1, 2) \\cup \\{3\\}$\n\\frac{\\sqrt3}{2}+\\pi",
               "\\[\\boxed{\\begin{pmatrix}1 & -2\\\\ 3^{x} & "
               "4\\end{pmatrix}}\\]\n\\begin{pmatrix}1&-2\\\\3^x&4\\end{pmatrix}",
               "The result is 3/4 = 75\\%, \\log_2 8, \\binom{5}{2}, 5!, |x|.\n0.75"})});
}

}  // namespace tandem::fuzz
