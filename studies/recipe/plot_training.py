"""Draws a training run: answer loss and share of right answers by family, against tokens, with the stages marked and the
length of their rows below.

  python3 studies/recipe/plot_training.py --run runs/gpu

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
    figure, (losses, rights, rows) = plt.subplots(3, 1, figsize=(9, 8), sharex=True, height_ratios=(3, 3, 1))
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
    rights.set_ylim(0, 100)
    rights.legend(loc="lower left", bbox_to_anchor=(0, 1), ncol=5, frameon=False)
    lengths = sorted({line["T"] for line in lines})
    rows.step([0, *(line["tokens"] / 1e6 for line in lines)], [lines[0]["T"], *(line["T"] for line in lines)], color="C0")
    rows.set_yscale("log", base=2)
    rows.set_yticks(lengths, [str(length) for length in lengths], fontsize=7)
    rows.minorticks_off()
    rows.set_ylabel("tokens of a row")
    rows.set_xlabel("tokens, millions")
    for before, after in zip(lines, lines[1:]):
        if before["stage"] != after["stage"]:
            for axes in (losses, rights, rows):
                axes.axvline(before["tokens"] / 1e6, color="0.75", linewidth=0.6, zorder=0)
    figure.tight_layout()
    figure.savefig(run / "training.png", dpi=120)
    print(run / "training.png")


if __name__ == "__main__":
    main()
