"""Draws what `tandem reproduce NAME --out FILE.json` wrote: published beside simulated, or figure 6's CPU compute ratio;
what `tandem profile query-shift --out FILE.json` wrote, a comparison's flops.json, and reasoning.json of `tandem eval reasoning`.

  python3 scripts/plot_reproduction.py FILE.json PLOT.svg
"""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "eval", "report"))
from plotting import BLUE, FAINT, GREY, ORANGE, SKY, VERMILION, dash_handles, in_order, line_legend, line_styles, method_name, plt, wrapped  # noqa: E402

METHODS = {"FullKV": "full", "HGCA": "hgca", "InfiniGen": "infinigen", "ScoutAttention": "scoutattention"}
PUBLISHED, OURS = "#C8C8C8", BLUE


def save(figure, target):
    figure.savefig(target, bbox_inches="tight", metadata={"Date": None} if target.endswith(".svg") else None)


def head(figure, title, handles, labels):
    """The figure's title, and below it its one legend."""
    figure.legend(handles, labels, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncol=len(labels), frameon=False, fontsize=8)
    figure.text(0.01, 1.0 + 0.3 / figure.get_figheight(), wrapped(title, int(16 * figure.get_figwidth())), fontsize=9)


def bar_handles():
    return [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in (PUBLISHED, OURS)], ["published", "ours, simulated"]


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
    styles = line_styles(METHODS.values())
    for method, points in found.items():
        axes.plot([p[0] for p in points], [p[1] for p in points], label=method, **styles[METHODS[method]])
    axes.set_xscale("log", base=2)
    ticks = sorted({p[0] for points in found.values() for p in points})
    axes.set_xticks(ticks, [f"{t}{unit}" for t in ticks])
    axes.set_ylim(0)
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel(label, loc="left")
    axes.set_ylabel("tokens/s, simulated")


def draw_cells(axes, cells, scale, title):
    for y, cell in enumerate(cells):
        for source, at, colour in (("published", y - 0.2, PUBLISHED), ("ours", y + 0.2, OURS)):
            if cell[source] is not None:
                axes.barh(at, scale * cell[source], 0.38, color=colour)
                axes.text(scale * cell[source], at, f" {scale * cell[source]:.3g}", va="center", fontsize=7)
    axes.set_yticks(range(len(cells)), [cell["name"] + (" (fitted)" if cell["fitted"] else "") for cell in cells], fontsize=8)
    axes.set_ylim(len(cells) - 0.4, -0.6)
    axes.margins(x=0.12)
    axes.set_title(title, fontsize=9, loc="left")


def draw_experiment(data, target):
    figure, panels = plt.subplots(2, 2, figsize=(12, 7), constrained_layout=True, gridspec_kw={"height_ratios": (4, 3)})
    cells = data["cells"]
    draw_rates(panels[0][0], rates(data, r"(\d+)K"), "figure 8", "context, as many sequences as fit, at most 40", "K")
    draw_rates(panels[0][1], rates(data, r"32K x (\d+)"), "figure 9", "batch at 32K", "")
    draw_cells(panels[1][0], [c for c in cells if c["figure"] == "11"], 100, "figure 11: device idle, % of a step")
    draw_cells(panels[1][1], [c for c in cells if c["figure"] != "11"], 1, "figures 8, 9, 12: speed-ups")
    lines = panels[0][0].get_legend_handles_labels()
    bars, dashes = bar_handles(), dash_handles(METHODS.values())
    head(figure, f"{data['title']}, {data['clock']}", [*lines[0], *dashes[0], *bars[0]], [*lines[1], *dashes[1], *bars[1]])
    save(figure, target)


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
    axes.axvline(1, color=GREY, linewidth=1)
    axes.set_yticks(range(len(rows)), ["%s, %s" % row for row in rows])
    axes.invert_yaxis()
    axes.set_title("figure 9: step time over priority's;\ndots: 20 batches, stroke: their mean", fontsize=9, loc="left")


