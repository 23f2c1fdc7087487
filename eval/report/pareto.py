"""The front of a run: each method's score over what a step of it costs, and the methods that no other beats. plot.py draws it as
pareto.png and pareto.svg."""
from plotting import FAINT, SCORES, TITLES, in_order, length_name, line_legend, line_styles, plt, save, wrapped


def score_of(run, method):
    """(score, low, high), in per cent; of a perplexity nats per token more than the first method, None where that is not known."""
    if run["benchmark"] == "perplexity":
        loss = {"value": 0, "interval": None} if method is run["methods"][0] else method.get("nll_difference")
        return loss and (loss["value"], *(loss["interval"] or (loss["value"], loss["value"])))
    overall = method["overall"]
    return tuple(100 * part for part in (overall["accuracy"], *overall["interval"]))


def mean_of_lengths(method, figure):
    """The same weight for each length; None where some length lacks the figure."""
    found = [figure(latency) for latency in method["latency_by_length"]]
    return sum(found) / len(found) if found and None not in found else None


def touched_shares(run):
    """{method: bytes of the context that a step touches, % of full's}; empty without full or where a method lacks them."""
    touched = {m["method"]: mean_of_lengths(m, lambda latency: latency["bytes_per_token"].get("touched")) for m in run["methods"]}
    whole = touched.get("full")
    return {name: 100 * of / whole for name, of in touched.items()} if whole and None not in touched.values() else {}


def steps_of(run, target):
    """({method: ms per step}, {method: its range}, what they are of)."""
    predicted = {row.get("compared_as", row["method"]): row for row in (target or {"methods": []})["methods"] if "step_ms" in row}
    if len(predicted) > 1:
        ranges = {name: (row["step_low_ms"], row["step_high_ms"]) for name, row in predicted.items() if "step_high_ms" in row}
        shape = f"{target['model']}, {target['batch']} \u00d7 {length_name(target['context'])}, with the budgets predicted there"
        return {name: row["step_ms"] for name, row in predicted.items()}, ranges, f"{shape}, {target['clock']}"
    steps = {m["method"]: mean_of_lengths(m, lambda latency: latency["step_ms"]) for m in run["methods"]}
    return {name: ms for name, ms in steps.items() if ms}, {}, run["clock"]


def front(points, better):
    """Names of {name: (cost, score)} with a score at least as good at a cost at most as high in no other, one of them strictly."""
    def beats(a, b):
        return a[0] <= b[0] and better(a[1], b[1]) and (a[0] < b[0] or a[1] != b[1])
    return [name for name, point in points.items() if not any(beats(other, point) for other in points.values())]


def draw_panel(axes, run, costs, ranges, label):
    losses = run["benchmark"] == "perplexity"
    scores = {m["method"]: score for m in run["methods"] if m["method"] in costs and (score := score_of(run, m)) is not None}
    points = {name: (costs[name], score[0]) for name, score in scores.items()}
    best = sorted(points[name] for name in front(points, lambda a, b: a <= b if losses else a >= b))
    axes.plot([x for x, _ in best], [y for _, y in best], color="0.6", linewidth=7, alpha=0.4, zorder=0, solid_capstyle="round",
              marker="o", markersize=13, markeredgewidth=0, clip_on=False)
    styles = line_styles(in_order(m["method"] for m in run["methods"]))
    for name in reversed(in_order(scores)):  # the first methods lie on top
        (value, low, high), x, style = scores[name], costs[name], styles[name]
        axes.plot([x, x], [low, high], color=style["color"], linewidth=0.9)
        if name in ranges:
            axes.plot(ranges[name], [value, value], color=style["color"], linewidth=0.9)
        axes.plot(x, value, **(style | {"linestyle": "none", "markersize": 7}), clip_on=False)
    axes.set_xscale("log")
    few = max(costs.values()) < 40 * min(costs.values())
    locator = axes.xaxis.get_major_locator()
    locator.set_params(subs=(1, 2, 3, 5) if few else (1, 3))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.3g}")
    axes.minorticks_off()
    if not losses:
        axes.set_ylim(0, 103)
    axes.grid(color=FAINT)
    axes.set_axisbelow(True)
    axes.set_xlabel(wrapped(label, 66), loc="left")


def draw_pareto(run, target, folder):
    """Nothing where fewer than two methods have a cost."""
    steps, ranges, clock = steps_of(run, target)
    panels = [(touched_shares(run), {}, "KV bytes that a step touches, % of full"),
              (steps, ranges, f"ms per step{' (bars: range)' if ranges else ''}: {clock}")]
    panels = [panel for panel in panels if len(panel[0]) > 1 and min(panel[0].values()) > 0]
    if not panels:
        return
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels) + 0.5, 4.2), sharey=True, squeeze=False,
                                constrained_layout=True)
    for ax, panel in zip(axes[0], panels):
        draw_panel(ax, run, *panel)
    if run["benchmark"] == "perplexity":
        axes[0][0].invert_yaxis()  # of both panels
        score = wrapped(f"nats per token more than {run['methods'][0]['method']}", 40)
    else:
        score = SCORES.get(run["benchmark"], "accuracy") + ", %"
    axes[0][0].set_ylabel(f"{score} (bars: 95 % interval)")
    title = f"{TITLES.get(run['benchmark'], run['benchmark'].upper())} on {run['model']}: up and to the left is better"
    axes[0][0].set_title(wrapped(title, 60), fontsize=9, loc="left")
    band = plt.Line2D([], [], color="0.6", linewidth=7, alpha=0.5)
    line_legend(figure, [m["method"] for m in run["methods"]], [(band, "Pareto front")], lines=False)
    save(figure, folder, "pareto", bbox_inches="tight")
