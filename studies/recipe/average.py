"""Averages the weights of exports that one training led to, one after the other: often better than each of them.

  python3 studies/recipe/average.py --models runs/guided/export runs/common/export --out runs/average

All of one shape and with one tokenizer. The average's training.json has those of its parts.
"""
import argparse
import json
from pathlib import Path

from export import read_export, write_export


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", required=True, nargs="+", type=Path, help="exported folders")
    parser.add_argument("--out", required=True, type=Path, help="the new one")
    parser.add_argument("--shard-mb", type=float, default=12, help="largest file (default 12)")
    parser.add_argument("--most-mb", type=float, default=25, help="largest model (default 25)")
    options = parser.parse_args()
    first, *others = options.models
    if not others:
        raise SystemExit("average.py: --models names one export: give two or more.")
    model, tokenizer = read_export(first), first / "tokenizer.model"
    total = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for folder in others:
        other = read_export(folder)
        if other.shape != model.shape or (folder / "tokenizer.model").read_bytes() != tokenizer.read_bytes():
            raise SystemExit(f"average.py: {folder} has another shape or tokenizer than {first}: only trainings of one model can be "
                             "averaged.")
        for name, tensor in other.state_dict().items():
            total[name] += tensor
    model.load_state_dict({name: tensor / len(options.models) for name, tensor in total.items()})
    parts = [json.loads((folder / "training.json").read_text(encoding="utf-8")) for folder in options.models]
    write_export(model, tokenizer, options.out, {"average_of": parts}, options.shard_mb, options.most_mb)


if __name__ == "__main__":
    main()