def draw_fluxion(data, target):
    figure, panels = plt.subplots(3, 2, figsize=(12, 13.5), constrained_layout=True, gridspec_kw={"height_ratios": (20, 13, 6)})

    def cells(figures, quantity):
        chosen = [dict(c) for c in data["cells"] if c["figure"] in figures and c["quantity"] == quantity]
        for c in chosen:
            for known in (": idle ms", ": idle", ": step / batch"):  # in the panel's title
                c["name"] = c["name"].removesuffix(known)
            c["name"] = c["name"].replace(": Fluxion over (16,0.05)", "")
            c["name"] += " (source)" if c.get("source_of_the_workload") else ""
        return chosen

    draw_cells(panels[0][0], cells(["table5"], "idle_ms"), 1, "table 5: device idle, ms a layer")
    draw_cells(panels[0][1], cells(["table5"], "idle_ratio"), 100, "table 5: device idle, % of a step")
    draw_cells(panels[1][0], cells(["7", "8"], "speed_up"), 1, "figures 7 and 8: Fluxion over (16,0.05)")
    draw_policies(panels[1][1], data["runs"])
    draw_cells(panels[2][0], cells(["9"], "tpot_ms"), 1, "figure 9: step time over batch, ms")
    draw_cells(panels[2][1], cells(["2"], "selection_share") + cells(["10"], "predictor_share"), 100,
               "figure 2: selection, % of the CPU's work;\nfigure 10: predictor, % of a step")
    head(figure, f"{data['title']}, {data['clock']}", *bar_handles())
    save(figure, target)


def draw_ratios(data, target):
    figure, axes = plt.subplots(figsize=(7, 3.5), constrained_layout=True)
    for name, colour in (("without", VERMILION), ("with", BLUE)):
        layers = data["cpu_ratio"][name]
        steps = [100 * sum(layer[i] for layer in layers) / len(layers) for i in range(len(layers[0]))]
        axes.plot(range(1, len(steps) + 1), steps, "o-", color=colour, markersize=3, label=f"{name} recall")
    axes.axhline(8.2, color=GREY, linestyle="--", linewidth=1, label="published mean with recall, Qwen3-8B")
    axes.set_ylim(0)
    axes.set_xlabel("decode step", loc="left")
    axes.set_ylabel("CPU compute ratio, %")
    title = f"figure 6: {data['model']}, {method_name(data['method'], 1000)}, mean interval {data['mean_interval']:.1f}"
    head(figure, title, *axes.get_legend_handles_labels())
    save(figure, target)


def draw_spade_table(data, target):
    """AsyncSpade's Table 2: inference and cache management per pack."""
    rows = data["rows"]
    figure, panels = plt.subplots(1, 2, figsize=(12, 6.5), constrained_layout=True, sharey=True)
    names = [f"{r['model']}, {r['batch']} \u00d7 {r['context'] // 1024}K, {r['gpu']}, {r['pack']} layers" for r in rows]
    for axes, what, title in ((panels[0], "inference_ms", "inference"), (panels[1], "management_ms", "cache management")):
        for shift, source, colour, label in ((-0.3, "published", PUBLISHED, "published"), (-0.1, "ours", OURS, "simulated"),
                                             (0.1, "with_framework", SKY, "with a framework, fitted to one row a GPU"),
                                             (0.3, "roofline", ORANGE, "roofline")):
            axes.barh([y + shift for y in range(len(rows))], [r[source][what] for r in rows], 0.19, color=colour, label=label)
        axes.set_title(f"{title} of a pack, ms", fontsize=9, loc="left")
    panels[0].set_yticks(range(len(rows)), names, fontsize=8)
    panels[0].set_ylim(len(rows) - 0.4, -0.6)
    head(figure, f"AsyncSpade, Table 2, {data['clock']}", *panels[1].get_legend_handles_labels())
    save(figure, target)


def draw_spade_bars(data, target):
    """AsyncSpade's Figure 10: TPOT, simulated and on the roofline."""
    figure, axes = plt.subplots(figsize=(8, 5), constrained_layout=True)
    bars = data["bars"]
    for y, bar in enumerate(bars):
        axes.barh(y - 0.2, bar["roofline_ms"], 0.38, color=ORANGE, label="roofline" if y == 0 else None)
        axes.barh(y + 0.2, bar["tpot_ms"], 0.38, color=OURS, label="simulated" if y == 0 else None)
        axes.text(bar["tpot_ms"], y + 0.2, f" {bar['tpot_ms']:.1f}" + ("" if bar["fits"] else ", does not fit"), va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), [f"{b['model']}, {b['gpu']}: {b['method'].split(':')[0]}" for b in bars], fontsize=8)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.margins(x=0.2)
    head(figure, f"AsyncSpade, Figure 10: TPOT at 8 \u00d7 32K, ms, {data['clock']}", *axes.get_legend_handles_labels())
    save(figure, target)


