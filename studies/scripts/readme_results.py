#!/usr/bin/env python3
"""Writes README.md's table and figure (results/readme.svg): accuracy and predicted steps at equal shares of the KV bytes touched.

  tandem compare --equal touched-bytes=0.2,0.35,0.5 --samples 20 --batch 20 --out runs/equal
  tandem simulate --equal touched-bytes=0.2,0.35,0.5 --hw fluxion-a100 --context 32K --batch 8 --steps 16 --out runs/steps
  python3 studies/scripts/readme_results.py runs/equal runs/steps      both folders; their figures go to results/readme.json
  python3 studies/scripts/readme_results.py runs/equal                 new accuracies beside the steps that are there
  python3 studies/scripts/readme_results.py                            table and figure again from results/readme.json
  python3 studies/scripts/readme_results.py --twin runs/twin runs/twin-steps     two such runs with --methods full,hgca:beta=1000000

The twin's row stands below hgca's: nothing is salient, so that the window is all that it attends.
"""
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "eval" / "report")]
from wrap_pages import wrapped  # noqa: E402

BEGIN, END = "<!-- results:begin (studies/scripts/readme_results.py) -->", "<!-- results:end -->"
KEPT = ROOT / "results" / "readme.json"
SHARES = (0.35, 0.5)  # of the table
TWIN = "hgca:beta=1000000"
LOSSLESS = ("full", "full-offload", "full-host")


def read(folder, name):
    return json.loads((Path(folder) / name).read_text(encoding="utf-8"))


def write(file, text):
    file.write_text(text, encoding="utf-8")


def budgets(folder):
    """What --equal came to, by specification: the method, its share of full's bytes, and the shares that it was set to."""
    equal, found = read(folder, "equal.json"), {}
    for asked, methods in [(None, equal["as_given"])] + [(s["share"], s["methods"]) for s in equal["shares"]]:
        for m in methods:
            row = found.setdefault(m["method"], {"name": m["given"].split(":")[0], "spec": m["method"], "set_to": [],
                                                 "share": m["bytes"] / equal["reference_bytes"]})
            if m["fit"] == "set":
                row["set_to"].append(asked)
    order = [given.split(":")[0] for given in equal["given"]]
    return dict(sorted(found.items(), key=lambda pair: order.index(pair[1]["name"])))


def accuracies(folder):
    summary, found, rows = read(folder, "summary.json"), budgets(folder), []
    measured = {method["method"]: method for method in summary["methods"]}
    for spec, row in found.items():
        overall, latency = measured[spec]["overall"], measured[spec]["latency"]
        rows.append({**row, "accuracy": overall["accuracy"], "interval": overall["interval"],
                     "attended": latency["attended_per_step"]["device"] + latency["attended_per_step"]["host"]})
    return {"command": summary["command"], "commit": summary["git_commit"], "machine": summary["machine"], "isa": summary["isa"],
            "samples": summary["methods"][0]["overall"]["n"], "length": summary["methods"][0]["lengths"][0]["length"], "rows": rows}


def steps(folder):
    sweep, found, rows = read(folder, "sweep.json"), budgets(folder), []
    points = {point["method"]: point for point in sweep["points"] if "step_ms" in point}
    for spec in found.keys() & points.keys():
        point = points[spec]
        ends = [point["step_low_ms"], point["step_high_ms"]] if "step_high_ms" in point else None
        rows.append({**found[spec], "step_ms": point["step_ms"], "range": ends})
    rows.sort(key=lambda row: list(found).index(row["spec"]))
    point = sweep["points"][0]
    return {"command": sweep["command"], "program": sweep["program"], "hardware": point["hardware"], "model": sweep["model"],
            "batch": point["batch"], "context": point["context"], "rows": rows}


def at(rows, name, share):
    """A method's row that was set to a share; None where it cannot come to it."""
    return next((r for r in rows if r["name"] == name and share in r["set_to"]), None)


