"""Draws plot.png and plot.svg of a sweep: tokens per second and idle time of each method, by context or batch, a column of panels
for each machine and batch. Of several machines with one batch and one context: a map of methods by machines.

  python3 eval/predict/plot_sweep.py FOLDER          with the sweep.json that `tandem simulate --out FOLDER` wrote
"""
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report"))
from plotting import FAINT, in_order, length_name, line_legend, line_styles, method_name, plt, read_json, run_script, save, why_absent, wrapped  # noqa: E402


def unique(values):
    return list(dict.fromkeys(values))


def batch_name(batch, sweep):
    if batch != "max":
        return f"batch {batch}"
    return "as many as fit" + (f" within {sweep['tpot_ms']:g} ms a step" if sweep.get("tpot_ms") else "")


def tokens_per_second(point):
    return 1e3 * point["sequences"] / point["step_ms"]


def panels_of(sweep):
    """(title, x's name, {method: [(x, point)]}) of each column of panels. Batches are the x where there is one context."""
    points = sweep["points"]
    contexts, batches = unique(p["context"] for p in points), unique(p["batch"] for p in points)
    by_batch = len(contexts) == 1 and len([b for b in batches if b != "max"]) > 1
    columns = {}
    for p in points:
        if by_batch and p["batch"] == "max":
            continue
        part = f"contexts of {length_name(p['context'])}" if by_batch else batch_name(p["batch"], sweep)
        column = columns.setdefault((p["hardware"], part), {})
        if "refused" not in p:
            column.setdefault(p["method"], []).append((p["batch"] if by_batch else p["context"], p))
    return [(f"{hardware}, {part}", "batch" if by_batch else "context, tokens", lines)
            for (hardware, part), lines in columns.items()]


def rate_range(point):
    """(lowest, highest) tokens per second, by the range of the step; None without one."""
    if not point.get("step_high_ms"):
        return None
    rate = tokens_per_second(point)
    return rate * point["step_ms"] / point["step_high_ms"], rate * point["step_ms"] / point["step_low_ms"]


def draw_lines(axes, name, lines, methods, value, ends=None):
    for method, style in line_styles(methods).items():
        line = sorted(lines.get(method, []), key=lambda entry: entry[0])
        if not line:
            continue
        drawn, = axes.plot([x for x, _ in line], [value(p) for _, p in line], **style)
        for x, p in line:
            if ends and ends(p):
                axes.plot([x, x], ends(p), color=drawn.get_color(), linewidth=0.8, alpha=0.6)
    ticks = sorted({x for line in lines.values() for x, _ in line})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(t) if name == "batch" else length_name(t) for t in ticks])
    axes.minorticks_off()
    axes.grid(color=FAINT)
    axes.set_axisbelow(True)


def draw_panels(sweep, methods, folder):
    columns = panels_of(sweep)
    figure, panels = plt.subplots(2, len(columns), figsize=(3.4 * len(columns) + 0.6, 6.4), sharey="row", sharex="col",
                                  squeeze=False, constrained_layout=True)
    for (title, name, lines), (rate, idle) in zip(columns, panels.T):
        draw_lines(rate, name, lines, methods, tokens_per_second, rate_range)
        draw_lines(idle, name, lines, methods, lambda p: 100 * p["idle_ms"] / p["step_ms"])
        if any(lines.values()):
            rate.set_yscale("log")
            rate.yaxis.set_major_formatter(lambda value, _: rate_text(value))
        rate.set_title(wrapped(title, 40), fontsize=9, loc="left")
        idle.set_ylim(0, 100)
        idle.set_xlabel(name, loc="left")
    panels[0][0].set_ylabel("tokens/s, simulated (bars: range)")
    panels[1][0].set_ylabel("device idle, % of a decode step")
    figure.suptitle(sweep["model"], fontsize=9, x=0.01, ha="left")
    line_legend(figure, methods)
    save(figure, folder, "plot", bbox_inches="tight")


def rate_text(rate):
    return f"{rate:.1f}" if rate < 9.95 else f"{rate:,.0f}"


