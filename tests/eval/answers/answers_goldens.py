"""What published extractors find in texts, and which answers they call equal: answers_goldens.json for the C++ test.

    answers_goldens.py answers_goldens.json               texts and pairs of our own wording, which are committed
    answers_goldens.py OUT.json CORPUS.json               those of a corpus: {"gsm8k": [text, ...], "gpqa": [...],
                                                          "math": [...], "pairs": [[reference, answer], ...]}
    TANDEM_ANSWER_GOLDENS=OUT.json test_eval --gtest_filter='AnswerGoldens.*'     compares, and lists differences

Needs what nothing else of the project needs (pip): lm-eval==0.4.13 (its files alone: --no-deps), pyyaml, numpy,
math-verify[antlr4_13_2]==0.9.0, sympy==1.14.0.
"""
import ast
import importlib.util
import itertools
import json
import logging
import random
import re
import sys
import types
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import yaml
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from math_verify.errors import TimeoutException
from math_verify.parser import extract_match, get_extraction_regexes
from math_verify.utils import timeout

logging.disable(logging.CRITICAL)  # Math-Verify warns of every timeout
SECONDS = 20  # Math-Verify's own 5 depend on the machine

# simple-evals ee3b031: common.py, as gpqa_eval.py applies it
ANSWER_LINE = re.compile(r"(?i)Answer[ \t]*:[ \t]*\$?([A-D])\$?")


def harness():
    """lm-evaluation-harness' own filters and comparison, without importing all of it."""
    root = Path(importlib.util.find_spec("lm_eval").submodule_search_locations[0])
    for name, names in {"lm_eval.api.filter": ["Filter"], "lm_eval.api.registry": ["register_filter"]}.items():
        module = types.ModuleType(name)
        for one in names:
            setattr(module, one, object if one == "Filter" else lambda _: lambda c: c)
        sys.modules[name] = module
    for name in ("lm_eval", "lm_eval.api"):
        sys.modules.setdefault(name, types.ModuleType(name))
    spec = importlib.util.spec_from_file_location("extraction", root / "filters/extraction.py")
    extraction = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extraction)
    tree = ast.parse((root / "api/metrics.py").read_text())
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "exact_match_hf_evaluate")
    scope = {"np": np, "re": re}
    exec(compile(ast.Module([function], []), "metrics.py", "exec"), scope)
    rules = {}
    for rule, file, name in (("strict-match", "gsm8k/gsm8k.yaml", "strict-match"),
                             ("cot-strict-match", "gsm8k/gsm8k-cot.yaml", "strict-match"),
                             ("flexible-extract", "gsm8k/gsm8k.yaml", "flexible-extract"),
                             ("answer-sentence", "mmlu_pro/_default_template_yaml", "custom-extract")):
        loader = type("Loader", (yaml.SafeLoader,), {})
        loader.add_constructor("!function", lambda *_: None)
        task = yaml.load((root / "tasks" / file).read_text(), loader)
        given = next(f for f in task["filter_list"] if f["name"] == name)["filter"][0]
        rules[rule] = extraction.RegexFilter(given["regex_pattern"], given.get("group_select", 0), fallback=None)
        if rule == "strict-match":
            ignored = task["metric_list"][0]["regexes_to_ignore"]
    def find(rule, text):
        rule = rules[rule]
        return rule.apply([[text]], [{}])[0][0] if rule.regex.findall(text) else None
    def equal(one, two):
        return bool(scope["exact_match_hf_evaluate"]([one], [two], ignored, True, False)["exact_match"])
    return find, equal


TARGETS = (LatexExtractionConfig(), ExprExtractionConfig())
PLACES = {0: 0, 50: 1, 100: 2, 200: 3, 300: 4}


def first_match(text):
    """parse() of Math-Verify, which does not say where it found what it read."""
    patterns = sorted(((p, target, rank) for ps, target in get_extraction_regexes(TARGETS) for p, rank in ps),
                      key=lambda one: one[2])
    first = None
    for rank, group in itertools.groupby(patterns, key=lambda one: one[2]):
        matches = sorted(((m, m.start(), m.end(), t) for p, t, _ in group for m in p.finditer(text)),
                         key=lambda one: (one[2], -one[1]), reverse=True)
        for match, _, _, target in matches:
            expression, found = extract_match(match, target)
            first = first or found or None
            if expression is not None:
                return [PLACES[rank], found, first]
    return [-1, None, first]


def math_case(text):
    try:
        return [text, *timeout(SECONDS)(first_match)(text)]
    except TimeoutException:
        return None