def draw_shift(data, target):
    """AsyncSpade's Figures 4 and 5: overlap by distance, and by reading with and without the shift."""
    figure, panels = plt.subplots(1, 2, figsize=(12, 4.5), constrained_layout=True)
    distances = range(1, data["window"] + 1)
    for prompt in data["each_prompt"]:
        panels[0].plot(distances, [100 * x for x in prompt["by_distance"]], color=PUBLISHED, linewidth=0.6)
    panels[0].plot(distances, [100 * x for x in data["by_distance"]], "o-", color=OURS, markersize=3, label="mean; grey: prompts")
    panels[0].axhline(40, color=GREY, linestyle="--", linewidth=1, label="published: above this (Qwen3-32B)")
    panels[0].set_ylim(0)
    panels[0].set_xlabel("tokens between the queries", loc="left")
    panels[0].set_ylabel("tokens chosen by both, %")
    panels[0].legend(frameon=False, fontsize=8)
    names = [v["options"].replace("weights=", "").replace(",windows=", ", ").replace(",rope=", ", ") for v in data["variants"]]
    for shift, key, colour, label in ((-0.2, "with_shift", OURS, "with the shift"), (0.2, "without_shift", ORANGE, "without")):
        means = [100 * sum(v[key]) / len(v[key]) for v in data["variants"]]
        spread = []
        for i in range(len(means)):
            values = [100 * p[key][i] for p in data["each_prompt"]]
            middle = sum(values) / len(values)
            spread.append((sum((x - middle) ** 2 for x in values) / max(len(values) - 1, 1)) ** 0.5)
        panels[1].barh([y + shift for y in range(len(means))], means, 0.38, xerr=spread, color=colour, label=label,
                       error_kw={"linewidth": 0.8})
    panels[1].set_yticks(range(len(names)), names, fontsize=8)
    panels[1].set_ylim(len(names) - 0.4, -0.6)
    panels[1].set_xlabel("tokens chosen as by the true query, %; lines: s.d. of prompts", loc="left")
    panels[1].legend(frameon=False, fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    figure.suptitle(f"figures 4 and 5: {data['model']}, {data['prompts']} prompts, {data['queries']} queries", fontsize=9, x=0.01, ha="left")
    save(figure, target)


def draw_flops(data, target):
    """AsyncSpade's Figure 9: accuracy, or Pass@1 of each task, against FLOPs per token. Methods without a formula have no place."""
    figure, axes = plt.subplots(figsize=(7, 4), constrained_layout=True)
    found = [p for p in data["points"] if "attention_flops" in p]
    if not found:
        raise ValueError("no method of the run has a published formula")
    methods, tasks = (list(dict.fromkeys(p.get(key, "") for p in found)) for key in ("method", "task"))
    for method, style in line_styles(in_order(methods)).items():
        for task, marker in zip(tasks, [style["marker"]] if len(tasks) == 1 else "os^Dv" * len(tasks)):
            points = sorted((p["attention_flops"] * 1e-6, 100 * p["accuracy"], *(100 * x for x in p["interval"])) for p in found
                            if p["method"] == method and p.get("task", "") == task)
            if not points:
                continue
            x, y, low, high = zip(*points)
            axes.errorbar(x, y, yerr=([a - b for a, b in zip(y, low)], [b - a for a, b in zip(y, high)]), elinewidth=0.8, clip_on=False,
                          **(style | {"linestyle": "none", "marker": marker}))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(0, 100)
    axes.grid(axis="y", color=FAINT)
    axes.set_xlabel("published FLOPs per token of attention, M", loc="left")
    axes.set_ylabel(("Pass@1" if tasks != [""] else "accuracy") + ", % (bars: 95 % interval)")
    axes.set_title(f"figure 9: {data['model']}", fontsize=9, loc="left")
    marks = [(plt.Line2D([], [], color=GREY, marker=marker, linestyle="none"), task) for task, marker in zip(tasks, "os^Dv" * len(tasks))]
    line_legend(figure, methods, marks if len(tasks) > 1 else (), lines=False)
    save(figure, target)


BY_SCHEMA = {"tandem-scout-recall-1": draw_ratios, "tandem-asyncspade-table2-3": draw_spade_table,
             "tandem-asyncspade-fig10-2": draw_spade_bars, "tandem-query-shift-2": draw_shift,
             "tandem-accuracy-flops-1": draw_flops}


def main(source, target):
    with open(source, encoding="utf-8") as file:
        data = json.load(file)
    draw = draw_fluxion if data.get("experiment") == "fluxion" else BY_SCHEMA.get(data.get("schema"), draw_experiment)
    draw(data, target)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{sys.argv[1]}: {type(error).__name__}: {error}")
