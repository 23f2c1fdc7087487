#!/usr/bin/env python3
"""Writes a small file or two in the form of every dataset that `tandem` reads, with texts of our own.

  scripts/small_datasets.py FOLDER      for scripts/fixed_runs.sh, tests, and to try a command before the data is there
"""
import json
import sys
from pathlib import Path

PLACES = ["the red barn", "the old mill", "the north gate", "the ferry", "the chapel"]
WORDS = "apples bread candles drums eggs flutes grain hats ink jars kettles lamps".split()


def story(number: int, sentences: int) -> str:
    """Made of sentences that differ, so that a place in it can be asked for."""
    return " ".join(f"On day {i + 1} the {WORDS[(i * 7 + number) % len(WORDS)]} were carried to {PLACES[(i + number) % len(PLACES)]}."
                    for i in range(sentences))


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def longbench(root: Path) -> None:
    write(root / "config/dataset2prompt.json", json.dumps({
        "qasper": "Read.\n\n{context}\n\nQuestion: {input}\n\nAnswer:", "trec": "Types:\n{context}\n{input}"}))
    write(root / "config/dataset2maxlen.json", json.dumps({"qasper": 6, "trec": 4}))
    for task, classes in (("qasper", None), ("qasper_e", None), ("trec", ["Place", "Person"])):
        write(root / f"data/{task}.jsonl", lines([
            {"input": f"Where were the {WORDS[i]} carried?", "context": story(i // 2, 30 + 10 * i), "answers": [PLACES[i]],
             "length": 3000 * (i + 1), "all_classes": classes} for i in range(3)]))


def leval(root: Path) -> None:
    exam = {"input": story(1, 40), "instructions": ["Which?\nA. grain\nB. ink", "Where?\nA. here\nB. there"], "outputs": ["A", "B"],
            "evaluation": "exam"}
    summary = {"input": story(2, 60), "instructions": ["Sum it up."], "outputs": ["Many things were carried."], "evaluation": "rouge"}
    write(root / "Closed-ended-tasks/tpo.jsonl", lines([exam]))
    write(root / "Open-ended-tasks/gov_report_summ.jsonl", lines([summary]))


def reasoning(root: Path) -> None:
    answers = {"aime24": 2, "math500": "\\frac{1}{2}", "gpqa": "\\boxed{B}", "gsm8k": "It is 2.\n#### 2"}
    for task, answer in answers.items():
        write(root / f"{task}.jsonl", lines([{"prompt": f"Tom had {n} apples and went to the park.", "answer": answer} for n in (2, 3)]))


def ruler(root: Path) -> None:
    for task in ("niah_single_1", "vt"):
        write(root / f"512/{task}.jsonl", lines([
            {"index": i, "input": story(i, 25) + f" One number for day {i} is {4000 + i}. What is it?", "outputs": [str(4000 + i)],
             "length": 512} for i in range(2)]))


def longproc(root: Path) -> None:
    write(root / "data/tom_tracking/prompts.yaml", "USER_PROMPT: |-\n  {story}\n  {question}\n")
    write(root / "data/tom_tracking/tom_tracking_0.5k.json", json.dumps([
        {"story": story(i, 20), "question": "Where does Cyd think the grain is?", "solution": f"- Step 0: grain in {PLACES[i]}"}
        for i in range(2)]))


def questions(root: Path) -> None:
    paragraphs = [{"context": story(i, 4), "qas": [{"question": f"Where were the {WORDS[i]} carried?", "answers": [{"text": PLACES[i]}]}]}
                  for i in range(3)]
    write(root / "squad.json", json.dumps({"data": [{"paragraphs": paragraphs}]}))
    write(root / "hotpot.json", json.dumps([
        {"question": f"Where is {name}?", "answer": PLACES[i], "context": [[name, [f"{name} is in {PLACES[i]}."]]], "supporting_facts": [[name, 0]]}
        for i, name in enumerate(("Ann", "Bob", "Cyd"))]))
    write(root / "essays.json", json.dumps({"text": story(3, 400)}))


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    root = Path(sys.argv[1])
    for make in (longbench, leval, longproc, questions, reasoning, ruler):
        make(root / make.__name__)
    write(root / "text.txt", story(3, 400))
    return 0


if __name__ == "__main__":
    sys.exit(main())