def pair_case(pair):
    """A reference counts as "$formula$" in one line."""
    texts = "$" + pair[0].replace("\n", " ") + "$", "\\boxed{" + pair[1] + "}"
    try:
        reference, answer = (parse(text, parsing_timeout=SECONDS) for text in texts)
        return [*pair, verify(reference, answer, timeout_seconds=SECONDS)]
    except BaseException:  # sympy's recursion
        return None


FORMULAS = [
    "7", "-3", "12.50", "0.75", "1,234", "\\frac{3}{8}", "-\\frac{5}{6}", "\\dfrac{11}{4}", "2\\frac{1}{3}", "3/7",
    "4\\sqrt{6}", "\\frac{\\sqrt{7}+1}{3}", "\\sqrt[3]{9}", "5\\pi", "\\frac{\\pi}{8}", "e^3", "2^{19}-1", "6!",
    "\\binom{7}{3}", "x^2-4x+3", "(x-1)(x-3)", "3x+2y", "\\frac{x+2}{x-5}", "\\sin 2x", "\\log_3 x", "|x-4|",
    "(4,9)", "[-1,6)", "(-\\infty,2]", "(1,3)\\cup(5,8)", "\\{2,4,8\\}", "2,4,8", "(3,-2,7)", "x=9", "y=3x-1",
    "x>6", "2<x\\le 5", "x \\in [0,4]", "4+5i", "\\text{odd}", "\\text{(B)}", "north", "45^\\circ", "30\\%", "\\$18",
    "25\\text{ km}", "\\begin{pmatrix}1 & 2\\\\3 & 4\\end{pmatrix}", "3 \\pm \\sqrt{5}", "1_7", "\\emptyset",
    "\\mathbb{R}", "f(3)", "a_1+a_2", "\\infty", "k\\pi+\\frac{\\pi}{3}", "\\frac{1}{x}+\\frac{1}{y}",
]
CHANGES = [
    lambda s: s, lambda s: s.replace("\\frac", "\\dfrac"), lambda s: s.replace("(", "\\left(").replace(")", "\\right)"),
    lambda s: s.replace(",", ", "), lambda s: s.replace("-", "\u2212"), lambda s: "x = " + s, lambda s: s + ".",
    lambda s: s + "\\text{ cm}", lambda s: s + "^\\circ", lambda s: "-" + s, lambda s: s + "+1", lambda s: "2" + s,
    lambda s: "\\{" + s + "\\}", lambda s: "\\text{" + s + "}", lambda s: s.replace("x", "y"),
    lambda s: s.replace("3", "4"), lambda s: s.replace("(", "[").replace(")", "]"), lambda s: s.replace("+", "-"),
    lambda s: s.replace(",", " \\text{ and } "), lambda s: "\\$" + s,
]
EQUALS = [
    ("3/7", "0.428571"), ("0.75", "\\frac{6}{8}"), ("2\\frac{1}{3}", "\\frac{7}{3}"), ("6!", "720"),
    ("\\binom{7}{3}", "35"), ("2^{19}-1", "524287"), ("(x-1)(x-3)", "x^2-4x+3"), ("30\\%", "0.3"), ("30\\%", "30"),
    ("2<x\\le 5", "(2,5]"), ("x \\in [0,4]", "[0,4]"), ("4+5i", "5i+4"), ("\\frac{1}{x}+\\frac{1}{y}", "\\frac{x+y}{xy}"),
    ("5\\pi", "15.707963"), ("5\\pi", "15.70796"), ("7", "7.0"), ("7", "7.0000001"), ("x>6", "6<x"), ("y=3x-1", "3x-y=1"),
    ("2,4,8", "\\{8,2,4\\}"), ("(3,-2,7)", "(3,7,-2)"), ("[1,2]\\cup[2,4]", "[1,4]"), ("\\sin 2x", "2\\sin x\\cos x"),
    ("4\\sqrt{6}", "\\sqrt{96}"), ("\\frac{\\pi}{8}", "22.5^\\circ"), ("\\text{odd}", "odd"), ("\\text{(B)}", "B"),
]
TEXTS = [
    "\\boxed{{{a}}}", "So $\\boxed{{{a}}}$.", "\\[\\boxed{{{a}}}\\]", "\\boxed{{{a}}}, \\boxed{{{b}}}",
    "\\boxed{{{a}}} and \\boxed{{{b}}}", "\\boxed{{{a}}}. Once more: \\boxed{{{a}}}", "The answer is ${a}$.",
    "**Answer:** ${a}$", "Answer: {n}", "**Final Answer**\n\\boxed{{{a}}}",
    "The final answer is ${a}$. I hope it is correct.", "The final answer, in cm, is ${a}$ cm.", "answer: x = {n}",
    "so ${a}$ and ${b}$ are both", "It is {n}.", "**{n}** in all", "\\boxed {a}", "\\boxed{{{a}", "\\fbox{{{a}}}",
    "${a}$ percent", "\\boxed{{x={a}}} because ${b}$", "It is {n} of {m} km", "- {n}\n- {m}", "({n})", "= {n}",
    "I use \\boxed as told: $\\boxed{{{a}}}$ with \\boxed so.", "\\boxed{{{a}\\ \\text{{or}}\\ {b}}}", "none at all",
    "Step 1: ${b}$\nStep 2: ${a}$\nDone.", "`{n}` and then \\( {a} \\)", "We find [ {a} ] here", "the answer is {n} = {m}",
]
NUMBERS = ["5", "-3", "1,234", "12.50", "3/4", "1 000", "$18", "3,14", "007", "(3+4)*2", "2^10", "50%", ".5", "1.2.3", "5 - 2"]
GSM8K = [
    "{n}", "It takes 2+2=4.\n#### {n}", "#### {n}\n\nQuestion: next?\n#### {m}", "ends in #### {n}. Here:\n#### {m}",
    "The answer is {n}.", "The answer is {n}", "The answer is {n}!", "the answer is {n}.", "**{n}**", "Total: {n} dollars",
    "#### {n}# More", "{n} of {m} items", "Answer: {n}", "#### none, {n}", "The answer is about {n}. The answer is {m}.",
    "= -{n}", "{n},", "so ({n})",
]
GPQA = [
    "Answer: {l}", "answer:{l}", "**Answer:** {l}", "[answer: {l}]", "Answer: ${l}$", "ANSWER :\t{l}", "Answer: ({l})",
    "The answer is {l}.", "The correct answer is ({l})", "Answer: {l} - a text", "the answer is: {l}", "Answer {l}",
    "\\boxed{{{l}}}", "Answer: A\nAnswer: {l}", "Answer\n: {l}", "Final answer: {l}", "Answer: about {l}", "answer is {s}",
]
# Verdicts of ours that differ, and why. Sympy's own quirks are not followed.
DIFFERENT = [
    ("\\infty", "2\\infty", "sympy computes with infinity"),
    ("\\frac{14}{3}", "\\frac{14.0}{3}", "sympy's 53 bits: 14.0/3 is another number than 14/3"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}1\\\\[4pt]2\\end{pmatrix}", "upstream reads 4pt as factors"),
]


