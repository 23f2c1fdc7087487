"""Makes longbench_goldens.json: texts of our own, and what LongBench's Python gives for them.

  python3 tests/eval/scoring/longbench_goldens.py LONGBENCH [--count N] [--seed N] [--records FOLDER] [--out FILE]

LONGBENCH: folder of metrics.py and eval.py (github.com/THUDM/LongBench at 2e00731, its folder LongBench). Made with Python
3.11, rouge 1.0.1, fuzzywuzzy 0.18.0 without python-Levenshtein, jieba 0.42.1, numpy 2.4. --count: random cases per metric;
the file in the repository has the default. More of them, or LongBench's own records (--records: a folder with files such as
multi_news.jsonl, whose answers are made noisy), are compared by the tests with

  TANDEM_LONGBENCH_GOLDENS=FILE test_eval_scoring --gtest_filter='LongBenchGoldens.*'
"""
import argparse
import importlib.metadata
import json
import pathlib
import random
import sys

WORDS = """the a an The An A THE river bridge seven Paris paris well-known don't it's U.S. 3.5 1,234 thé théatre naïve Straße
ΟΔΟΣ ΣΟΦΟΣ İstanbul ŒUVRE ǅungla ⅫA x_y _the_ [the] (a) "an" ３ ４２ ² ½ it. end. ... - -- 'a' a' 北京 the北京 東京 Ⓐ ａ À́ the\u0301 the\u200b
a\u00a0b \u3000 \u2028 \x1f \n \t city name number war peace light green green green""".split(" ")
WORDS = [w for chunk in WORDS for w in chunk.split("\n") if w] + ["\n", "\u00a0", "\u3000", "the\u3000a"]
CHINESE = ["长江大桥昨天正式通车了", "研究人员在北京大学发表了一篇论文", "他说：“明天下午三点半开会！”", "《红楼梦》的作者是曹雪芹", "价格为３５００元",
           "The GPU 型号是 H200", "蒟蒻很好吃", "小明硕士毕业于中国科学院计算所", "。", "，", " ", "\n", "段落１２", "第3.5章", "〈附录〉", "南京市长江大桥", "結婚的和尚未結婚的",
           "是的", "不知道", "Ａ股上涨２％", "e-mail: a@b.cn", "😀表情", "王五与李四去了上海虹桥机场", "—— ……"]
CODE = ["    return self.value", "for (int i = 0; i < n; ++i) {", "x = foo(bar, baz)", "if err != nil {", "}", "", "// note", "# note", "```",
        "printf(\"%d\\n\", x);", "a = b // c", "名前 = \"値\"", "public static void Main(string[] args)", "    ", "\treturn x;"]
CLASSES = ["Sport", "Sport event", "event", "Food", "Food and drink", "and", "City", "Other City", "Other", "City in Italy", "体育", "体育赛事",
           "赛事", "a", ""]
METRICS = ["qa_f1_score", "qa_f1_zh_score", "rouge_score", "rouge_zh_score", "classification_score", "retrieval_score",
           "retrieval_zh_score", "count_score", "code_sim_score"]