MOST = 16  # times as fast, or as slow: the ends of the colours


def fastest_lossless(points, machine):
    """Tokens per second of the machine's fastest method that loses nothing, which others are compared with: one that evicts nearly
    everything is no measure. None where no such method fits or was asked for."""
    return max((tokens_per_second(p) for p in points if p["hardware"] == machine and p["lossless"]), default=None)


def draw_map(axes, sweep, methods, machines):
    """Tokens per second in numbers, and in colour beside the machine's fastest method that loses nothing."""
    at = {(p["method"], p["hardware"]): p for p in sweep["points"] if "refused" not in p}
    fastest = {machine: fastest_lossless(at.values(), machine) for machine in machines}
    lossless = {p["method"] for p in sweep["points"] if p["lossless"]}
    speedups = [[float("nan")] * len(machines) for _ in methods]
    absent = {(p["method"], p["hardware"]): why_absent(p).replace("does not fit", "does not\nfit") for p in sweep["points"]}
    for y, method in enumerate(methods):
        for x, machine in enumerate(machines):
            point, text, colour, ends = at.get((method, machine)), absent.get((method, machine), ""), "#707070", None
            if point:
                if fastest[machine]:
                    speedups[y][x] = math.log2(tokens_per_second(point) / fastest[machine])
                dark = abs(speedups[y][x]) > 0.7 * math.log2(MOST)  # False of no number
                text, colour, ends = rate_text(tokens_per_second(point)), "white" if dark else "black", rate_range(point)
                if point["batch"] == "max":
                    text += f"\n({point['sequences']}{'+' if point['sequences'] >= sweep['most_sequences'] else ''})"
            axes.text(x, y - (0.17 if ends else 0), text, ha="center", va="center", fontsize=7.5 if point else 6.5, color=colour)
            if ends:
                axes.text(x, y + 0.25, "\u2013".join(map(rate_text, ends)), ha="center", va="center", fontsize=5.5, color=colour)
    image = axes.imshow(speedups, vmin=-math.log2(MOST), vmax=math.log2(MOST), cmap="RdBu", aspect="auto")
    axes.set_xticks(range(len(machines)), [wrapped(m, 14) for m in machines], fontsize=8)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(methods)), [method_name(m, 30) for m in methods])
    for label, method in zip(axes.get_yticklabels(), methods):
        label.set_fontweight("bold" if method in lossless else "normal")
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return image


def draw_machines(sweep, methods, machines, folder):
    points = sweep["points"]
    batch, context = points[0]["batch"], length_name(points[0]["context"])
    figure, axes = plt.subplots(figsize=(2.6 + 0.78 * len(machines), 1.5 + 0.36 * len(methods)), constrained_layout=True)
    image = draw_map(axes, sweep, methods, machines)
    name = batch_name(batch, sweep)
    sequences = f"contexts of {context}, {name} (in brackets)" if batch == "max" else f"{name} \u00d7 {context}"
    axes.set_xlabel(wrapped(f"tokens/s, simulated, {sweep['model']}, {sequences}; small: their range; bold: loses nothing; empty: not simulated", 100),
                    loc="left")
    bar = figure.colorbar(image, ax=axes, shrink=0.8, ticks=[-math.log2(MOST), 0, math.log2(MOST)])
    bar.set_ticklabels([f"1/{MOST}", "1", f"{MOST}"])
    bar.set_label("times as fast as the fastest that loses nothing")
    save(figure, folder, "plot")


def main(folder):
    sweep = read_json(folder, "sweep.json")
    points = sweep["points"]
    if not points:
        sys.exit("eval/predict/plot_sweep.py: the sweep has no point yet")
    methods, machines = in_order(unique(p["method"] for p in points)), unique(p["hardware"] for p in points)
    if len(machines) > 1 and len(unique((p["batch"], p["context"]) for p in points)) == 1:
        draw_machines(sweep, methods, machines, folder)
    else:
        draw_panels(sweep, methods, folder)


if __name__ == "__main__":
    run_script("eval/predict/plot_sweep.py", __doc__, main)
