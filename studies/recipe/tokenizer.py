"""The tokenizer: SentencePiece BPE with digits split and byte fallback, trained on task samples and natural text; and an
encoder that gives the same ids faster, by remembering words."""
import io
import random
from pathlib import Path
from typing import Iterator

import sentencepiece

from tasks import FAMILIES, Tasks

BOS, EOS = 1, 2
FIRST_PLAIN = 260  # pieces 3..258 are bytes, 259 is the line end


def _corpus(tasks: Tasks, text: list[str]) -> Iterator[str]:
    r = random.Random(5)
    for _ in range(3000):
        sample = tasks.make(r.choices(FAMILIES, (10, 3, 2, 2, 3))[0], r, 1500, 6)
        yield from sample.context.split("\n")
        for question, answer in sample.questions:
            yield f"{question} {answer}"
    yield from r.sample(text, min(len(text), 60000))


def train_tokenizer(out: Path, tasks: Tasks, text: list[str], vocabulary: int) -> None:
    """Writes `out`. The same inputs give the same file: nothing of the machine, no path, gets into it."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=_corpus(tasks, text), model_writer=written, vocab_size=vocabulary, model_type="bpe",
        split_digits=True, byte_fallback=True, character_coverage=1.0, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=False, user_defined_symbols=["\n"], unk_id=0, bos_id=BOS,
        eos_id=EOS, pad_id=-1, max_sentence_length=200000, minloglevel=2, num_threads=1)
    out.write_bytes(written.getvalue())


class Encoder:
    """SentencePiece's ids, word by word. Pieces never span a space except as their first character, so the ids of a text
    are those of its words, each with the space before it. Words of letters come back often and are kept."""

    def __init__(self, file: str | Path):
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
        self.vocabulary = self.processor.get_piece_size()
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        first, *rest = text.split(" ")
        ids = self.processor.encode(first)
        known = self._known
        for word in rest:
            pieces = known.get(word)
            if pieces is None:
                pieces = self.processor.encode(" " + word)
                if len(known) < 200000 and not any(c.isdigit() for c in word):
                    known[word] = pieces
            ids += pieces
        return ids

    def decode(self, ids: list[int]) -> str:
        return self.processor.decode([i for i in ids if i not in (BOS, EOS)])
