"""Makes math_goldens.json: pairs of answers of our own, and whether Hendrycks' Python says that they are equal.

  python3 tests/eval/scoring/math_goldens.py MATH_EQUIVALENCE [--count N] [--seed N] [--records FILE] [--out FILE]

MATH_EQUIVALENCE: modeling/math_equivalence.py of github.com/hendrycks/math at 985bdc1. --count: random pairs; the file in the
repository has the default. More of them, or a file's own answers (--records: math500.jsonl), each against changed forms of
itself and of others, are compared by the tests with

  TANDEM_MATH_GOLDENS=FILE test_eval_scoring --gtest_filter='MathGoldens.*'
"""
import argparse
import importlib.util
import json
import pathlib
import random

ANSWERS = r"""12 -3 0 0.5 .5 -.5 0.50 3/4 -3/4 03/4 3/-4 1/2/3 x=5 x = 5 ab=5 abc=5 5=x= = \frac{1}{2} \frac12 \dfrac{1}{2} \tfrac12 \frac1{72}
\frac{72}1 \frac \frac1 \sqrt \sqrt3 \sqrt{3} 2\sqrt3 \sqrt\frac12 90^\circ 90^{\circ} 90 50\% 50% 50 \$5 $5$ 5 10,080 10080 10,\!080 1,2,3
\left(1,2\right) (1,2) \left[0,\frac{\pi}{2}\right) \leftarrow \text{Evelyn} \text{even} \mathrm{even} \{1\} \begin{pmatrix}1\\2\end{pmatrix}
3+4i 3+4\,i p-q p-q. 6-5i -\frac{35}{9} 2k+2 \pi 11\sqrt2 \frac{3\sqrt{3}}{4} x^2+1 [2,5) (-\infty,2)\cup(3,\infty) ３/４ π \fracπ2 \sqrtπ 1_0/2
\frac{.5}{2} {.5} 5.\overline{3} 1.25 1.250 2^{10} \%""".split()
WITH_SPACES = ["x = 5", "10 \\text{ cm}", "10\\text{ cm}", "10\\text{cm}", "\\text{ cm}", "\\text{ m}", "1\\text{ a}\\text{ b}", "a .5", " .5", "\\left( 3, \\frac{\\pi}{2} \\right)",
               "3 / 4", "\\frac 12", "\\frac 1 2", "\\sqrt 3", "", " ", "\n", "5\n", "x \\in [1, 2]", "\\frac{ 1 }{ 2 }", "3 \\frac{1}{2}", "k = ", "\t3/4"]
CHANGES = [lambda s, r: s.replace("\\frac", "\\dfrac"), lambda s, r: s.replace("\\frac", "\\tfrac"), lambda s, r: s.replace("(", "\\left(").replace(")", "\\right)"),
           lambda s, r: s.replace(",", ", "), lambda s, r: " ".join(s), lambda s, r: s + "\\text{ cm}", lambda s, r: s + "\\text{cm}", lambda s, r: s + "^\\circ",
           lambda s, r: s + "^{\\circ}", lambda s, r: s + "\\%", lambda s, r: "\\$" + s, lambda s, r: "$" + s + "$", lambda s, r: s + ".", lambda s, r: "x=" + s,
           lambda s, r: "x = " + s, lambda s, r: "abc=" + s, lambda s, r: "\\text{" + s + "}", lambda s, r: s.replace("0.", "."), lambda s, r: s.replace("{", "").replace("}", ""),
           lambda s, r: s.replace("\\\\", "\\"), lambda s, r: s + "\n", lambda s, r: s.replace(",", ",\\!"), lambda s, r: "-" + s, lambda s, r: s + "0",
           lambda s, r: s[:r.randrange(len(s) + 1)], lambda s, r: s[r.randrange(len(s) + 1):], lambda s, r: s.replace("\\frac{", "").replace("}{", "/").replace("}", ""),
           lambda s, r: "".join(c for c in s if r.random() > 0.1), lambda s, r: s]


def pairs_of(answers, count, r):
    """Changed forms of an answer beside it, and beside another one."""
    for _ in range(count):
        one = r.choice(answers)
        two = one if r.random() < 0.7 else r.choice(answers)
        for _ in range(r.randrange(3)):
            two = r.choice(CHANGES)(two, r)
        if r.random() < 0.3:
            one = r.choice(CHANGES)(one, r)
        yield one, two


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("upstream", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    spec = importlib.util.spec_from_file_location("math_equivalence", options.upstream)
    upstream = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(upstream)
    r = random.Random(options.seed)
    answers = ANSWERS + WITH_SPACES
    pairs = [(one, one) for one in answers]
    if options.records:
        answers = [json.loads(line)["answer"] for line in options.records.read_text().splitlines()]
        pairs = [(a, change(a, r)) for a in answers for change in CHANGES]
    pairs += pairs_of(answers, options.count, r)
    cases = [json.dumps([a, b, upstream.is_equiv(a, b)]) for a, b in dict.fromkeys(pairs)]
    options.out.write_text('{"made_by": "tests/eval/scoring/math_goldens.py", "math": "985bdc1", "cases": [\n' + ",\n".join(cases) + "\n]}\n")
    equal = sum(case.endswith("true]") for case in cases)
    print(f"{len(cases)} pairs, {equal} equal: {options.out}")


if __name__ == "__main__":
    main()
