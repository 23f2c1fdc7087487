"""Draws plot.png and plot.svg of a needle's run from its summary.json: a map of recall by depth and length for each method.

  python3 eval/needle/plot_needle.py RUN_FOLDER
"""
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report"))
from plotting import in_order, length_name, method_name, plt, read_json, run_script, save  # noqa: E402

ACROSS = 5  # maps beside each other


def grid_of(method, depths, lengths):
    cells = {(cell["task"], cell["length"]): cell["accuracy"] for cell in method["cells"]}
    return [[cells.get((f"depth_{depth}", length), math.nan) for length in lengths] for depth in depths]


def draw(axes, method, depths, lengths):
    grid = grid_of(method, depths, lengths)
    image = axes.imshow(grid, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    for y, row in enumerate(grid):
        for x, recall in enumerate(row):
            if not math.isnan(recall):
                axes.text(x, y, f"{100 * recall:.0f}", ha="center", va="center", fontsize=7,
                          color="black" if recall > 0.45 else "white")
    axes.set_xticks(range(len(lengths)), [length_name(length) for length in lengths])
    axes.set_yticks(range(len(depths)), [f"{depth} %" for depth in depths])
    axes.set_title(method_name(method["method"], 26), fontsize=9, loc="left")
    axes.tick_params(length=0)
    return image


def main(folder):
    methods = read_json(folder, "summary.json")["methods"]
    order = in_order(method["method"] for method in methods)
    methods = sorted(methods, key=lambda method: order.index(method["method"]))
    cells = [cell for method in methods for cell in method["cells"]]
    depths = sorted({int(cell["task"].removeprefix("depth_")) for cell in cells})
    lengths = sorted({cell["length"] for cell in cells})
    plt.rcParams.update({"axes.spines.top": True, "axes.spines.right": True})
    across, down = min(ACROSS, len(methods)), math.ceil(len(methods) / ACROSS)
    size = (0.9 + across * (0.7 + 0.42 * len(lengths)) + 0.6, 0.4 + down * (0.8 + 0.24 * len(depths)))
    figure, panels = plt.subplots(down, across, figsize=(max(size[0], 4), max(size[1], 2.4)), sharex=True, sharey=True,
                                  squeeze=False, constrained_layout=True)
    image = None
    for axes, method in zip(panels.flat, methods):
        image = draw(axes, method, depths, lengths)
    for axes in list(panels.flat)[len(methods):]:
        axes.set_visible(False)
    for row in panels:
        row[0].set_ylabel("depth of the needle")
    for axes in panels[-1]:
        axes.set_xlabel("length, tokens", loc="left")
    bar = figure.colorbar(image, ax=panels, shrink=0.8, ticks=[0, 0.5, 1])
    bar.set_ticklabels(["0 %", "50 %", "100 %"])
    bar.set_label("found")
    save(figure, folder, "plot")


if __name__ == "__main__":
    run_script("eval/needle/plot_needle.py", __doc__, main)
