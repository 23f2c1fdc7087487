"""Shows of what tokens a model can continue a string that stood before.

  python3 studies/recipe/copies.py --model models/deep

Ten strings of 24 tokens, drawn from few, then one of them again: the share of its tokens from the seventh on that the model
says right, each behind the right ones. Drawn from digits, from letters and their pairs, from both (what UUIDs are made of) or
from 40 tokens of any kind, which no text puts together. A model that has learned to find a place by several tokens that agree
can do it for all of them.
"""
import argparse
import random
from pathlib import Path

from export import read_export
from mistakes import probabilities
from packing import hexadecimal_tokens
from tokenizer import BOS, FIRST_PLAIN, Encoder

STRINGS, LONG, KNOWN = 10, 24, 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, help="an exported folder")
    parser.add_argument("--samples", type=int, default=16, help="of each kind (default 16)")
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args()
    encoder, model, r = Encoder(options.model / "tokenizer.model"), read_export(options.model), random.Random(options.seed)
    hexadecimal = hexadecimal_tokens(encoder)
    kinds = {"digits": [token for token, piece in hexadecimal if piece.isdigit()],
             "letters": [token for token, piece in hexadecimal if piece.isalpha()],
             "both": [token for token, _ in hexadecimal], "any": []}
    print(f"{'tokens':8} {'of':>4} {'right':>7}")
    for name, fixed in kinds.items():
        right, seen = 0, 0
        for _ in range(options.samples):
            tokens = fixed or r.sample(range(FIRST_PLAIN, encoder.vocabulary), 40)
            strings = [r.choices(tokens, k=LONG) for _ in range(STRINGS)]
            again = r.choice(strings[:-1])
            said = probabilities(model, [BOS] + sum(strings, []), again).argmax(-1).tolist()
            right += sum(a == b for a, b in zip(said[KNOWN:], again[KNOWN:]))
            seen += LONG - KNOWN
        print(f"{name:8} {len(fixed) or 40:4} {100 * right / seen:6.1f} %")


if __name__ == "__main__":
    main()
