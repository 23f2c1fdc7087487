"""Draws a training run: answer loss and share of right answers by family, against tokens, with the stages marked.

  python3 models/recipe/plot_training.py --run runs/gpu

Reads RUN/log.jsonl, writes RUN/training.png. Needs matplotlib, but not torch. The figures are of training batches, which
the model had not seen before; many questions share a context there, so tests (evaluate.py) are harder.
"""
import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def smooth(values: list[float], share: float = 0.8) -> list[float]:
    out: list[float] = []
    for v in values:
        out.append(v if not out else share * out[-1] + (1 - share) * v)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True, help="a training folder")
    run = Path(parser.parse_args().run)
    try:
        lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise SystemExit(f"plot_training.py: {error}.") from None
    if not lines:
        raise SystemExit(f"plot_training.py: {run / 'log.jsonl'} is empty.")
    figure, (losses, rights) = plt.subplots(2, 1, figsize=(9, 7), sharex=True)
    spoken = [line for line in lines if line["answer_loss"] is not None]
    millions = [line["tokens"] / 1e6 for line in spoken]
    losses.plot(millions, [line["answer_loss"] for line in spoken], color="0.8")
    losses.plot(millions, smooth([line["answer_loss"] for line in spoken]), color="C0")
    losses.set_ylabel("loss per answer token, nats")
    for family in sorted({family for line in lines for family in line["families"]}):
        mine = [line for line in lines if family in line["families"]]
        rights.plot([line["tokens"] / 1e6 for line in mine],
                    smooth([100 * line["families"][family]["right"] for line in mine]), label=family)
    rights.set_ylabel("right answers, %")
    rights.set_xlabel("tokens, millions")
    rights.set_ylim(0, 100)
    rights.legend(loc="lower left", bbox_to_anchor=(0, 1), ncol=5, frameon=False)
    for before, after in zip(lines, lines[1:]):
        if before["stage"] != after["stage"]:
            for axes in (losses, rights):
                axes.axvline(before["tokens"] / 1e6, color="0.6", linewidth=0.8)
            losses.annotate(f" T {after['T']}", (before["tokens"] / 1e6, losses.get_ylim()[1]), va="top", rotation=90, fontsize=7)
    figure.tight_layout()
    figure.savefig(run / "training.png", dpi=120)
    print(run / "training.png")


if __name__ == "__main__":
    main()
