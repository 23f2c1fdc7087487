"""Draws equal.png and equal.svg of a comparison at equal bytes: accuracy by the bytes that each method came to, as a share of full's,
from its equal.json and summary.json.

  python3 eval/equal/plot_equal.py RUN_FOLDER
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
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
DASHES = ["-", "--", ":"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
BYTES = {"touched-bytes": ("bytes of the context that a step touches", lambda m: m["latency"]["bytes_per_token"]["touched"]),
         "device-bytes": ("bytes kept on the device", lambda m: m["latency"]["peak_kv_bytes"]["device"])}


def style(i):
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i // len(COLOURS) % len(DASHES)],
            "marker": MARKERS[(i + i // len(COLOURS)) % len(MARKERS)], "markersize": 4.5, "linewidth": 1.3, "capsize": 2,
            "elinewidth": 0.8}


def without(spec, option):
    """The method as it was given, but for the option that is set."""
    name, _, options = spec.partition(":")
    kept = [o for o in options.split(",") if o and o.partition("=")[0] != option]
    return name + (": " + ", ".join(kept) if kept else "")


def lines_of(equal, run):
    """{method without what is set: [(share of the reference's bytes, accuracy, low, high)]}, in the order of the run's methods."""
    methods = {m["method"]: m for m in run["methods"]}
    bytes_of = BYTES[equal["asked"].split("=")[0]][1]
    reference = methods.get(equal["reference"])
    whole = bytes_of(reference) if reference else equal["reference_bytes"]
    lines = {}
    for entry in equal["as_given"] + [m for share in equal["shares"] for m in share["methods"]]:
        m = methods.get(entry["method"])
        if m is None:
            continue
        overall = m["overall"]
        point = (bytes_of(m) / whole, overall["accuracy"], *overall["interval"])
        line = lines.setdefault(without(entry["given"], entry["option"]), [])
        if point not in line:
            line.append(point)
    return lines


def main(folder):
    with open(os.path.join(folder, "equal.json"), encoding="utf-8") as file:
        equal = json.load(file)
    with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
        run = json.load(file)
    lines = lines_of(equal, run)
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "tandem", "svg.fonttype": "none", "axes.spines.top": False,
                         "axes.spines.right": False})
    figure, axes = plt.subplots(figsize=(6.4, 4.4), constrained_layout=True)
    for i, points in enumerate(lines.values()):
        x, y, low, high = ([100 * p[k] for p in sorted(points)] for k in range(4))
        axes.errorbar(x, y, yerr=[[a - b for a, b in zip(y, low)], [b - a for a, b in zip(y, high)]], **style(i))
    for share in equal["shares"]:
        axes.axvline(100 * share["share"], color="#BBBBBB", linewidth=0.8, zorder=0)
    axes.set_xscale("log", base=2)
    ticks = sorted({100.0} | {100 * share["share"] for share in equal["shares"]})
    axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 100)
    axes.set_xlabel(f"{BYTES[equal['asked'].split('=')[0]][0]}, % of what {equal['reference']} comes to", loc="left")
    axes.set_ylabel("accuracy, % [95 %]")
    axes.set_title(f"{run['model']}, {run['clock']}", fontsize=9, loc="left")
    axes.grid(axis="y", color="#E5E5E5")
    axes.set_axisbelow(True)
    handles = [plt.Line2D([], [], **{k: v for k, v in style(i).items() if k not in ("capsize", "elinewidth")})
               for i in range(len(lines))]
    figure.legend(handles, ["\n".join(textwrap.wrap(m, 26)) for m in lines],
                  loc="upper left", bbox_to_anchor=(1.0, 0.97), frameon=False, fontsize=8, handlelength=3)
    figure.savefig(os.path.join(folder, "equal.png"), dpi=150, bbox_inches="tight", metadata={"Software": None})
    figure.savefig(os.path.join(folder, "equal.svg"), bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        main(sys.argv[1])
    except (OSError, ValueError, LookupError, TypeError) as error:
        sys.exit(f"eval/equal/plot_equal.py: {type(error).__name__}: {error}")
