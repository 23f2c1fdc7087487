"""Draws what `tandem reproduce NAME --out FILE.json` wrote: published beside simulated, or figure 6's CPU compute ratio.

  python3 scripts/plot_reproduction.py FILE.json PLOT.svg
"""
import json
import re
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    sys.exit("matplotlib is missing (Debian package python3-matplotlib).")

# Okabe and Ito's palette, told apart with any kind of colour vision.
METHODS = {"FullKV": "#4D4D4D", "HGCA": "#D55E00", "InfiniGen": "#0072B2", "ScoutAttention": "#009E73"}
PUBLISHED, OURS = "#C8C8C8", "#0072B2"


def rates(data, pattern):
    """{method: [(x, tokens/s, batch)]} of the runs whose name matches `METHOD, pattern`, by the pattern's number."""
    found = {}
    for run in data["runs"]:
        match = re.fullmatch(r"(\w+), " + pattern, run["name"])
        if match and match.group(1) in METHODS and "step_ms" in run:
            point = (int(match.group(2)), 1e3 * run["batch"] / run["step_ms"], run["batch"])
            found.setdefault(match.group(1), []).append(point)
    return {method: sorted(points) for method, points in found.items()}


def draw_rates(axes, found, title, label, unit):
    for method, points in found.items():
        axes.plot([p[0] for p in points], [p[1] for p in points], "o-", color=METHODS[method], label=method, markersize=4)
    axes.set_xscale("log", base=2)
    ticks = sorted({p[0] for points in found.values() for p in points})
    axes.set_xticks(ticks, [f"{t}{unit}" for t in ticks])
    axes.set_ylim(0)
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel(label, loc="left")
    axes.set_ylabel("tokens/s, simulated")
    axes.legend(frameon=False, fontsize=8)


def draw_cells(axes, cells, scale, title):
    for y, cell in enumerate(cells):
        axes.barh(y - 0.2, scale * cell["published"], 0.38, color=PUBLISHED, label="published" if y == 0 else None)
        if cell["ours"] is not None:
            axes.barh(y + 0.2, scale * cell["ours"], 0.38, color=OURS, label="ours, simulated" if y == 0 else None)
            axes.text(scale * cell["ours"], y + 0.2, f" {scale * cell['ours']:.3g}", va="center", fontsize=8)
        axes.text(scale * cell["published"], y - 0.2, f" {scale * cell['published']:.3g}", va="center", fontsize=8)
    axes.set_yticks(range(len(cells)), [cell["name"] + (" (fitted)" if cell["fitted"] else "") for cell in cells])
    axes.invert_yaxis()
    axes.set_title(title, fontsize=9, loc="left")
    axes.legend(frameon=False, fontsize=8)


def draw_experiment(data, target):
    figure, panels = plt.subplots(2, 2, figsize=(12, 7.5), constrained_layout=True)
    cells = data["cells"]
    draw_rates(panels[0][0], rates(data, r"(\d+)K"), "figure 8", "context, as many sequences as fit, at most 40", "K")
    draw_rates(panels[0][1], rates(data, r"32K x (\d+)"), "figure 9", "batch at 32K", "")
    draw_cells(panels[1][0], [c for c in cells if c["figure"] == "11"], 100, "figure 11: device idle, % of a step")
    draw_cells(panels[1][1], [c for c in cells if c["figure"] != "11"], 1, "figures 8, 9, 12: speed-ups")
    figure.suptitle(f"{data['title']}, {data['clock']}", fontsize=9, x=0.01, ha="left")
    figure.savefig(target, metadata={"Date": None} if target.endswith(".svg") else None)


def draw_policies(axes, runs):
    """Step times of each policy over priority's, by seed, one row a policy and range of lengths."""
    by_name = {run["name"]: run for run in runs if "step_ms_by_seed" in run}
    rows = [(policy, lengths) for lengths in ("U(16K,64K)", "U(32K,128K)") for policy in ("cpu-only", "uniform", "length")]
    rows = [row for row in rows if "%s, %s" % row in by_name]
    for y, (policy, lengths) in enumerate(rows):
        best = by_name[f"priority, {lengths}"]["step_ms_by_seed"]
        ratios = [a / b for a, b in zip(by_name[f"{policy}, {lengths}"]["step_ms_by_seed"], best)]
        axes.plot(ratios, [y] * len(ratios), "o", color=OURS, markersize=3, alpha=0.5)
        axes.plot([sum(ratios) / len(ratios)], [y], "|", color="black", markersize=12)
    axes.axvline(1, color="#8A8A8A", linewidth=1)
    axes.set_yticks(range(len(rows)), ["%s, %s" % row for row in rows])
    axes.invert_yaxis()
    axes.set_title("figure 9: step time over priority's, each of 20 batches and their mean", fontsize=9, loc="left")


def draw_fluxion(data, target):
    figure, panels = plt.subplots(3, 2, figsize=(12, 15), constrained_layout=True)

    def cells(figures, quantity):
        chosen = [dict(c) for c in data["cells"] if c["figure"] in figures and c["quantity"] == quantity]
        for c in chosen:
            c["name"] = c["name"].removesuffix(": idle ms").removesuffix(": idle")
            c["name"] += " (source)" if c.get("source_of_the_workload") else ""
        return chosen

    draw_cells(panels[0][0], cells(["table5"], "idle_ms"), 1, "table 5: device idle, ms a layer")
    draw_cells(panels[0][1], cells(["table5"], "idle_ratio"), 100, "table 5: device idle, % of a step")
    draw_cells(panels[1][0], cells(["7", "8"], "speed_up"), 1, "figures 7 and 8: Fluxion over (16,0.05)")
    draw_policies(panels[1][1], data["runs"])
    draw_cells(panels[2][0], cells(["9"], "tpot_ms"), 1, "figure 9: step time over batch, ms")
    draw_cells(panels[2][1], cells(["2"], "selection_share") + cells(["10"], "predictor_share"), 100,
               "figures 2 and 10: share of the CPU's work, of a step, %")
    figure.suptitle(f"{data['title']}, {data['clock']}", fontsize=9, x=0.01, ha="left")
    figure.savefig(target, metadata={"Date": None} if target.endswith(".svg") else None)


def draw_ratios(data, target):
    figure, axes = plt.subplots(figsize=(7, 3.5), constrained_layout=True)
    for name, colour in (("without", "#D55E00"), ("with", "#0072B2")):
        layers = data["cpu_ratio"][name]
        steps = [100 * sum(layer[i] for layer in layers) / len(layers) for i in range(len(layers[0]))]
        axes.plot(range(1, len(steps) + 1), steps, "o-", color=colour, markersize=3, label=f"{name} recall")
    axes.axhline(8.2, color="#8A8A8A", linestyle="--", linewidth=1, label="published mean with recall, Qwen3-8B")
    axes.set_ylim(0)
    axes.set_xlabel("decode step", loc="left")
    axes.set_ylabel("CPU compute ratio, %")
    axes.set_title(f"figure 6: {data['model']}, {data['method']}, mean interval {data['mean_interval']:.1f}", fontsize=9, loc="left")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(target, metadata={"Date": None} if target.endswith(".svg") else None)


def main(source, target):
    with open(source, encoding="utf-8") as file:
        data = json.load(file)
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "tandem", "svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False})
    if data.get("schema") == "tandem-scout-recall-1":
        draw_ratios(data, target)
    elif data["experiment"] == "fluxion":
        draw_fluxion(data, target)
    else:
        draw_experiment(data, target)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{sys.argv[1]}: {type(error).__name__}: {error}")
