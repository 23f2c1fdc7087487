"""Draws plot.png and plot.svg of a sweep: tokens per second and idle time of each method, by context or batch, a column of panels
for each machine and batch.

  python3 eval/target/plot_sweep.py FOLDER          with the sweep.json that `tandem simulate --out FOLDER` wrote
"""
import json
import os
import sys
import textwrap

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    sys.exit(4)

# Okabe and Ito's palette, told apart with any kind of colour vision; where methods are more, dashes tell them apart.
COLOURS = ["#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
DASHES = ["-", "--", ":"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]


def length_name(length):
    return f"{length // 1024}K" if length % 1024 == 0 else str(length)


def unique(values):
    return list(dict.fromkeys(values))


def batch_name(batch):
    return "as many as fit" if batch == "max" else f"batch {batch}"


def style(i):
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i // len(COLOURS) % len(DASHES)],
            "marker": MARKERS[(i + i // len(COLOURS)) % len(MARKERS)], "markersize": 4, "linewidth": 1.4}


def panels_of(points):
    """(title, x's name, {method: [(x, point)]}) of each column of panels. Batches are the x where there is one context."""
    contexts, batches = unique(p["context"] for p in points), unique(p["batch"] for p in points)
    by_batch = len(contexts) == 1 and len([b for b in batches if b != "max"]) > 1
    columns = {}
    for p in points:
        if by_batch and p["batch"] == "max":
            continue
        part = f"contexts of {length_name(p['context'])}" if by_batch else batch_name(p["batch"])
        column = columns.setdefault((p["hardware"], part), {})
        if "refused" not in p:
            column.setdefault(p["method"], []).append((p["batch"] if by_batch else p["context"], p))
    return [(f"{hardware}, {part}", "batch" if by_batch else "context, tokens", lines)
            for (hardware, part), lines in columns.items()]


def draw(axes, name, lines, methods, value):
    for i, method in enumerate(methods):
        line = sorted(lines.get(method, []), key=lambda entry: entry[0])
        if line:
            axes.plot([x for x, _ in line], [value(p) for _, p in line], **style(i))
    ticks = sorted({x for line in lines.values() for x, _ in line})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(t) if name == "batch" else length_name(t) for t in ticks])
    axes.minorticks_off()
    axes.grid(color="#E5E5E5")
    axes.set_axisbelow(True)


def main(folder):
    with open(os.path.join(folder, "sweep.json"), encoding="utf-8") as file:
        sweep = json.load(file)
    points = sweep["points"]
    methods, columns = unique(p["method"] for p in points), panels_of(points)
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "tandem", "svg.fonttype": "none", "axes.spines.top": False,
                         "axes.spines.right": False})
    figure, panels = plt.subplots(2, len(columns), figsize=(3.4 * len(columns) + 0.6, 6.4), sharey="row", sharex="col",
                                  squeeze=False, constrained_layout=True)
    for (title, name, lines), (rate, idle) in zip(columns, panels.T):
        draw(rate, name, lines, methods, lambda p: 1e3 * p["sequences"] / p["step_ms"])
        draw(idle, name, lines, methods, lambda p: 100 * p["idle_ms"] / p["step_ms"])
        if any(lines.values()):
            rate.set_yscale("log")
        rate.set_title("\n".join(textwrap.wrap(title, 40)), fontsize=9, loc="left")
        idle.set_ylim(0, 100)
        idle.set_xlabel(name, loc="left")
    panels[0][0].set_ylabel(f"tokens/s, simulated, {sweep['model']}")
    panels[1][0].set_ylabel("device idle, % of a decode step")
    handles = [plt.Line2D([], [], **style(i)) for i in range(len(methods))]
    figure.legend(handles, ["\n".join(textwrap.wrap(m.replace(":", ": ", 1).replace(",", ", "), 26)) for m in methods],
                  loc="upper left", bbox_to_anchor=(1.0, 0.98), frameon=False, fontsize=8, handlelength=3)
    figure.savefig(os.path.join(folder, "plot.png"), dpi=150, bbox_inches="tight", metadata={"Software": None})
    figure.savefig(os.path.join(folder, "plot.svg"), bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        main(sys.argv[1])
    except (OSError, ValueError, LookupError, TypeError) as error:
        sys.exit(f"eval/target/plot_sweep.py: {type(error).__name__}: {error}")