def front(rows):
    """Rows that no other beats: none is more accurate with as many bytes, or as accurate with fewer. Shares that differ by less
    than a point are alike: budgets of whole pages come no nearer to what was asked for."""
    def beats(a, b):
        gap = b["share"] - a["share"]
        return (gap > -0.01 and a["accuracy"] > b["accuracy"]) or (gap >= 0.01 and a["accuracy"] >= b["accuracy"])
    return sorted((r for r in rows if not any(beats(other, r) for other in rows)), key=lambda r: r["share"])


def percent(value):
    return f"{100 * value:.1f}"


def accuracy_cells(row):
    if row is None:
        return ["–", "–"]
    low, high = row["interval"]
    return [f"{percent(row['accuracy'])} [{percent(low)}, {percent(high)}]", f"{row['attended']:,.0f}"]


def step_cell(row):
    if row is None:
        return "–"
    text = lambda ms: f"{ms:,.0f}" if ms >= 100 else f"{ms:.1f}"
    return f"{text(row['step_ms'])} [{text(row['range'][0])}–{text(row['range'][1])}]" if row["range"] else text(row["step_ms"])


def table(data):
    rows, times, lines, ends = data["accuracy"]["rows"], data["steps"]["rows"], [], []
    twins = [data["twin"][part]["rows"] for part in ("accuracy", "steps")]
    pairs = [(*accuracy_cells(at(twins[0], "hgca", share)), step_cell(at(twins[1], "hgca", share))) for share in SHARES]
    twin = [f"`{TWIN}`", *pairs[0], *pairs[1]]
    for name in dict.fromkeys(r["name"] for r in rows):
        set_to = [at(rows, name, share) for share in SHARES]
        timed = [step_cell(at(times, name, share)) for share in SHARES]
        if name in LOSSLESS:
            continue
        if set_to[0]:
            lines.append((set_to[0]["accuracy"], [f"`{name}`", *accuracy_cells(set_to[0]), timed[0], *accuracy_cells(set_to[1]), timed[1]]))
        else:
            least = set_to[1] or min((r for r in rows if r["name"] == name), key=lambda r: r["share"])
            low = min(r["share"] for r in rows if r["name"] == name)
            ends.append((low, [f"`{name}`, at least {100 * low:.0f} %", "–", "–", timed[0], *accuracy_cells(least), timed[1]]))
    order = [line for _, line in sorted(lines, key=lambda pair: -pair[0])] + [line for _, line in sorted(ends, key=lambda pair: pair[0])]
    order.insert(next(i for i, line in enumerate(order) if line[0] == "`hgca`") + 1, twin)
    for name in LOSSLESS:
        row, timed = (next(r for r in part if r["name"] == name) for part in (rows, times))
        order.append([f"`{name}`, 100 %", "–", "–", "–", *accuracy_cells(row), step_cell(timed)])
    head = ["method", "35 %: accuracy, % [95 %]", "tokens", "step, ms [range]", "50 %: accuracy, % [95 %]", "tokens", "step, ms [range]"]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---", *["---:"] * 6], *order])