WRITTEN = {
    "qa_f1_score": [("", ""), ("", "x"), ("The", "the"), ("the thé", "a thé"), ("ΟΔΟΣ", "οδος"), ("ΑΣ' Σ", "ας σ"), ("İ", "i\u0307"),
                    ("a b b c", "b b b"), ("x_the_y", "xthey")],
    "qa_f1_zh_score": [("", ""), ("。", "。"), ("《红楼梦》", "红楼梦"), ("GPU gpu", "Gpu")],
    "rouge_score": [("", "a"), (".", "a"), ("..", ".."), ("a", "a"), ("a a a a", "a"), ("a b. \n", "a b"), (" ", "\u3000"), ("a b c d", "b a d c"),
                    ("3.5 and 4.5", "3.5 or 4.5"), ("the cat sat. the dog sat", "the dog. the cat sat on"), ("x y z x y z", "z y x z y x")],
    "rouge_zh_score": [("", "是"), ("南京市长江大桥", "长江大桥"), ("价格 3.5 元", "价格 3.5 元")],
    "classification_score": [("Sport event", "Sport event", ["Sport", "event", "Sport event"]),
                             ("Sport event", "Sport event", ["Sport", "Sport", "Sport event"]), ("Sport", "Food", ["Sport", "Food"]),
                             ("x", "x", []), ("abc", "abc", ["a", "b", "c", "ab", "bc", "abc"])],
    "retrieval_score": [("Paragraph 3", "Paragraph 3"), ("３", "Paragraph ３"), ("3 ３ 03", "Paragraph x Paragraph 3"), ("", "Paragraph 1")],
    "retrieval_zh_score": [("段落3", "段落3"), ("段落３和3", "段落３"), ("", "段落1")],
    "count_score": [("", ""), ("no", "0"), ("12 3 3²", "3"), ("٣ ३", "३"), ("3", "03")],
    "code_sim_score": [("", ""), ("\n", ""), ("tide", "diet"), ("diet", "tide"), ("x\n# c", "x"), ("# c", "x"), ("# c\n\nx", ""), ("\n\n x", " x"),
                       ("a" * 250, "b" * 10 + "a" * 250), ("ab" * 120, "ba" * 120), ("x" * 199 + "y", "y" + "x" * 199),
                       ("ab", "a" + "xyz" * 75 + "b")],
}


def soup(rng, pool, low, high, separator):
    return separator.join(rng.choice(pool) for _ in range(rng.randint(low, high)))


def noisy(rng, text, pool, separator, share):
    """Parts dropped, doubled, swapped with the next one, or replaced."""
    parts, out = text.split(separator) if separator else list(text), []
    for i, part in enumerate(parts):
        kind = rng.random() / share if share else 2
        if kind >= 1:
            out.append(part)
        elif kind < 0.3:
            out += [part, part]
        elif kind < 0.6:
            out.append(rng.choice(pool))
        elif kind < 0.8 and i + 1 < len(parts):
            out.append(parts[i + 1])
    return separator.join(out)


def numbers(rng):
    return rng.choice(["3", "12", "30", "３", "１２", "٣", "3.5", "1,2", "03", "²", "Paragraph 3", "Paragraph 12", "段落3", "段落12", "x", ";"])


