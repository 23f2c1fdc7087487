"""Draws two figures of a run folder from its summary.json, and from its target.json where a target shape was asked for. pareto.png and
pareto.svg: the score over what a step costs (pareto.py). plot.png and plot.svg: accuracy, or what a perplexity loses, by task or position
in another panel where lengths do not tell the rows apart, and where a decode step's time goes, or would go at the target shape.

  python3 eval/report/plot.py RUN_FOLDER

The second has one row per method and length, shared by all panels, so that what a method loses and what it gains stand side by side.
"""
import math
import os

from pareto import draw_pareto
from plotting import in_order, length_name, line_styles, method_name, plt, read_json, run_script, save, SCORES, TITLES, why_absent, wrapped

# Okabe and Ito's palette, told apart with any kind of colour vision; neighbours in a bar differ in lightness too.
BUSY = "#4D4D4D"
CAUSES = {"host attention": "#D55E00", "selection": "#F0E442", "recall": "#CC79A7", "offload": "#56B4E9", "transfer": "#0072B2",
          "handoff": "#E69F00", "launch": "#C8C8C8", "sampling": "#009E73", "scheduler": "#000000"}
OTHER = "#8A6FB5"  # causes that are too short to be seen, and those that this program does not know
SEEN = 0.012  # of a panel's width: slices that are narrower in all bars are joined
BETTER, WORSE = "#0072B2", "#D55E00"  # than the first method


def rows_of(run):
    """(y, method's index, length, accuracy cell, latency or None); methods are set apart by a gap."""
    rows, y = [], 0.0
    for i, method in enumerate(run["methods"]):
        cells = method.get("lengths") or [method]  # a perplexity is the method's own
        latency = {entry.get("length", 0): entry for entry in method["latency_by_length"]}
        for cell in cells:
            of = latency.get(cell.get("length", 0)) if len(cells) > 1 else method["latency"]
            rows.append((y, i, cell.get("length", 0), cell, of))
            y += 1
        lines = method_name(method["method"], 30).count("\n") + 1
        y += max(0.6, 0.5 * lines + 0.3 - len(cells))  # a line of text is half a row high
    return rows


def draw_estimates(axes, run, rows, estimates):
    """estimates: (y, value, its interval or None, text beside it) of each row; what is no number is left out."""
    styles = line_styles(method["method"] for method in run["methods"])
    for (_, i, *_), (y, x, interval, text) in zip(rows, estimates):
        if not math.isfinite(x):
            continue
        style = styles[run["methods"][i]["method"]]
        if interval and all(map(math.isfinite, interval)):
            axes.plot(interval, [y, y], color=style["color"], linewidth=1.2, solid_capstyle="butt")
        axes.plot(x, y, **(style | {"linestyle": "none"}), clip_on=False)
        axes.text(1.03, y, text, va="center", fontsize=8, transform=axes.get_yaxis_transform())
    axes.grid(axis="x", color="#E5E5E5")
    axes.set_axisbelow(True)


def count_of(counts):
    counts = sorted(set(counts))
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def perplexity(nats):
    return math.exp(nats) if nats is not None and nats < 700 else math.inf


def draw_perplexity(axes, run, rows):
    """Several methods: what they lose window by window. Windows differ by far more than methods do, so that intervals of the
    perplexities themselves overlap where every window shows the same loss."""
    n = count_of(cell["nll"]["n"] for _, _, _, cell, _ in rows)
    windows = f"(n = {n} window{'' if n == '1' else 's'})"
    if len(rows) == 1:
        nll = rows[0][3]["nll"]
        value = perplexity(nll["value"])
        draw_estimates(axes, run, rows, [(rows[0][0], value, nll["interval"] and [perplexity(end) for end in nll["interval"]], f"{value:.2f}")])
        axes.set_xlabel(f"perplexity, with 95 % interval {windows}", loc="left")
        return
    none = {"value": math.nan, "interval": None}  # of a run that is not finished: a method without windows of the first
    losses = [(y, cell.get("nll_difference", {"value": 0, "interval": None} if i == 0 else none), cell) for y, i, _, cell, _ in rows]
    draw_estimates(axes, run, rows, [(y, loss["value"], loss["interval"], f"{perplexity(cell['nll']['value']):.2f}") for y, loss, cell in losses])
    axes.axvline(0, color="#808080", linewidth=0.8, zorder=0)
    first = method_name(run["methods"][0]["method"], 30).replace("\n", " ")
    axes.set_xlabel(wrapped(f"nats per token more than {first}, with 95 % interval {windows}; beside it the perplexity", 62),
                    loc="left")