def draw(data):
    import plotting
    plt = plotting.plt
    up_to = lambda ends: [max(0, end) for end in ends]  # an end that is the figure itself may lie a rounding inside
    names = plotting.in_order(dict.fromkeys(r["name"] for part in ("accuracy", "steps") for r in data[part]["rows"]))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for name, style in plotting.line_styles(names).items():
        style = style | {"capsize": 2, "elinewidth": 0.8}
        own = sorted((r for r in data["accuracy"]["rows"] if r["name"] == name), key=lambda r: r["share"])
        if name not in LOSSLESS[1:]:  # the others lie on full's point
            y = [100 * r["accuracy"] for r in own]
            left.errorbar([100 * r["share"] for r in own], y, **style,
                          yerr=[up_to(v - 100 * r["interval"][0] for v, r in zip(y, own, strict=True)),
                                up_to(100 * r["interval"][1] - v for v, r in zip(y, own, strict=True))])
        own = sorted((r for r in data["steps"]["rows"] if r["name"] == name), key=lambda r: r["share"])
        y = [r["step_ms"] for r in own]
        right.errorbar([100 * r["share"] for r in own], y, **style,
                       yerr=[up_to(v - (r["range"] or [v, v])[0] for v, r in zip(y, own, strict=True)),
                             up_to((r["range"] or [v, v])[1] - v for v, r in zip(y, own, strict=True))])
    best = front(data["accuracy"]["rows"])
    left.plot([100 * r["share"] for r in best], [100 * r["accuracy"] for r in best], color="0.6", linewidth=6, alpha=0.35, zorder=0,
              solid_capstyle="round", marker="o", markersize=11, markeredgewidth=0)
    shape = data["steps"]
    for axes, title in ((left, "Accuracy, measured"),
                        (right, f"Step of {shape['model']}, {shape['batch']} \u00d7 {plotting.length_name(shape['context'])}, simulated")):
        axes.set_title(title, fontsize=9, loc="left")
    left.set(xlabel="KV bytes touched in a step, % of full", ylabel="needles found, % (95 % interval)",
             ylim=(0, 104), xlim=(15, 104))
    right.set(xlabel="KV bytes touched in a step, % of full", ylabel="ms per step (range of the profile)", yscale="log", xlim=(15, 104))
    right.yaxis.set_major_formatter(plt.FuncFormatter(lambda value, _: f"{value:,.0f}"))
    plotting.line_legend(figure, names, [(plt.Line2D([], [], color="0.6", linewidth=6, alpha=0.5), "Pareto front")])
    figure.savefig(ROOT / "results" / "readme.svg", metadata={"Date": None}, bbox_inches="tight")
    return figure


def results(data):
    run, shape, twin = data["accuracy"], data["steps"], data["twin"]["accuracy"]
    return f"""{BEGIN}
![Accuracy, and the predicted step, over the share of KV bytes touched](results/readme.svg)

*Left: up and to the left is better; the grey band joins the methods that no other beats. Right, on a log scale: lower is \
better. Left and right are two runs, whose shares may differ.*

{table(data)}

Accuracy: RULER needle tasks at {run['length'] // 1024}K, embedded 5.4 M-parameter model, {run['samples']} samples. \
Measured on {run['machine']['cores']} cores ({run['machine']['cpu_model']}, {run['isa']}). *Tokens* are \
attended per KV head and layer. Step: `{shape['model']}`, {shape['batch']} x {shape['context'] // 1024}K, simulated for `{shape['hardware']}`; \
its range is what is assumed about the machine, not a confidence interval. The last rows cannot touch so few bytes: \
theirs is the next share that they can, and a step that was predicted for 50 %. Only `fluxion` was trained, on other samples of these tasks. `{TWIN}` attends its \
window alone ({twin['machine']['cpu_model']}, {twin['isa']}). [results/readme.json](results/readme.json) has the commands.
{END}"""


def twin_of(part):
    return part | {"rows": [row for row in part["rows"] if row["spec"].startswith(TWIN)]}


def main(folders):
    if folders and folders[0] == "--twin":
        data = json.loads(KEPT.read_text(encoding="utf-8"))
        data["twin"] = {"accuracy": twin_of(accuracies(folders[1])), "steps": twin_of(steps(folders[2]))}
        write(KEPT, json.dumps(data, indent=1) + "\n")
        folders = []
    data = json.loads(KEPT.read_text(encoding="utf-8"))
    if folders:
        data["accuracy"] = accuracies(folders[0])
        if len(folders) > 1:
            data["steps"] = steps(folders[1])
        write(KEPT, json.dumps(data, indent=1) + "\n")
    draw(data)
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    begin, end = text.index(BEGIN), text.index(END) + len(END)
    write(readme, wrapped(text[:begin] + results(data) + text[end:]))


if __name__ == "__main__":
    given = [a for a in sys.argv[1:] if a != "--twin"]
    if len(given) > 2 or any(a.startswith("-") for a in given) or ("--twin" in sys.argv and (sys.argv[1] != "--twin" or len(given) < 2)):
        sys.exit(__doc__)
    try:
        main(sys.argv[1:])
    except (OSError, ValueError, KeyError, StopIteration) as error:
        sys.exit(f"studies/scripts/readme_results.py: {type(error).__name__}: {error}")