def random_case(rng, metric, most):
    if metric == "qa_f1_score":
        answer = soup(rng, WORDS, 0, min(most, 8), rng.choice([" ", " ", ", ", ""]))
        return noisy(rng, answer, WORDS, " ", rng.random()), answer
    if metric == "rouge_score":
        pool = rng.sample(WORDS, rng.choice([3, 8, 30])) + [".", ". "]
        answer = soup(rng, pool, 0, rng.choice([4, 12, most]), " ")
        return rng.choice([noisy(rng, answer, pool, " ", rng.random()), soup(rng, pool, 0, most, " ")]), answer
    if metric in ("qa_f1_zh_score", "rouge_zh_score"):
        answer = soup(rng, CHINESE, 0, rng.choice([1, 2, max(2, most // 8)]), rng.choice(["", "，", "。", "."]))
        return noisy(rng, answer, "".join(CHINESE), "", 0.5 * rng.random()), answer
    if metric == "classification_score":
        classes = [rng.choice(CLASSES) for _ in range(rng.randint(0, 8))]
        answer = rng.choice(classes + CLASSES[:3])
        return " ".join(rng.sample(classes, rng.randint(0, len(classes)))) + rng.choice(["", answer]), answer, classes
    if metric == "code_sim_score":
        answer = soup(rng, CODE, 1, rng.choice([1, 3, 12]), rng.choice(["", " "]))
        line = rng.choice([noisy(rng, answer, "".join(CODE), "", rng.random()), soup(rng, CODE, 1, 12, "")])
        return soup(rng, CODE, 0, 2, "\n") + "\n" * rng.randint(0, 2) + line + "\n" * rng.randint(0, 1) + soup(rng, CODE, 0, 2, "\n"), answer
    prediction = soup(rng, [numbers(rng) for _ in range(3)], 0, 5, rng.choice([" ", "", "\n"]))
    name = {"retrieval_score": "Paragraph ", "retrieval_zh_score": "段落"}.get(metric)
    number = rng.choice(["3", "12", "３", "03"])
    return prediction, name + number + rng.choice(["", " ", "x", name + "3"]) if name else number


def case_of(metrics, metric, prediction, answer, classes=None):
    case = {"metric": metric, "prediction": prediction, "answer": answer}
    if classes is not None:
        case["classes"] = classes
    if "_zh_" in metric and "retrieval" not in metric:
        case["words"] = [metrics.jieba.lcut(text) for text in (prediction, answer)]
    case["score"] = getattr(metrics, metric)(prediction, answer, all_classes=classes)
    return case


def dataset_case(rng, upstream, dataset, samples, classes):
    """One call of both of eval.py's scorers. samples: (prediction, answers)."""
    predictions, answers = [p for p, _ in samples], [a for _, a in samples]
    lengths = [rng.choice([10, 3999, 4000, 7999, 8000, 20000]) for _ in samples]
    buckets = upstream.scorer_e(dataset, predictions, answers, lengths, classes)
    return {"dataset": dataset, "samples": samples, "classes": classes, "lengths": lengths,
            "score": upstream.scorer(dataset, predictions, answers, classes),
            "buckets": [None if buckets[key] != buckets[key] else float(buckets[key]) for key in ("0-4k", "4-8k", "8k+")]}


def random_dataset(rng, upstream, dataset, count, most):
    metric = upstream.dataset2metric[dataset].__name__
    classes = ["Sport", "Sport event", "event", "Food"] if metric == "classification_score" else None
    samples = []
    for _ in range(count):
        prediction, answer = random_case(rng, metric, most)[:2]
        others = [random_case(rng, metric, most)[1] for _ in range(rng.randint(0, 2))]
        samples.append(("\n" * rng.randint(0, 2) + prediction + rng.choice(["", "\nmore"]), rng.sample([answer] + others, len(others) + 1)))
    return dataset_case(rng, upstream, dataset, samples, classes)


def records_case(rng, upstream, file):
    """LongBench's own answers as predictions: some as they are, others with noise."""
    dataset, samples, classes = file.stem, [], None
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        classes = record["all_classes"]
        chosen, chinese = rng.choice(record["answers"]), record["language"] == "zh"
        pool = record["context"][:2000] if chinese else record["context"][:4000].split(" ")
        samples.append((noisy(rng, chosen, pool, "" if chinese else " ", rng.choice([0, 0.1, 0.5, 1])), record["answers"]))
    return dataset_case(rng, upstream, dataset, samples, classes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("longbench", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.longbench))
    # rouge 1.0.1 walks back recursively; the scores compared are those without Python's limit (see rouge.h).
    sys.setrecursionlimit(100000)
    import eval as upstream
    import metrics
    metrics.jieba.setLogLevel("ERROR")
    rng, few = random.Random(arguments.seed), arguments.count < 100
    cases = []
    for metric in METRICS:
        cases += [case_of(metrics, metric, *written) for written in WRITTEN[metric]]
        cases += [case_of(metrics, metric, *random_case(rng, metric, 24 if few else 120)) for _ in range(arguments.count)]
    if arguments.records:
        datasets = [records_case(rng, upstream, file) for file in sorted(arguments.records.glob("*.jsonl"))]
    else:
        names = [name for name in upstream.dataset2metric if not few or name != "dureader"]  # as vcsum; every Chinese one takes a second
        datasets = [random_dataset(rng, upstream, name, 2 if few else 300, 6 if few else 60) for name in names]
    versions = {name: importlib.metadata.version(name) for name in ("rouge", "fuzzywuzzy", "jieba", "numpy")}
    head = {"made_by": "tests/eval/scoring/longbench_goldens.py", "longbench": "2e00731", "python": sys.version.split()[0], **versions}
    lines = [json.dumps(head)[:-1]]
    for name, entries in (("cases", cases), ("datasets", datasets)):
        lines.append(f', "{name}": [\n' + ",\n".join(json.dumps(e, ensure_ascii=False) for e in entries) + "]")
    arguments.out.write_text("".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
