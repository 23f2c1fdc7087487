"""Tables of a run folder as the pages have them; model_tables.py puts them there. Each takes a folder (pathlib.Path) and
gives text, or None where the folder is not there. A run that is not finished is an error.
"""
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "eval" / "report"))
from safe_files import markdown_text, read_json  # noqa: E402


def table(head, rows, left=1):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * left + "---:|" * (len(head) - left)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def length_text(tokens):
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else str(tokens)


def read(file):
    return read_json(file) if file.exists() else None


def summary_of(folder):
    summary = read(folder / "summary.json")
    if summary is not None and not summary["complete"]:
        raise SystemExit(f"model_tables.py: the run '{folder}' is not finished: measure_model.sh goes on with it.")
    return summary


def difference(entry, name="difference", scale=100, digits=1):
    """`+1.0 [-0.5, +2.5]`; nothing for the baseline, which has none."""
    if name not in entry:
        return ""
    value = f"{scale * entry[name]['value']:+.{digits}f}"
    if entry[name]["interval"] is None:
        return f"{value}, the same in all {entry[name]['n']}"
    low, high = (f"{scale * end:+.{digits}f}" for end in entry[name]["interval"])
    return f"{value} [{low}, {high}]"


def percent(entry):
    low, high = entry["interval"]
    return f"{100 * entry['accuracy']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def mean_of(entries):
    """Of numbers, or of what objects of them have in common; null where one of them is."""
    if any(entry is None for entry in entries):
        return None
    if isinstance(entries[0], dict):
        return {key: mean_of([entry[key] for entry in entries]) for key in entries[0] if all(key in entry for entry in entries)}
    return statistics.fmean(entries)


