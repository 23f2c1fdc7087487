"""Draws plot.png and plot.svg of a run folder from its summary.json: accuracy, and where a decode step's time goes.

  python3 eval/report/plot.py RUN_FOLDER
"""
import json
import os
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    sys.exit(4)

# Okabe and Ito's palette: told apart with any kind of colour vision.
METHODS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
BUSY = "#4D4D4D"
CAUSES = {"host attention": "#D55E00", "selection": "#E69F00", "recall": "#CC79A7", "offload": "#F0E442", "transfer": "#56B4E9",
          "handoff": "#0072B2", "launch": "#BBBBBB", "sampling": "#009E73", "scheduler": "#8A6FB5"}


def main(folder):
    run = json.load(open(os.path.join(folder, "summary.json")))
    methods = run["methods"]
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "tandem", "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 0.9 + 0.42 * max(6, len(methods[0]["cells"]))), width_ratios=[3, 2])

    labels = [f"{c['task'].replace('niah_', '')}  {c['length'] // 1024}K" if c["length"] % 1024 == 0 else f"{c['task']}  {c['length']}"
              for c in methods[0]["cells"]]
    step = 0.7 / max(1, len(methods))
    for i, method in enumerate(methods):
        cells = method["cells"]
        y = [row + (i - (len(methods) - 1) / 2) * step for row in range(len(cells))]
        x = [100 * c["accuracy"] for c in cells]
        low = [100 * (c["accuracy"] - c["interval"][0]) for c in cells]
        high = [100 * (c["interval"][1] - c["accuracy"]) for c in cells]
        left.errorbar(x, y, xerr=[low, high], fmt="o", markersize=4, linewidth=1, color=METHODS[i % len(METHODS)], label=method["method"])
    left.set_yticks(range(len(labels)), labels)
    left.invert_yaxis()
    left.set_xlim(-3, 103)
    left.set_xlabel("accuracy, % (95 % interval)")
    left.grid(axis="x", color="#E5E5E5")
    left.set_axisbelow(True)
    left.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.12), ncol=3)

    shown = set()
    for row, method in enumerate(methods):
        latency, at = method["latency"], 0
        parts = [("busy", 1000 * latency["busy_ms"], BUSY)]
        parts += [(c, 1000 * v, CAUSES.get(c, "#999999")) for c, v in latency["idle_ms_by_cause"].items() if v > 0]
        for name, value, colour in parts:
            label = None if name in shown else ("device busy" if name == "busy" else "idle: " + name)
            shown.add(name)
            right.barh(row, value, left=at, height=0.55, color=colour, label=label)
            at += value
        right.text(at, row, f"  {at:.0f} us", va="center")
    right.set_yticks(range(len(methods)), [m["method"].replace(":", ":\n") for m in methods])
    right.invert_yaxis()
    right.set_xlabel("time of a decode step, us")
    right.margins(x=0.15)
    right.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=3, fontsize=8)
    right.set_title(run["clock"], fontsize=9)
    figure.tight_layout()
    figure.savefig(os.path.join(folder, "plot.png"), dpi=150, metadata={"Software": None})
    figure.savefig(os.path.join(folder, "plot.svg"), metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
