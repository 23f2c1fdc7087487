"""The wording and the words of the embedded tasks: eval/ruler_tasks/wording.json and eval/ruler_tasks/words.json, the same files that
the program reads, so that a model is trained on the distribution it will be tested on (with other seeds)."""
import json
import math
import random
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parents[2]
WORDING: dict = json.loads((ROOT / "eval/ruler_tasks/wording.json").read_text(encoding="utf-8"))
WORDS: dict = json.loads((ROOT / "eval/ruler_tasks/words.json").read_text(encoding="utf-8"))


def key(r: random.Random) -> str:
    """A key of two words: "able-acid"."""
    return r.choice(WORDS["adj"]) + "-" + r.choice(WORDS["noun"])


def number(r: random.Random) -> str:
    return str(r.randrange(10**6, 10**7))


def _as_uuid4(digits: str, variant: str) -> str:
    """Of 30 hexadecimal digits."""
    return f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-{variant}{digits[15:18]}-{digits[18:30]}"


def uuid4(r: random.Random) -> str:
    digits = f"{r.getrandbits(128):032x}"
    return _as_uuid4(digits[:12] + digits[13:16] + digits[17:], r.choice("89ab"))


def paired_uuid4(r: random.Random) -> str:
    """One in which each pair of letters between digits is as common as any other, and three times as common as in RULER's UUIDs.
    Pairs are tokens of their own, one in twelve of a UUID's, and of 36 kinds, that hardly come in anything else that is asked for:
    models said another in one of seven places, of digits in one of a hundred (README.md)."""
    out = r.choice("abcdef") if r.random() < 0.5 else ""
    while len(out) < 30:
        out += r.choice(string.digits) + "".join(r.choices("abcdef", k=r.choices((0, 1, 2), (1, 1, 6))[0]))
    return _as_uuid4(out[:30], r.choice("89ab"))


def value(r: random.Random, kind: str) -> str:
    """A value of RULER's kinds: numbers, words or uuids."""
    return {"numbers": number, "words": key, "uuids": uuid4}[kind](r)


def paired_value(r: random.Random, kind: str) -> str:
    """As value() makes it, but for UUIDs."""
    return paired_uuid4(r) if kind == "uuids" else value(r, kind)


@dataclass(frozen=True)
class Alphabet:
    """What values are made of that look alike: as many agree in a few tokens in a row here as of RULER's in a context ten times as
    long, and UUIDs are mostly letters, whose pairs are the rarest of their tokens."""
    digits: str
    hexadecimal: str
    words: dict[str, list[str]]

    @classmethod
    def few(cls, r: random.Random, values: int) -> "Alphabet":
        """Enough for so many different keys of two words, and for little more."""
        side = max(3, math.ceil(1.3 * math.sqrt(values)))
        return cls("".join(r.sample(string.digits, r.randrange(3, 6))),
                   "".join(r.sample("abcdef", r.randrange(3, 7)) + r.sample(string.digits, r.randrange(3))),
                   {kind: r.sample(WORDS[kind], min(side, len(WORDS[kind]))) for kind in ("adj", "noun")})

    def value(self, r: random.Random, kind: str) -> str:
        """As value() makes it, but of this alone."""
        if kind == "words":
            return r.choice(self.words["adj"]) + "-" + r.choice(self.words["noun"])
        if kind == "numbers":
            return r.choice(self.digits.replace("0", "")) + "".join(r.choices(self.digits, k=6))
        return _as_uuid4("".join(r.choices(self.hexadecimal, k=30)), r.choice("89ab"))


def maker(r: random.Random, values: int, alike: float, pairs: float) -> Callable[[random.Random, str], str]:
    """What makes the values of one context or row, r's draw: an alphabet's (a share `alike`), with UUIDs of many pairs (`pairs` of
    the others), or value. Nothing is drawn for a share that is 0, so that plans without it make what they did before."""
    if alike and r.random() < alike:
        return Alphabet.few(r, values).value
    return paired_value if pairs and r.random() < pairs else value


def prose_sentence(r: random.Random) -> str:
    """One invented sentence: a template with its {adj}, {noun} and {verb} filled."""
    sentence = r.choice(WORDING["prose"])
    parts = sentence.split("{")
    out = [parts[0]]
    for part in parts[1:]:
        kind, rest = part.split("}", 1)
        out.append(r.choice(WORDS[kind]) + rest)
    return "".join(out)


def haystack(r: random.Random, characters: int, kind: str, text: list[str]) -> list[str]:
    """Sentences of about `characters` characters: "noise" (repeated in order), "prose" (invented) or "text" (natural, from
    a random place on; invented where there is none)."""
    if kind == "text" and not text:
        kind = "prose"
    at = r.randrange(len(text)) if kind == "text" else 0
    out, used = [], 0
    while used < characters:
        if kind == "noise":
            sentence = WORDING["noise"][len(out) % len(WORDING["noise"])]
        elif kind == "prose":
            sentence = prose_sentence(r)
        else:
            sentence = text[(at + len(out)) % len(text)]
        out.append(sentence)
        used += len(sentence) + 1
    return out


def scatter(r: random.Random, hay: list[str], lines: list[str]) -> str:
    """The lines in their order at random places between the sentences."""
    places = sorted(r.randrange(len(hay) + 1) for _ in lines)
    out, next_line = [], 0
    for i in range(len(hay) + 1):
        while next_line < len(lines) and places[next_line] == i:
            out.append(lines[next_line])
            next_line += 1
        if i < len(hay):
            out.append(hay[i])
    return " ".join(out)