def own_corpus():
    draw = random.Random(3)
    pick = draw.choice
    corpus = {"gsm8k": [], "gpqa": [], "math": [], "pairs": [list(pair) for pair in EQUALS]}
    for text in TEXTS:
        for _ in range(8):
            corpus["math"].append(text.format(a=pick(FORMULAS), b=pick(FORMULAS), n=pick(NUMBERS), m=pick(NUMBERS)))
    for text in GSM8K:
        corpus["gsm8k"] += [text.format(n=pick(NUMBERS), m=pick(NUMBERS)) for _ in range(4)]
    for text in GPQA:
        corpus["gpqa"] += [text.format(l=pick("ABCDEdbF"), s=pick("ABCDJK")) for _ in range(3)]
    for formula in FORMULAS:
        corpus["pairs"] += [[formula, change(formula)] for change in draw.sample(CHANGES, 4)]
        corpus["pairs"].append([formula, pick(FORMULAS)])
    return {name: [json.loads(x) for x in dict.fromkeys(map(json.dumps, cases))] for name, cases in corpus.items()}


def main():
    out, is_own = sys.argv[1], len(sys.argv) == 2
    corpus = own_corpus() if is_own else json.load(open(sys.argv[2], encoding="utf-8"))
    find, equal = harness()
    goldens = {"gsm8k": [], "numbers": [], "gpqa": []}
    for text in corpus.get("gsm8k", []):
        found = [find(rule, text) for rule in ("strict-match", "cot-strict-match", "flexible-extract")]
        goldens["gsm8k"].append([text, *found])
        goldens["numbers"] += [[a, b, equal(a, b)] for a, b in itertools.combinations([f for f in found if f], 2)]
    for text in corpus.get("gpqa", []):
        line = ANSWER_LINE.search(text)
        goldens["gpqa"].append([text, line and line.group(1), find("answer-sentence", text)])
    with Pool() as pool:
        goldens["math"] = [case for case in pool.imap(math_case, corpus.get("math", []), 8) if case]
        goldens["pairs"] = [case for case in pool.imap(pair_case, corpus.get("pairs", []), 8) if case]
        different = [pair_case(pair[:2]) + [pair[2]] for pair in DIFFERENT] if is_own else []
    goldens["different"] = different
    with open(out, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(
            f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]"
            for name, cases in goldens.items()) + "\n}\n")
    print({name: len(cases) for name, cases in goldens.items()})


if __name__ == "__main__":
    main()