def figure_text(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def latency_of(method):
    """Of all lengths, each with the same weight, as `tandem report` has it; its peaks and counts mean nothing. In summary.json every
    step weighs the same, so that a method whose answers are shorter at long contexts looks faster than it is, and seems to read less."""
    lengths = method["latency_by_length"]
    if not lengths:
        raise SystemExit(f"{pathlib.Path(sys.argv[0]).name}: the run has no times of {method['method']}.")
    later = [at["tpot_ms"] for at in lengths if at["tpot_ms"]]  # no step after the first: null, before schema version 13 0
    return (method["latency"] if len(lengths) < 2 else mean_of(lengths)) | {"tpot_ms": statistics.fmean(later) if later else None}


def weights_note(summary, what="Bytes"):
    """A line for below a table in which `what` is latency_of()'s; nothing of a run at one length."""
    several = len(summary["methods"][0]["latency_by_length"]) > 1
    return f"\n{what} of all lengths together: the mean of the lengths' means.\n" if several else ""


def attended(method, side):
    return figure_text(latency_of(method)["attended_per_step"][side], 0)


def regret(folder):
    """Accuracy, bytes from host memory, and how far the outputs of Fluxion's heads are off (compare --head-errors)."""
    summary, errors = summary_of(folder), read(folder / "errors.json")
    if summary is None or errors is None:
        return None
    limits = errors["limits"]
    of = {entry["method"]: entry for entry in errors["methods"]}
    rows = []
    for method in summary["methods"]:
        overall, bytes_ = method["overall"], latency_of(method)["bytes_per_token"]
        row = [markdown_text(method["method"]), f"{100 * overall['accuracy']:.1f}", difference(overall),
               f"{(bytes_['dram'] + bytes_['h2d']) / 1024:.1f}"]
        entry = of.get(method["method"])
        if entry is None or not entry["heads"]:
            row += [""] * 5
        else:
            heads = entry["heads"]
            above = [f"{100 * entry['above'][limits.index(limit)] / heads:.2f}" for limit in (0.1, 0.2, 0.5)]
            row += [f"{100 * entry['error'] / heads:.2f}", *above, f"{100 * entry['attended'] / heads:.1f}"]
        rows.append(row)
    n = summary["methods"][0]["overall"]["n"]
    return table(["method", f"accuracy % (n = {n})", "difference to full, points [95 %]", "KiB from host memory / token",
                  "error of outputs %, mean", "above 10 %", "above 20 %", "above 50 %", "host tokens attended %"],
                 rows) + weights_note(summary)


def accuracy_by_method(folder):
    """Best first, behind the baseline: accuracy, difference to it, tokens attended per KV head and layer."""
    summary = summary_of(folder)
    if summary is None:
        return None
    first, *others = summary["methods"]
    others.sort(key=lambda method: -method["overall"]["accuracy"])
    rows = [[markdown_text(m["method"]), percent(m["overall"]), difference(m["overall"]), attended(m, "device"), attended(m, "host")]
            for m in (first, *others)]
    return table(["method", "accuracy % [95 %]", f"difference to {markdown_text(first['method'])}, points [95 %]", "on the device", "on the host"], rows)


def perplexity_grid(folder):
    """HGCA's by beta and share of the KV on the device, in the shape of the paper's Table 1."""
    summary = summary_of(folder)
    if summary is None:
        return None
    cells = {}
    for method in summary["methods"]:
        name, _, rest = method["method"].partition(":")
        options = dict(pair.split("=") for pair in rest.split(",")) if rest else {}
        if name == "hgca" and set(options) == {"device_kv", "beta"}:
            more = difference(method, "nll_difference", 1, 4)
            cells[options["device_kv"], float(options["beta"])] = f"{method['perplexity']:.3f} ({more})"
    betas = sorted({beta for _, beta in cells})
    head = ["device_kv", *("nothing is salient" if beta > 1000 else f"beta {beta:g}" for beta in betas)]
    ratios = sorted({ratio for ratio, _ in cells}, key=float)
    return table(head, [[ratio, *(cells.get((ratio, beta), "") for beta in betas)] for ratio in ratios])


def perplexity_by_method(folder):
    """Best first, behind the baseline: perplexity, nats per token more than it, tokens attended per KV head and layer."""
    summary = summary_of(folder)
    if summary is None:
        return None
    first, *others = summary["methods"]
    others.sort(key=lambda method: method["perplexity"])
    rows = [[markdown_text(m["method"]), f"{m['perplexity']:.2f}", difference(m, "nll_difference", 1, 3), attended(m, "device"), attended(m, "host")]
            for m in (first, *others)]
    return table(["method", "perplexity", f"nats per token more than {markdown_text(first['method'])} [95 %]", "on the device", "on the host"], rows)


def text_and_needles(text, needles):
    """What each method loses on a text and on needles, and what the host attends for it, in the order of the runs, which have the
    same methods."""
    on_text, on_needles = summary_of(text), summary_of(needles)
    if on_text is None or on_needles is None:
        return None
    of = {m["method"]: m for m in on_needles["methods"]}
    if lacks := [m["method"] for m in on_text["methods"] if m["method"] not in of]:
        raise SystemExit(f"model_tables.py: '{needles}' lacks {', '.join(lacks)}, which '{text}' has.")
    rows = []
    for m in on_text["methods"]:
        needle = of[m["method"]]
        rows.append([f"`{m['method']}`", f"{m['perplexity']:.2f}", difference(m, "nll_difference", 1, 3), attended(m, "host"),
                     percent(needle["overall"]), difference(needle["overall"]), attended(needle, "host")])
    first = on_text["methods"][0]["method"]
    return table(["method", "perplexity", f"nats per token more than {first} [95 %]", "host tokens", "needles % [95 %]",
                  f"difference to {first}, points [95 %]", "host tokens"], rows)


def flops(folder):
    """Accuracy beside AsyncSpade's formulas of attention's cost."""
    summary, points = summary_of(folder), read(folder / "flops.json")
    if summary is None or points is None:
        return None
    of = {point["method"]: point for point in points["points"]}
    rows = []
    for method in summary["methods"]:
        cost = of.get(method["method"])
        rows.append([markdown_text(method["method"]), percent(method["overall"]), difference(method["overall"]),
                     figure_text(latency_of(method)["tpot_ms"], 4), f"{cost['attention_flops'] * 1e-6:.2f}" if cost else "-"])
    return table(["method", "accuracy % [95 %]", "difference to full, points [95 %]", "TPOT ms",
                  f"published FLOPs per token, attention, T = {points['points'][0]['length']:,}, M"], rows)


def query_shift(file):
    """AsyncSpade's readings, from what `tandem profile query-shift` wrote: share of the true choice that is predicted."""
    profile = read(file)
    if profile is None:
        return None
    prompts = profile["each_prompt"]
    found = {}
    for i, variant in enumerate(profile["variants"]):
        options = dict(pair.split("=") for pair in variant["options"].split(","))
        cells = []
        for key in ("with_shift", "without_shift"):  # means over layers; the spread is of the prompts' means
            spread = statistics.stdev(prompt[key][i] for prompt in prompts)
            cells.append(f"{100 * statistics.mean(variant[key]):.1f} ± {100 * spread:.1f}")
        best = sum(max(prompt["with_shift"]) == prompt["with_shift"][i] for prompt in prompts)
        found[options["weights"], options["windows"], options["rope"]] = cells, best
    rows = []
    for weights, windows in dict.fromkeys(key[:2] for key in found):
        pre, post = found[weights, windows, "pre"], found[weights, windows, "post"]
        rows.append([f"`{weights}`", windows, " / ".join(pre[0]), " / ".join(post[0]), f"{pre[1]} / {post[1]}"])
    return table(["weights", "windows", "rope=pre, with / without %", "rope=post, with / without %",
                  "prompts in which pre / post is the best"], rows, left=2)
