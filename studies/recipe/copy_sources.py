"""What a plan's guided heads are told (guide.py): the places of a row to look at while some of its tokens are said."""
import random
from dataclasses import dataclass, field

import numpy as np

from plan import GUIDES
from tokenizer import EOS, Encoder
from wording import WORDING

SOURCES = 32  # a token with more places than that has none of them told
GUIDED = 256  # tokens of a row whose sources are told, at most


@dataclass
class Told:
    """Of one row. A `which` is one of GUIDES, places are counted from the row's first token."""
    spans: list[tuple[str, int, list[int], int]] = field(default_factory=list)  # tell()'s arguments

    def tell(self, which: str, begin: int, before: list[int], count: int) -> None:
        """Where a head should look while the row's `count` tokens from place `begin` on are said: for the first of them at the
        places `before`, then at the next ones."""
        if 0 < len(before) <= SOURCES:
            self.spans.append((which, begin, list(before), count))  # a copy: callers go on with their list

    def sources(self, r: random.Random, row: int, counts: list[bool], first: list[bool]) -> list[list[int]]:
        """packing.Batch.sources of row number `row`, for tokens that count in the loss, GUIDED of them at most: those that should
        come `first` where there are more, others by chance."""
        told = []
        for which, begin, before, count in self.spans:
            told += [[GUIDES.index(which), row, at - 1, *(b + at - begin for b in before), *[-1] * (SOURCES - len(before))]
                     for at in range(begin, begin + count) if at < len(counts) and counts[at]]
        r.shuffle(told)
        told.sort(key=lambda t: not first[t[2] + 1])
        return told[:GUIDED]


class Answers:
    """Where an answer's values or words stand in its context."""

    def __init__(self, encoder: Encoder):
        pieces = [encoder.processor.id_to_piece(token) for token in range(encoder.vocabulary)]
        self.starts = {token for token, piece in enumerate(pieces) if piece.startswith("\u2581")}  # a word
        self.goes_on = {token for token, piece in enumerate(pieces) if piece[0].isalpha()}         # a word that has begun
        self.comma = encoder.encode(WORDING["niah"]["answer_join"].strip())[-1]

    def tell(self, told: Told, family: str, head: list[int], begin: int, said: list[int], at: int) -> None:
        """Tells where what `said`, an answer from place `at` on, says stood in its context `head`, which begins at place `begin`."""
        if family == "niah":
            for first, value in self._values(said):  # what follows, too: that a value ends is read behind it
                told.tell("copies", at + first, [begin + i for i in _places(head, value)], len(value) + 1)
        elif family == "cwe":
            for first, word in self._words(said):
                before = [begin + i for i in _places(head, word) if head[i + len(word)] not in self.goes_on]
                # A word is known at its last token, how often it came too.
                told.tell("lists", at + first, [b + len(word) - 1 for b in before], 1)
                told.tell("copies", at + first + 1, [b + 1 for b in before], len(word) - 1)

    def _values(self, said: list[int]) -> list[tuple[int, list[int]]]:
        """Of an answer its values, each with its place there: commas are between them, EOS is behind the last."""
        ends = [i for i, token in enumerate(said) if token in (self.comma, EOS)]
        return [(begin, said[begin:end]) for begin, end in zip([0, *(end + 1 for end in ends)], ends)]

    def _words(self, said: list[int]) -> list[tuple[int, list[int]]]:
        """Of an answer its words, each with its place there."""
        firsts = [i for i, token in enumerate(said) if token in self.starts]
        return [(i, said[i:end]) for i, end in zip(firsts, [*firsts[1:], len(said) - 1])]


def _places(context: list[int], value: list[int]) -> list[int]:
    """Where the value stands in the context."""
    text, part = np.array(context, np.uint16).tobytes(), np.array(value, np.uint16).tobytes()
    found, at = [], text.find(part)
    while at >= 0:
        if at % 2 == 0:
            found.append(at // 2)
        at = text.find(part, at + 1)
    return found