def draw_accuracy(axes, run, rows):
    estimates = [(y, 100 * cell["accuracy"], [100 * end for end in cell["interval"]], f"{100 * cell['accuracy']:.1f}")
                 for y, _, _, cell, _ in rows]
    draw_estimates(axes, run, rows, estimates)
    axes.set_xlim(0, 100)
    score = SCORES.get(run["benchmark"], "accuracy")
    axes.set_xlabel(f"{score}, %, with 95 % interval (n = {count_of(row[3]['n'] for row in rows)})", loc="left")


def draw_quality(axes, run, rows):
    """With the names of the rows."""
    if run["benchmark"] == "perplexity":
        draw_perplexity(axes, run, rows)
        questions = run["text"]
    else:
        draw_accuracy(axes, run, rows)
        tasks = len({cell["task"] for method in run["methods"] for cell in method["cells"]})
        questions = f"{tasks} task{'s' if tasks > 1 else ''}"
    lengths = sorted({row[2] for row in rows})
    axes.set_yticks([row[0] for row in rows], [length_name(row[2]) if len(lengths) > 1 else "" for row in rows])
    axes.tick_params(axis="y", length=0)
    for i, method in enumerate(run["methods"]):
        ys = [row[0] for row in rows if row[1] == i]
        if ys:
            axes.text(-0.09 if len(lengths) > 1 else -0.02, sum(ys) / len(ys), method_name(method["method"], 30), ha="right",
                      va="center", transform=axes.get_yaxis_transform())
    axes.set_ylim(rows[-1][0] + 0.7, -0.7)
    title = TITLES.get(run["benchmark"], run["benchmark"].upper())
    axes.set_title(wrapped(f"{title}, {questions}, {run['model']}", 60), fontsize=9, loc="left")


