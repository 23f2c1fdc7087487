"""Training rows and the processes that make them.

A batch is a function of (seed, stage, number) alone, so that a resumed run goes on with the very batch it stopped before,
on any number of processes, and no sample is seen twice.

  python3 studies/recipe/packing.py --config studies/recipe/gpu.json --tokenizer runs/train/tokenizer.model

measures how many tokens per second one process makes for each stage: times the cores, that is what training can take in.
"""
import argparse
import json
import multiprocessing
import os
import queue
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import text
import wording
from tasks import FAMILIES, Tasks
from copy_sources import SOURCES, Answers, Told
from tokenizer import BOS, EOS, FIRST_PLAIN, Encoder

SKIP, CONTEXT, TEXT, ANSWER, CHOICE = range(5)  # what a token is as a target
WEIGHTS = (0.0, 0.16, 0.3, 1.0, 3.0)            # its weight in the loss
CONTEXT_EVERY = 8  # of a context's tokens one in so many is a target: they cost as much as answers and teach little


@dataclass
class Batch:
    ids: np.ndarray        # [rows][T + 1] uint16
    kinds: np.ndarray      # [rows][T + 1] uint8: SKIP ... CHOICE
    answers: np.ndarray    # [rows][T + 1] uint16: 0, or number of the answer in its row * 8 + family + 1
    positions: np.ndarray  # [rows][T] int32
    sources: np.ndarray    # [n][3 + SOURCES] int32, sorted: number in GUIDES, row, place that says a token, places to look at
                           # then (-1: none)


@dataclass
class Row:
    ids: list[int]
    kinds: list[int]
    answers: list[int]  # these three as in a Batch, T + 1 each
    told: Told = field(default_factory=Told)


