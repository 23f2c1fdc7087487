"""Makes leval_goldens.json: scores that L-Eval's Python gives invented answers, which leval_goldens_test compares with ours.

  python3 tests/eval/scoring/leval_goldens.py LEVAL [CASES] > tests/eval/scoring/leval_goldens.json

LEVAL is a checkout of OpenLMLab/LEval (cd34b05); needs the package rouge_score. CASES random ones of each kind beside the chosen
ones (default 12). With thousands, and TANDEM_LEVAL_GOLDENS naming the file, the test compares those.
"""
import contextlib
import io
import json
import random
import sys
import types

from rouge_score import rouge_scorer

WORDS = ["the", "A", "a", "B", "C", "D", "AB", "ABD", "E", "answer", "Answer", "is", "The answer is", "42", "$1,234.50", "3.0", "1e3", "1_0",
         "Question", "B.", "C)", "(D)", "A,", "true", "don't", "well-known", "Été", "ΟΔΟΣ", "\n", "\n\n", " ", "  ", "will be",
         "the final output", "[1, 2]", "[ [3]", "is printed", "x²", "None", ".", "10.0", "nan", "inf", "-7", "role of art", "art in society"]


def functions(folder):
    """Upstream's functions, without what its module does beside them."""
    module = types.ModuleType("auto_eval")
    import re
    module.re = re
    with open(f"{folder}/Evaluation/auto_eval.py", encoding="utf-8") as file:
        source = file.read()
    start, end = source.index("def process_output_mc"), source.index("if __name__")
    exec(compile(source[start:end], "auto_eval.py", "exec"), module.__dict__)
    for name in ("em", "f1"):
        with open(f"{folder}/Evaluation/{name}.py", encoding="utf-8") as file:
            other = types.ModuleType(name)
            exec(compile(file.read(), f"{name}.py", "exec"), other.__dict__)
            setattr(module, name, other)
    return module


def exam(upstream, kind, prediction, answer):
    upstream.args = types.SimpleNamespace(pred_file="coursera" if kind == "choices" else "quality")
    if kind in ("choice", "choices"):
        prediction, answer = upstream.process_output_mc(prediction), upstream.process_gt_mc(answer)
    elif kind == "number":
        prediction, answer = upstream.process_math(prediction), upstream.process_math(answer)
    elif kind == "code":
        prediction, answer = upstream.process_output_code(prediction, answer), upstream.process_gt_code(answer)
    with contextlib.redirect_stdout(io.StringIO()):
        return upstream.em.exact_match_score(prediction, answer)


CHOSEN = {
    "choice": [("A", "A"), ("", "B"), ("  ", "A"), ("The answer is B.", "B"), ("Answer: C", "A"), ("none", "A"), ("(C) because", "(C) text"),
               ("ABCD", "A"), ("BC", "B")],
    "choices": [("AB", "AB"), ("BA", "AB"), ("A", "AB"), ("A, B", "AB"), ("I think A. and C)", "AC"), ("no letters", "A"), ("", "BC"),
                ("the xAByC", "AB"), ("C Question D.", "C"), ("DCBA", "ABCD"), ("E. F)", "A")],
    "number": [("The answer is 18.", "18"), ("It costs $1,234.50", "1234"), ("so 7 and 9\n\n12", "9"), ("no number", "5"), ("", ""),
               ("The answer is  3", "3"), ("The answer is x. The answer is 4", "4"),
               ("The answer is １８", "18"), ("٣", "3")],
    "contains": [("The role of art in society.", "the role of art"), ("3.0", "3"), ("nan", "nan"), ("1_000", "1000"), ("theroleofart", "The role of art"),
                 ("0x10", "16"), ("infinity", "inf"), ("", "x"), (" 12 ", "12")],
    "code": [("The output will be [1, 2, 3]", "[1, 2, 3]"), ("the final output is 'abc'", "abc"), ("42.0", "42"), ("x " * 9 + "7", "7")],
    "f1": [("the red barn", "a red barn"), ("", "x"), ("Well-known thé", "wellknown thé")],
    "rouge": [("A cat sat. It slept!", "the cat sat down\nand slept"), ("", "x"), ("don't", "don t"), ("ÉTÉ k\u212a", "t kk"), ("one", "one")],
}


def main(folder, count):
    upstream = functions(folder)
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    draw = random.Random(7)
    cases = []
    for kind, chosen in CHOSEN.items():
        pairs = list(chosen)
        for _ in range(count):
            text = lambda most: "".join(draw.choice(WORDS) + draw.choice(["", " ", " ", " "]) for _ in range(draw.randrange(most)))
            answer = text(8)
            if kind in ("choice", "choices"):
                answer = draw.choice(["A", "AB", "BCD", "(C) x", "D. y", "word", "ABD"])
            prediction = text(12)
            if draw.random() < 0.3:
                prediction += answer
            pairs.append((prediction, answer))
        for prediction, answer in pairs:
            if "²" in prediction + answer and kind == "number":
                continue  # isdigit() is true of it
            if kind == "f1":
                score = upstream.f1.f1_score(prediction, answer)
            elif kind == "rouge":
                found = scorer.score(answer, prediction)
                score = [found[name].fmeasure for name in ("rouge1", "rouge2", "rougeL")]
            else:
                score = exam(upstream, kind, prediction, answer)
            cases.append({"kind": kind, "prediction": prediction, "answer": answer, "score": score})
    head = {"made_by": "tests/eval/scoring/leval_goldens.py", "leval": "cd34b05", "python": sys.version.split()[0], "rouge_score": "0.1.2"}
    print(json.dumps(head)[:-1] + ', "cases": [')
    print(",\n".join(json.dumps(case, ensure_ascii=False) for case in cases))
    print("]}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 12)
