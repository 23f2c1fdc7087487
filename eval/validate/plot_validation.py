"""Draws plot.png and plot.svg of a validation: predicted beside measured times, a panel for each kind of figure.

  python3 eval/validate/plot_validation.py FOLDER     with the validation.json that `tandem validate --out FOLDER` wrote
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report"))
from plotting import COLOURS, FAINT, MARKERS, plt, read_json, run_script, save, wrapped  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: E402

COLUMNS = 3
MILLISECONDS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}


def in_milliseconds(point):
    """(unit, factor): times in ms, rates as they are."""
    unit = point["unit"].split()[0]
    return ("ms", MILLISECONDS[unit]) if unit in MILLISECONDS else (unit, 1.0)


def draw_kind(axes, kind, points, devices):
    """Measured on the x axis, predicted on the y axis; filled: validation, hollow: calibration."""
    scaled = [(p, in_milliseconds(p)[1]) for p in points]
    values = [factor * v for p, factor in scaled for v in (p["measured"], p["predicted"])]
    low, high = min(values) / 1.3, max(values) * 1.3
    axes.fill_between([low, high], [0.9 * low, 0.9 * high], [1.1 * low, 1.1 * high], color=FAINT, linewidth=0)
    axes.plot([low, high], [low, high], color="#999999", linewidth=0.8)
    for p, factor in scaled:
        i = devices.index(p["device"])
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(factor * p["measured"], factor * p["predicted"], marker=MARKERS[i // len(COLOURS) % len(MARKERS)], markersize=4,
                  color=colour, fillstyle="none" if p["use"] == "calibration" else "full", linestyle="none",
                  markeredgewidth=0.7)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=6))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_title(wrapped(f"{kind}, {in_milliseconds(points[0])[0]}", 34), fontsize=9, loc="left")
    axes.grid(color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)


def main(folder):
    points = [p for p in read_json(folder, "validation.json")["points"] if p["use"] in ("validation", "calibration")]
    if not points:
        sys.exit("eval/validate/plot_validation.py: no point was compared")
    panels = {}
    for p in points:
        panels.setdefault((p["kind"], in_milliseconds(p)[0]), []).append(p)
    devices = sorted({p["device"] for p in points})
    rows = -(-len(panels) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(3.2 * COLUMNS + 0.4, 2.8 * rows), squeeze=False,
                                constrained_layout=True)
    for ax, ((kind, _), own) in zip(axes.flat, panels.items()):
        draw_kind(ax, kind, own, devices)
    for ax in list(axes.flat)[len(panels):]:
        ax.set_visible(False)
    figure.supxlabel("measured", fontsize=9)
    figure.supylabel("predicted; grey: within 10 %", fontsize=9)
    handles = [plt.Line2D([], [], marker=MARKERS[i // len(COLOURS) % len(MARKERS)], color=COLOURS[i % len(COLOURS)],
                          linestyle="none", markersize=5) for i in range(len(devices))]
    handles.append(plt.Line2D([], [], marker="o", color="#666666", fillstyle="none", linestyle="none", markersize=5))
    figure.legend(handles, devices + ["calibration points"], loc="upper left", bbox_to_anchor=(1.0, 0.98), frameon=False,
                  fontsize=8)
    save(figure, folder, "plot", bbox_inches="tight")


if __name__ == "__main__":
    run_script("eval/validate/plot_validation.py", __doc__, main)
