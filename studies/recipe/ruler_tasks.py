"""The tests: RULER's tasks (parameters of NVIDIA/RULER's scripts/synthetic.yaml) in the embedded wording, and its scores.

Seeds are those of test samples only: training seeds are tuples that begin with "train".
"""
import random
from dataclasses import dataclass
from typing import Callable

import wording
from tasks import Tasks
from wording import WORDING


@dataclass
class Test:
    prompt: str
    answers: list[str]  # all are needed (qa: any one)
    reference: str      # what the model was taught to say, word for word


def _needles(r: random.Random, characters: int, hay: str, key: str, value: str, keys: int, values: int,
             queries: int) -> Test:
    w = WORDING["niah"]
    word = w["types"][value]
    names: list[str] = []
    while len(names) < keys:
        name = wording.value(r, key)
        if name not in names:
            names.append(name)
    pairs = [(name, wording.value(r, value)) for name in names for _ in range(values)]
    r.shuffle(pairs)
    lines = [w["needle"].format(type=word, key=name, value=v) for name, v in pairs]
    room = characters - sum(len(line) + 1 for line in lines)
    if hay == "needles":
        sentences, used = [], 0
        while used < room:
            name = wording.value(r, key)
            if name in names:
                continue
            sentences.append(w["needle"].format(type=word, key=name, value=wording.value(r, value)))
            used += len(sentences[-1]) + 1
    else:
        sentences = wording.haystack(r, room, hay, [])
    context = w["intro"].format(type=word) + "\n" + wording.scatter(r, sentences, lines)
    asked = r.sample(names, queries)
    found = [v for name in asked for n, v in pairs if n == name]
    if queries > 1:
        question = w["question_keys"].format(type=word, keys=w["keys_join"].join(asked))
    else:
        question = w["question_one" if values == 1 else "question_values"].format(type=word, key=asked[0])
    return Test(context + "\n" + question, found, w["answer_join"].join(found))


def _last_name(fact: str) -> list[str]:
    """"The able acid lives in the big barn": what two hops lead to."""
    return ["the " + fact.rpartition("the ")[2]]


def _family(family: str, answers: Callable[[str], list[str]], tasks: Tasks = Tasks(),
            **fixed) -> Callable[[random.Random, int], Test]:
    def make(r: random.Random, characters: int) -> Test:
        sample = getattr(tasks, family)(r, characters, 1, **fixed)
        question, answer = sample.questions[0]
        return Test(sample.context + "\n" + question, answers(answer), answer)
    return make


def _niah(**options) -> Callable[[random.Random, int], Test]:
    return lambda r, characters: _needles(r, characters, **options)


TASKS: dict[str, Callable[[random.Random, int], Test]] = {
    "niah_single_1": _niah(hay="noise", key="words", value="numbers", keys=1, values=1, queries=1),
    "niah_single_2": _niah(hay="prose", key="words", value="numbers", keys=1, values=1, queries=1),
    "niah_single_3": _niah(hay="prose", key="words", value="uuids", keys=1, values=1, queries=1),
    "niah_multikey_1": _niah(hay="prose", key="words", value="numbers", keys=4, values=1, queries=1),
    "niah_multikey_2": _niah(hay="needles", key="words", value="numbers", keys=1, values=1, queries=1),
    "niah_multikey_3": _niah(hay="needles", key="uuids", value="uuids", keys=1, values=1, queries=1),
    "niah_multivalue": _niah(hay="prose", key="words", value="numbers", keys=1, values=4, queries=1),
    "niah_multiquery": _niah(hay="prose", key="words", value="numbers", keys=4, values=1, queries=4),
    "vt": _family("vt", str.split, chains=1, hops=4),
    "cwe": _family("cwe", str.split, common=10, often=30, rarely=3),
    "fwe": _family("fwe", str.split),
    "qa_1": _family("qa", _last_name, Tasks(hops=0)),
    "qa_2": _family("qa", _last_name, Tasks(hops=1)),
}


def make_test(task: str, length: int, index: int, seed: int, count_tokens: Callable[[str], int], room: int) -> Test:
    """Sample `index`: the longest of a few tries with at most length - room tokens. Depends on its arguments alone."""
    characters, best = float(2.5 * length), None
    for _ in range(8):
        test = TASKS[task](random.Random(f"test-{seed}-{task}-{length}-{index}"), int(characters))
        tokens = count_tokens(test.prompt)
        if tokens <= length - room:
            best = test
            if tokens >= 0.95 * (length - room):
                break
        characters *= min(2.0, max(0.3, 0.98 * (length - room) / tokens))
    if best is None:
        raise ValueError(f"{task} does not fit into {length} tokens with {room} kept free for the answer: use longer ones.")
    return best


def score(task: str, prediction: str, answers: list[str]) -> float:
    """RULER's string match: the share of answers found; for qa, whether any is."""
    found = [a.lower() in prediction.lower() for a in answers]
    return float(any(found)) if task.startswith("qa") else sum(found) / len(found)
