"""The task families the model is trained on, in the embedded wording: niah, vt, cwe, fwe, qa.

A sample is a context and one or more questions with their answers. Questions about the same context share it, so that a
training row of 16K tokens teaches more than one answer. What RULER asks at test time is in ruler_tasks.py; the families
here are wider (more kinds of keys, more needles, more lengths of lists).
"""
import random
import string
from dataclasses import dataclass

import wording
from wording import WORDING, WORDS

FAMILIES = ("niah", "vt", "cwe", "fwe", "qa")


@dataclass
class Sample:
    context: str
    questions: list[tuple[str, str]]  # (question, answer); the model continues with a space and the answer


class Tasks:
    """Makes samples of about a number of characters. `text`: natural sentences for haystacks. `hard` in [0, 1] is the share
    of the full frequency of what must be learned late: UUIDs, word values, several values per key, several keys. `several`:
    the full frequency of keys with several values. `crowded`: the share of niah's contexts that are needles alone; `uuids`:
    the full frequency of keys that are UUIDs; `alike`: the full frequency of contexts whose keys and values look alike; `hops`: the
    share of qa's facts that follow from two; `uuid_values`: the weight of UUIDs behind keys that are words, numbers having 6;
    `pairs`: the share of the other contexts in which UUIDs are wording.paired_uuid4's."""

    def __init__(self, text: list[str] | None = None, hard: float = 1.0, several: float = 0.2,
                 crowded: float = 0.35, uuids: float = 0.2, alike: float = 0.0, hops: float = 0.2,
                 uuid_values: float = 2, pairs: float = 0.0):
        self.text = text or []
        self.hard, self.several, self.crowded = hard, several, crowded
        self.uuids, self.alike, self.hops, self.uuid_values, self.pairs = uuids, alike, hops, uuid_values, pairs

    def make(self, family: str, r: random.Random, characters: int, questions: int) -> Sample:
        return getattr(self, family)(r, characters, questions)

    def hay(self, r: random.Random, characters: int) -> list[str]:
        kind = r.choices(("noise", "prose", "text"), (3, 3, 4))[0]
        return wording.haystack(r, characters, kind, self.text)

    def niah(self, r: random.Random, characters: int, questions: int) -> Sample:
        w = WORDING["niah"]
        key_kind = "uuids" if r.random() < self.uuids * self.hard else "words"
        weight = 8 if key_kind == "uuids" else self.uuid_values
        value_kind = r.choices(("numbers", "words", "uuids"), (6, self.hard, weight * self.hard))[0]
        word = w["types"][value_kind]
        per_needle = len(w["needle"]) + (36 if key_kind == "uuids" else 14) + (36 if value_kind == "uuids" else 12)
        style = r.random()  # some contexts have one needle or four
        share = r.uniform(0.7, 0.95) if style < self.crowded else r.uniform(0.02, 0.5)
        needles = max(1, int(characters * share / per_needle))
        if style > 0.85:
            needles = min(needles, r.choice((1, 4)))
        made = wording.maker(r, needles, self.alike * self.hard, self.pairs)
        values: dict[str, list[str]] = {}
        for _ in range(needles):
            name = made(r, key_kind)
            several = r.random() < self.several * self.hard
            values[name] = [made(r, value_kind) for _ in range(r.randrange(2, 5) if several else 1)]
        pairs = [(name, v) for name, many in values.items() for v in many]
        r.shuffle(pairs)
        lines = [w["needle"].format(type=word, key=name, value=v) for name, v in pairs]
        body = wording.scatter(r, self.hay(r, characters - sum(map(len, lines))), lines)
        answers: dict[str, list[str]] = {}  # values in the order of the text
        for name, v in pairs:
            answers.setdefault(name, []).append(v)
        return Sample(w["intro"].format(type=word) + "\n" + body, self._ask(r, word, answers, questions))

    def _ask(self, r: random.Random, word: str, answers: dict[str, list[str]], questions: int) -> list[tuple[str, str]]:
        w = WORDING["niah"]
        names = list(answers)
        r.shuffle(names)
        asked = []
        while names and len(asked) < questions:
            if len(names) >= 2 and r.random() < 0.25 * self.hard:
                group = [names.pop() for _ in range(min(len(names), r.randrange(2, 5)))]
                question = w["question_keys"].format(type=word, keys=w["keys_join"].join(group))
                asked.append((question, w["answer_join"].join(v for name in group for v in answers[name])))
            else:
                name = names.pop()
                which = "question_one" if len(answers[name]) == 1 else "question_values"
                asked.append((w[which].format(type=word, key=name), w["answer_join"].join(answers[name])))
        return asked

    def vt(self, r: random.Random, characters: int, questions: int, chains: int = 0, hops: int = 0) -> Sample:
        """Chains of assignments; the answer is the chain's variables in order. `chains`, `hops` 0: random."""
        w = WORDING["vt"]
        placed, asked = [], []
        for _ in range(chains or r.choice((1, 1, 2, 3))):
            start = str(r.randrange(10000, 99999))
            names = ["".join(r.choices(string.ascii_uppercase, k=5)) for _ in range((hops or r.randrange(1, 5)) + 1)]
            lines = [w["first"].format(name=names[0], value=start)]
            lines += [w["next"].format(name=new, previous=old) for old, new in zip(names, names[1:])]
            placed.append(lines)
            asked.append((w["question"].format(value=start), w["answer_join"].join(names)))
        length = sum(len(line) + 1 for lines in placed for line in lines)
        hay = wording.haystack(r, characters - length, r.choice(("noise", "prose")), self.text)
        at = [(place, line) for lines in placed
              for place, line in zip(sorted(r.randrange(len(hay) + 1) for _ in lines), lines)]
        at.sort(key=lambda item: item[0])
        out, following = [], 0
        for i in range(len(hay) + 1):
            while following < len(at) and at[following][0] == i:
                out.append(at[following][1])
                following += 1
            if i < len(hay):
                out.append(hay[i])
        r.shuffle(asked)
        return Sample(w["intro"] + "\n" + " ".join(out), asked[:max(1, questions)])

    def cwe(self, r: random.Random, characters: int, questions: int, common: int = 0, often: int = 0,
            rarely: int = 0) -> Sample:
        """A list in which `common` words occur `often` times and all others `rarely`. Answered in the order of first
        occurrence, which can be learned; scored as a set."""
        w = WORDING["cwe"]
        pool = WORDS["noun"] + WORDS["verb"]
        common = common or r.choice((3, 5, 10))
        often, rarely = often or r.choice((10, 20, 30)), rarely or r.choice((1, 2, 3))
        total = max(3 * common, characters // 8)
        while common * often > 0.8 * total and often > 3 * rarely:
            often -= 1
        answer = r.sample(pool, common)
        words = answer * often
        for word in r.sample(pool, len(pool)):
            if len(words) >= total:
                break
            if word not in answer:
                words += [word] * rarely
        r.shuffle(words)
        answer.sort(key=words.index)
        question = w["question"].format(k=common)
        return Sample(w["intro"] + "\n" + w["item_join"].join(words), [(question, w["answer_join"].join(answer))])

    def fwe(self, r: random.Random, characters: int, questions: int) -> Sample:
        """Made-up words, the k-th as often as k to the -2 (RULER's alpha 2); the first is noise, "..."."""
        w = WORDING["fwe"]
        total = max(60, characters // 8)
        names = ["..."] + ["".join(r.choices(string.ascii_lowercase, k=6)) for _ in range(max(7, total // 16))]
        scale = total / sum(k**-2.0 for k in range(1, len(names) + 1))
        words = [name for k, name in enumerate(names, 1) for _ in range(max(1, int(scale * k**-2.0)))]
        r.shuffle(words)
        return Sample(w["intro"] + "\n" + " ".join(words), [(w["question"], w["answer_join"].join(names[1:4]))])

    def qa(self, r: random.Random, characters: int, questions: int) -> Sample:
        """Documents of invented prose with one fact each; a question is on one fact, or follows from two (`hops` of them). What
        follows is answered with the second fact: the name between the two is then said and looked up like any other. Asked for
        the last name at once, models before named one that any second fact ends with (README.md)."""
        w = WORDING["qa"]
        texts, facts, used = [], [], 0

        def name() -> str:
            return f"the {r.choice(WORDS['adj'])} {r.choice(WORDS['noun'])}"

        def document(fact: str) -> None:
            nonlocal used
            sentences = wording.haystack(r, r.randrange(60, 240), "prose", self.text)
            sentences.insert(r.randrange(len(sentences) + 1), fact[0].upper() + fact[1:])
            texts.append(" ".join(sentences))
            used += len(texts[-1]) + len(w["document"])

        while used < characters:
            a, b, c = name(), name(), name()
            if r.random() < self.hops:
                hops = r.choice(w["two_hops"])
                document(hops["first"].format(a=a, b=b))
                document(hops["second"].format(b=b, c=c))
                facts.append((w["question"].format(question=hops["question"].format(a=a)), hops["second"].format(b=b, c=c).rstrip(".")))
            else:
                relation = r.choice(w["relations"])
                document(relation["fact"].format(a=a, b=b))
                facts.append((w["question"].format(question=relation["question"].format(a=a)), b))
        r.shuffle(texts)
        documents = [w["document"].format(i=i, text=text) for i, text in enumerate(texts, 1)]
        return Sample(w["intro"] + "\n" + "\n".join(documents), r.sample(facts, min(len(facts), questions)))
