"""Shows which tokens of the answers a model gets wrong: what it should see more of.

  python3 studies/recipe/mistakes.py --model models/deep --task niah_multikey_3 --length 1K --samples 40

Each answer goes through in one pass, every token behind the right ones before it (teacher-forced), of the samples that
evaluate.py takes. By kind of token: how many there are, how many the model says otherwise, and how often one was an answer's
first mistake, which is what greedy decoding would have ended at. Then some first mistakes: the tokens before, the one that is
right and the one that it says, each with its probability.
"""
import argparse
import collections
from pathlib import Path

import torch

from evaluate import lengths_of, sample
from export import read_export
from model import Model
from ruler_tasks import TASKS
from tokenizer import EOS, Encoder

KINDS = ("digit", "letter", "letters", "sign", "end")  # of what a piece holds beside the space before it


def kind_of(piece: str, token: int) -> str:
    if token == EOS:
        return "end"
    plain = piece.lstrip("\u2581")  # SentencePiece's space
    if plain.isdigit():
        return "digit"
    if plain.isalpha():
        return "letter" if len(plain) == 1 else "letters"
    return "sign"  # a dash, a space of its own


@torch.no_grad()
def probabilities(model: Model, prompt: list[int], reference: list[int]) -> torch.Tensor:
    """[tokens of the reference][vocabulary]."""
    ids = torch.tensor([prompt + reference[:-1]])
    hidden = model(ids, torch.arange(ids.shape[1])[None])[0, len(prompt) - 1:]
    return model.logits(hidden).float().softmax(-1)


def options_of(about: str, samples: int) -> argparse.ArgumentParser:
    """Those of a program that looks at answers."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, help="an exported folder")
    parser.add_argument("--task", default="niah_multikey_3", choices=list(TASKS), metavar="TASK",
                        help="one of RULER's (default niah_multikey_3)")
    parser.add_argument("--length", default="1K", help="tokens of the prompt (default 1K)")
    parser.add_argument("--samples", type=int, default=samples, help=f"default {samples}")
    parser.add_argument("--seed", type=int, default=42)
    return parser


def main() -> None:
    parser = options_of(__doc__, 40)
    parser.add_argument("--show", type=int, default=12, help="first mistakes to show (default 12)")
    options = parser.parse_args()
    (length,) = lengths_of(options.length)
    encoder, model = Encoder(options.model / "tokenizer.model"), read_export(options.model)
    piece = encoder.processor.id_to_piece
    seen, wrong, first, shown = collections.Counter(), collections.Counter(), collections.Counter(), []
    right_answers = 0
    for index in range(options.samples):
        _, prompt, reference = sample(encoder, options.task, length, index, options.seed)
        chances = probabilities(model, prompt, reference)
        said = chances.argmax(-1).tolist()
        kinds = [kind_of(piece(token), token) for token in reference]
        mistakes = [i for i, token in enumerate(reference) if said[i] != token]
        seen.update(kinds)
        wrong.update(kinds[i] for i in mistakes)
        if not mistakes:
            right_answers += 1
            continue
        i = mistakes[0]
        first[kinds[i]] += 1
        before = " ".join(piece(token) for token in reference[max(0, i - 5):i])
        shown.append(f"  sample {index:3}, token {i:2}: {before} [{piece(reference[i])} {chances[i, reference[i]]:.2f}]"
                     f" says {piece(said[i])} {chances[i, said[i]]:.2f}")
    print(f"{options.task} at {length} tokens: {right_answers} of {options.samples} answers without a mistake")
    print(f"{'kind':8} {'tokens':>7} {'wrong':>6} {'%':>6} {'first':>6}")
    for kind in KINDS:
        if seen[kind]:
            print(f"{kind:8} {seen[kind]:7} {wrong[kind]:6} {100 * wrong[kind] / seen[kind]:6.1f} {first[kind]:6}")
    print("\n".join(shown[:options.show]))


if __name__ == "__main__":
    main()