def map_of(run):
    """What the rows do not show: (columns, the values of each method, text of a value, a difference that has the full colour, what
    it is), where rows are methods alone and have several. Larger values are better where that difference is above 0."""
    if run["benchmark"] == "perplexity":
        values = [method["nll_by_position"] for method in run["methods"]]
        ends = [run["scored"] * (i + 1) // len(values[0]) for i in range(len(values[0]))]
        if len(ends) < 2:
            return None
        return [f"to {end}" for end in ends], values, "{:.2f}", -0.5, "nats of a token, by scored position"
    tasks = list(dict.fromkeys(cell["task"] for method in run["methods"] for cell in method["cells"]))
    if any(len(method["lengths"]) > 1 for method in run["methods"]) or len(tasks) < 2:
        return None
    of = [{cell["task"]: 100 * cell["accuracy"] for cell in method["cells"]} for method in run["methods"]]
    score = SCORES.get(run["benchmark"], "accuracy")
    return tasks, [[cells.get(task) for task in tasks] for cells in of], "{:.0f}", 25, f"{score}, %, by task"


def draw_map(axes, width, run, rows, columns, values, text, full, what):
    """Of `width` inches."""
    for y, i, *_ in rows:
        for x, value in enumerate(values[i]):
            if value is None:
                continue
            first = values[0][x]
            gain = 0 if first is None else max(-1, min(1, (value - first) / full))
            axes.barh(y, 0.96, left=x - 0.48, height=0.9, color=BETTER if gain > 0 else WORSE, alpha=0.75 * abs(gain))
            axes.text(x, y, text.format(value), va="center", ha="center", fontsize=8)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    slanted = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if max(len(name) for name in columns) > 6 else {}
    axes.set_xticks(range(len(columns)), columns, fontsize=8, **slanted)
    axes.tick_params(axis="both", length=0, pad=1)
    axes.spines[["left", "bottom"]].set_visible(False)
    meaning = f"{what} (blue: better than {run['methods'][0]['method']}, orange: worse)"
    axes.set_title(wrapped(meaning, int(12 * width)), fontsize=8, loc="left")


def number(value):
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def totals_of(bars):
    return sorted(busy + sum(idle.values()) for _, busy, idle in bars if not isinstance(busy, str)) or [1]


def longest_of(bars):
    """A few steps that are many times as long as the others would make those invisible: they leave the panel."""
    totals = totals_of(bars)
    return max(total for total in totals if total <= 4 * totals[len(totals) // 2])


def seen_causes(panels):
    """Causes with a slice in some bar that can be seen, in the order of the slices; panels: the bars of each."""
    seen = {cause for bars in panels for _, _, idle in bars for cause, ms in idle.items() if ms > SEEN * longest_of(bars)}
    return [cause for cause in CAUSES if cause in seen] + sorted(seen - set(CAUSES))


def draw_bars(axes, bars, causes, height, clock):
    """bars: (y, ms busy, {cause: ms idle}); in place of the ms a text that says why there are none. Causes that are not among `causes`
    are joined."""
    totals, longest = totals_of(bars), longest_of(bars)
    unit, scale = ("\u00b5s", 1000) if totals[-1] < 1 else ("ms", 1)
    right = 1.12 * scale * longest
    for y, busy, idle in bars:
        if isinstance(busy, str):
            axes.text(0.015 * scale * longest, y, busy, va="center", fontsize=8)
            continue
        at = 0.0
        other = sum(ms for cause, ms in idle.items() if cause not in causes)
        for ms, colour in [(busy, BUSY), *((idle.get(c, 0), CAUSES.get(c, OTHER)) for c in causes), (other, OTHER)]:
            if ms > 0:
                axes.barh(y, scale * ms, left=at, height=height, color=colour, edgecolor="white", linewidth=0.4)
            at += scale * ms
        if at > 1.0001 * scale * longest:  # sums of floats differ by their order
            axes.text(0.985 * right, y, f"{number(at)} \u2192", va="center", ha="right", fontsize=8,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})
        else:
            axes.text(at + 0.015 * scale * longest, y, number(at), va="center", fontsize=8)
    axes.set_xlim(0, right)
    axes.set_xlabel(wrapped(f"{unit} per decode step, {clock}", 58), loc="left")
    axes.tick_params(axis="y", length=0, labelleft=False)


def causes_legend(figure, causes, panels):
    """One for all panels, above them."""
    named = [("device busy", BUSY)] + [("waits: " + cause, CAUSES.get(cause, OTHER)) for cause in causes]
    if any(ms > 0 and cause not in causes for bars in panels for _, _, idle in bars for cause, ms in idle.items()):
        named.append(("waits: other", OTHER))
    figure.legend([plt.Rectangle((0, 0), 1, 1, color=colour) for _, colour in named], [name for name, _ in named], frameon=False,
                  loc="lower right", bbox_to_anchor=(1.0, 1.0), ncol=5, fontsize=8, handlelength=1.2, columnspacing=1.2)


def bars_of_run(rows):
    return [(y, at["busy_ms"], at["idle_ms_by_cause"]) for y, _, _, _, at in rows if at and at["steps"] > 0]


def bars_of_target(run, rows, target):
    """One per method, in the middle of its rows."""
    predicted = {row.get("compared_as", row["method"]): row for row in target["methods"]}
    bars = []
    for i, method in enumerate(run["methods"]):
        row, ys = predicted.get(method["method"]), [y for y, of, *_ in rows if of == i]
        if row and ys:
            bars.append((sum(ys) / len(ys), why_absent(row) or row["busy_ms"], row.get("idle_ms_by_cause", {})))
    return bars


def main(folder):
    run = read_json(folder, "summary.json")
    target = read_json(folder, "target.json") if os.path.lexists(os.path.join(folder, "target.json")) else None
    first, *others = run["methods"]  # the baseline stays where it is
    order = in_order(dict.fromkeys(method["method"] for method in others))
    run["methods"] = [first, *sorted(others, key=lambda method: order.index(method["method"]))]
    draw_pareto(run, target, folder)
    rows = rows_of(run)
    steps, target_steps = bars_of_run(rows), bars_of_target(run, rows, target) if target else []
    timed = bool(steps)
    by_column = map_of(run)
    bars = [part for part in (steps, target_steps) if part]
    causes = seen_causes(bars)
    panels = [(5.3 if timed or target is not None else 6.5, lambda axes: draw_quality(axes, run, rows))]
    if by_column:
        width = max(3.5, 0.5 * len(by_column[0]))
        panels.append((width, lambda axes: draw_map(axes, width, run, rows, *by_column)))
    if timed:
        panels.append((5.3, lambda axes: draw_bars(axes, steps, causes, 0.72, run["clock"])))
    if target is not None:
        shape = f"{target['model']}, batch {target['batch']} \u00d7 {length_name(target['context'])}"
        panels.append((5.3, lambda axes: draw_bars(axes, target_steps, causes, 1.0, f"{target['clock']}: {shape}")))
    widths = [width for width, _ in panels]
    height = 1.7 + 0.26 * (rows[-1][0] + 1) + (0.5 if by_column else 0)
    figure, axes = plt.subplots(1, len(widths), figsize=(sum(widths), height), sharey=True, squeeze=False, constrained_layout=True,
                                gridspec_kw={"width_ratios": widths})
    for ax, (_, draw) in zip(axes[0], panels):
        draw(ax)
    if bars:
        causes_legend(figure, causes, bars)
    save(figure, folder, "plot", bbox_inches="tight")


if __name__ == "__main__":
    run_script("eval/report/plot.py", __doc__, main)