class Packer:
    """Rows of exactly T + 1 tokens: repeated random tokens or strings (they teach copying), natural text, or tasks."""

    def __init__(self, encoder: Encoder, sentences: list[str], stage: dict):
        self.encoder, self.sentences, self.stage = encoder, sentences, stage
        names = ("several", "crowded", "uuids", "uuid_values", "alike", "hops", "pairs")
        shares = {name: stage[name] for name in names if name in stage}
        self.tasks = Tasks(sentences, stage["hard"], **shares)
        self.density = self._characters_per_token()
        pieces = {token: encoder.processor.id_to_piece(token) for token in range(FIRST_PLAIN, encoder.vocabulary)}
        self.letters = {token for token, piece in pieces.items() if stage.get("letters") and piece.lstrip("\u2581").isalpha()}
        self.answer_places = Answers(encoder)
        self.hexadecimal = hexadecimal_tokens(encoder)

    def _characters_per_token(self) -> dict[str, float]:
        r, density = random.Random(7), {}
        for family in FAMILIES:
            contexts = [self.tasks.make(family, r, 2000, 1).context for _ in range(10)]
            density[family] = sum(map(len, contexts)) / sum(len(self.encoder.encode(c)) for c in contexts)
        return density

    def batch(self, r: random.Random) -> Batch:
        T, rows = self.stage["T"], self.stage["B"]
        made: list[Row] = []
        sources: list[list[int]] = []
        for number in range(rows):
            row = self.row(r)
            if self.stage.get("guide"):  # else nothing is drawn: plans without it make what they did before
                # Tokens that say which value it is come first where there are too many.
                sources += row.told.sources(r, number, [k != SKIP for k in row.kinds], [k == CHOICE for k in row.kinds])
            made.append(row)
        return Batch(np.array([m.ids for m in made], np.uint16), np.array([m.kinds for m in made], np.uint8),
                     np.array([m.answers for m in made], np.uint16), positions(r, rows, T, self.stage["pmax"]),
                     np.array(sorted(sources), np.int32).reshape(-1, 3 + SOURCES))

    def row(self, r: random.Random) -> Row:
        size, kind = self.stage["T"] + 1, r.random()
        if kind < self.stage["rep"] * self.stage.get("strings", 0):
            return self._strings_row(r, size)
        if kind < self.stage["rep"]:
            period = r.randrange(8, max(9, self.stage["T"] // 2))
            once = [r.randrange(FIRST_PLAIN, self.encoder.vocabulary) for _ in range(period)]
            ids = ([BOS] + once * (size // period + 1))[:size]
            return Row(ids, ([SKIP] * (period + 1) + [TEXT] * size)[:size], [0] * size)
        if kind < self.stage["rep"] + self.stage["lm"] and self.sentences:
            ids, at = [BOS], r.randrange(len(self.sentences))
            while len(ids) < size:
                ids += self.encoder.encode(self.sentences[at % len(self.sentences)] + " ")
                at += 1
            return Row(ids[:size], [SKIP] + [TEXT] * (size - 1), [0] * size)
        return self._task_row(r, size)

    def _strings_row(self, r: random.Random, size: int) -> Row:
        """UUIDs, numbers, names or keys: some listed once, then again and again in random order. A token is no longer enough to
        find the place to copy from, as it is in repeated random tokens: three or four must agree, and more in strings that look
        alike. Targets are what can be known: not the first time, nor the tokens that say which string it is."""
        kinds_of = r.choice((("uuids",), ("uuids",), ("numbers",), ("words",), ("uuids", "numbers", "words")))
        ids, kinds, told = [BOS], [SKIP], Told()
        most = r.uniform(0.1, 0.6) * size
        few = self.stage.get("few", 0)
        tokens = self._few_tokens(r) if few and r.random() < few else []
        made = None if tokens else wording.maker(r, size // 16, self.stage.get("alike", 0), self.stage.get("pairs", 0))
        listed: list[list[int]] = []
        begins: dict[tuple[int, ...], list[int]] = {}
        while not listed or len(ids) < most:
            if tokens:
                string = r.choices(tokens, k=r.randrange(8, 40))
            else:
                string = self.encoder.encode(" " + made(r, r.choice(kinds_of)))
            listed.append(string[:size // 2])
            begins.setdefault(tuple(listed[-1]), []).append(len(ids))
            ids += listed[-1]
            kinds += [SKIP] * len(listed[-1])
        unlike = _unlike_after(listed)
        while len(ids) < size:
            again = r.choice(listed)
            known = max(min(5, len(again) // 2), unlike[tuple(again)])
            told.tell("copies", len(ids), begins[tuple(again)], len(again))
            begins[tuple(again)].append(len(ids))
            ids += again
            kinds += [SKIP] * known + [TEXT] * (len(again) - known)
        return Row(ids[:size], kinds[:size], [0] * size, told)

    def _few_tokens(self, r: random.Random) -> list[int]:
        """Some of all tokens, or those that UUIDs are made of, or their letters alone. Strings of them are found by several tokens
        that agree, whatever these are: of text, models learn that of digits, and copy a letter by the digit behind it (README.md)."""
        kind = r.randrange(3)
        if kind == 0:
            return r.sample(range(FIRST_PLAIN, self.encoder.vocabulary), r.randrange(12, 64))
        return [token for token, piece in self.hexadecimal if kind == 1 or piece.isalpha()]

    def _answer(self, text: str) -> tuple[list[int], list[int]]:
        """Its tokens and their kinds. The first two of every word say which value it is, the others follow from them: a list
        of UUIDs would otherwise hardly be about which comes next. Where the stage says `letters`, so do a UUID's letters, which are
        wrong most often."""
        ids: list[int] = []
        kinds: list[int] = []
        for word in text.split(" "):
            pieces = self.encoder.encode(" " + word)
            heavy = self.letters if word.count("-") == 4 else ()  # a UUID's
            ids += pieces
            kinds += [CHOICE if i < 2 or token in heavy else ANSWER for i, token in enumerate(pieces)]
        return ids + [EOS], kinds + [ANSWER]

    def _task_row(self, r: random.Random, size: int) -> Row:
        ids: list[int] = []
        kinds: list[int] = []
        answers: list[int] = []
        told = Told()
        dense = r.random() < self.stage["dense"]  # many questions on less context
        number = 0
        tries = 0
        while size - len(ids) >= 96 and tries < 20:
            room = size - len(ids)
            family = r.choices(FAMILIES, self.stage["families"])[0]
            questions = r.randrange(4, self.stage.get("questions", 12)) if dense else r.choice((1, 1, 2, 4))
            share = r.uniform(0.4, 0.85) if dense else r.uniform(0.75, 0.97)
            if dense and family in ("cwe", "fwe"):  # these have one question only
                share *= r.uniform(0.3, 1)
            characters = room * share * self.density[family]
            for _ in range(8):
                sample = self.tasks.make(family, r, max(60, int(characters)), questions)
                head = [BOS] + self.encoder.encode(sample.context + "\n")
                asked = [(self.encoder.encode(q), *self._answer(a)) for q, a in sample.questions]
                fits = len(head) + len(asked[0][0]) + len(asked[0][1]) <= room
                # UUIDs take twice the tokens of words: a context of them would leave room for one question of ten.
                if fits and (not dense or len(head) <= 1.1 * share * room or characters <= 60):
                    break
                characters *= min(0.8, share * room / len(head))
            if not fits:
                if ids:
                    break
                tries += 1  # not even one: another family may
                continue
            begin = len(ids)
            ids += head
            kinds += _some(len(kinds), len(head))
            answers += [0] * len(head)
            for question, said, said_kinds in asked:
                if len(ids) + len(question) + len(said) > size:
                    break
                number += 1
                if self.stage.get("guide"):
                    self.answer_places.tell(told, family, head, begin, said, len(ids) + len(question))
                ids += question + said
                kinds += _some(len(kinds), len(question)) + said_kinds
                answers += [0] * len(question) + [number * 8 + FAMILIES.index(family) + 1] * len(said)
        rest = size - len(ids)
        return Row(ids + [EOS] * rest, kinds + [SKIP] * rest, answers + [0] * rest, told)


def hexadecimal_tokens(encoder: Encoder) -> list[tuple[int, str]]:
    """What UUIDs are made of but for their dashes: digits, letters and pairs of letters, each with its piece."""
    pieces = [(token, encoder.processor.id_to_piece(token)) for token in range(FIRST_PLAIN, encoder.vocabulary)]
    return [(token, piece) for token, piece in pieces if len(piece) <= 2 and set(piece) <= set("0123456789abcdef")]


def _unlike_after(strings: list[list[int]]) -> dict[tuple[int, ...], int]:
    """The number of its first tokens that no other string begins with, or all of them."""
    ordered = sorted({tuple(string) for string in strings})

    def shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
        return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))

    between = [0, *(shared(a, b) for a, b in zip(ordered, ordered[1:])), 0]
    return {s: min(len(s), 1 + max(left, right)) for s, left, right in zip(ordered, between, between[1:])}


def _some(at: int, count: int) -> list[int]:
    """Kinds of `count` tokens of context from place `at` of a row on."""
    return [CONTEXT if i % CONTEXT_EVERY == 0 and i else SKIP for i in range(at, at + count)]


def positions(r: random.Random, rows: int, T: int, most: int) -> np.ndarray:
    """Growing positions [rows][T]. Three rows of five skip ahead at a few places, so that short rows teach distances up to
    `most`."""
    out = np.tile(np.arange(T, dtype=np.int32), (rows, 1))
    for row in out:
        if most > T and r.random() < 0.6:
            jumps = r.randrange(1, 5)
            for _ in range(jumps):
                row[r.randrange(1, T):] += r.randrange(max(1, (most - T) // jumps))
    return out


def _work(orders, out, tokenizer: Path, sentences: list[str], worker: int, workers: int) -> None:
    """Makes every `workers`-th batch of the stage ordered last, until the parent is gone."""
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    encoder = Encoder(tokenizer)
    try:
        order = orders.recv()
        while True:
            stage, seed, first = order
            packer, number = Packer(encoder, sentences, stage), first + worker
            while not orders.poll():
                batch = packer.batch(random.Random(f"{seed}-{number}"))
                while not orders.poll():
                    try:
                        out.put((seed, number, batch), timeout=0.2)
                        number += workers
                        break
                    except queue.Full:
                        if os.getppid() != parent:
                            os._exit(1)  # a plain return would wait for the queue to be read
            order = orders.recv()
    except EOFError:
        pass


class Batches:
    """Batches of a stage in order, made ahead of time by `workers` processes. Make it before anything touches the GPU: the
    processes are forked, so that they share the text. `waited` adds up the seconds that the reader stood still: the share
    of time in which data, not the device, set the pace."""

    def __init__(self, tokenizer: Path, sentences: list[str], workers: int):
        context = multiprocessing.get_context("fork")
        self.waited, self.next, self.first, self.seed = 0.0, 0, 0, ""
        self.queues, self.orders, self.processes = [], [], []
        for worker in range(workers):
            theirs, ours = context.Pipe(duplex=False)
            out = context.Queue(maxsize=8)
            process = context.Process(target=_work, daemon=True, args=(theirs, out, tokenizer, sentences, worker, workers))
            process.start()
            self.queues.append(out)
            self.orders.append(ours)
            self.processes.append(process)

    def start(self, stage: dict, seed: str, first: int) -> None:
        """From here on get() gives batches `first`, first + 1, ... of this stage."""
        self.seed, self.first, self.next = seed, first, first
        for orders in self.orders:
            orders.send((stage, seed, first))

    def get(self) -> Batch:
        worker = (self.next - self.first) % len(self.queues)
        began = time.monotonic()
        while True:
            try:
                seed, number, batch = self.queues[worker].get(timeout=5)
                if (seed, number) == (self.seed, self.next):
                    break  # others are left over from the stage before
            except queue.Empty:
                if not self.processes[worker].is_alive():
                    code = self.processes[worker].exitcode
                    raise SystemExit(f"Data process {worker} ended with code {code}: see the lines above.") from None
        self.waited += time.monotonic() - began
        self.next += 1
        return batch

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join(timeout=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--text", help="sentences made by text.py")
    parser.add_argument("--seconds", type=float, default=3, help="per stage (default 3)")
    options = parser.parse_args()
    encoder, sentences = Encoder(options.tokenizer), text.load(options.text)
    for stage in json.loads(Path(options.config).read_text(encoding="utf-8"))["stages"]:
        packer, r = Packer(encoder, sentences, stage), random.Random(1)
        packer.row(r)
        began, tokens = time.monotonic(), 0
        while time.monotonic() - began < options.seconds:
            packer.row(r)
            tokens += stage["T"]
        print(f"T {stage['T']:6}: {tokens / (time.monotonic() - began) / 1e3:6.0f} K tokens/s in one process")


if __name__ == "__main__":
    main()
