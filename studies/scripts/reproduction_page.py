#!/usr/bin/env python3
"""Fills in the numbers of eval/reproduce/items.json, a row for every table and figure of the sources, and writes
docs/reproduction.md from it. `tandem reproduce --list` prints the same rows.

  python3 studies/scripts/reproduction_page.py [--check]      --check: writes nothing; exit code 1 where either is out of date

An item has texts. Some are made, from what its other fields name:
  cells            a figure of results/reproduce-*.json: gives fitted, published, ours and verdict; the two below go first
  published_from,  a text with {FILE:PATH|RULE:FORMAT} in it: keys, places in lists, NAME=VALUE of an object in a list or * for all,
  ours_from        with / between; min, max or mean of many; Python's format. published/... stands beside items.json.
A verdict of cells: "reproduced" where nine in ten predicted numbers are within their aims and nine in ten predicted orders hold; "not"
where none of the numbers is (without numbers: of the orders); "partly" between.
"""
import json
import math
import re
import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from reproduction_tables import error, predicted, value  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
ITEMS, PAGE = ROOT / "eval" / "reproduce" / "items.json", ROOT / "docs" / "reproduction.md"
BEGIN, END = "<!-- made: items -->", "<!-- end -->"
VERDICTS = ("reproduced", "partly", "not", "needs weights", "needs a GPU", "planned")
LINES = (("source", "item", "shows"), ("command",), ("clock", "fitted", "cells"), ("published_from",), ("ours_from",), ("published",), ("ours",),
         ("verdict", "reason"))  # of an item in its file
SPADE_AIM = 0.2  # as Fluxion's times have


@cache
def read(name):
    folder = ITEMS.parent if name.startswith("published/") else ROOT
    return json.loads((folder / (name if name.endswith(".json") else name + ".json")).read_text(encoding="utf-8"))


def found(data, keys):
    """The values under a path, in a list of their own."""
    if not keys:
        return [data]
    if keys[0] == "*":
        return [one for inner in data for one in found(inner, keys[1:])]
    if isinstance(data, list) and "=" in keys[0]:
        name, wanted = keys[0].split("=", 1)
        return found(next(inner for inner in data if inner[name] == wanted), keys[1:])
    return found(data[int(keys[0]) if isinstance(data, list) else keys[0]], keys[1:])


def filled(text):
    """The text with its numbers: a percentage has a space before its sign."""
    def number(match):
        file, path, rule, form = re.fullmatch(r"([^:]+):(.+?)(?:\|(\w+))?(?::([^:/=]+))?", match.group(1)).groups()
        values = found(read(file), path.split("/"))
        if rule:
            values = values[0] if len(values) == 1 and isinstance(values[0], (dict, list)) else values
            values = list(values.values()) if isinstance(values, dict) else values
        one = {None: lambda v: v[0], "min": min, "max": max, "mean": lambda v: sum(v) / len(v)}[rule](values)
        return format(one, form or "").replace("%", " %")
    return re.sub(r"\{([^{}]+)\}", number, text)


def judged(numbers, orders):
    """Verdict of two lists of booleans."""
    if not any(numbers or orders):
        return "not"
    return "reproduced" if all(10 * sum(part) >= 9 * len(part) for part in (numbers, orders)) else "partly"


def counts(numbers, orders, of="numbers within their aims"):
    text = [f"{sum(part)} of {len(part)} {what}" for part, what in ((numbers, of), (orders, "orders")) if part]
    return ", ".join(text)


def figure_of_experiment(experiment, figure):
    data = read(f"results/reproduce-{experiment}.json")
    cells = [c for c in data["cells"] if c["figure"] == figure]
    orders = [o["holds"] for o in data["orders"] if o["figure"] == figure and not o.get("ours") and not o.get("decided_by_source")]
    own = predicted(cells)
    within = [c["within_aim"] for c in own]
    held = counts([], orders)
    if not own:
        published, text = "an order", held
    elif len(own) <= 4:
        published = ", ".join(value(c["quantity"], c["published"]) for c in own)
        text = "; ".join([", ".join(f"{value(c['quantity'], c['ours'])} ({error(c, c['ours'])})" for c in own), *([held] if held else [])])
    else:
        main = [c for c in own if c["quantity"] == own[0]["quantity"]]
        ends = [value(main[0]["quantity"], end(c["published"] for c in main)) for end in (min, max)]
        off = [end(c["ours"] / c["published"] - 1 for c in main) for end in (min, max)]
        published, text = f"{ends[0]} to {ends[1]}", f"{counts(within, orders)}; errors {100 * off[0]:+.0f} to {100 * off[1]:+.0f} %"
    return {"fitted": f"{len(cells) - len(own)} / {len(own)}" if cells else "orders", "published": published, "ours": text, "verdict": judged(within, orders)}


def spade_table2():
    rows = read("results/reproduce-asyncspade-table2.json")["rows"]
    off, parts = {}, {"inference": [r for r in rows if not r["fitted"]], "management": rows}
    for part, those in parts.items():
        off[part] = [r["with_framework"][part + "_ms"] / r["published"][part + "_ms"] - 1 for r in those]
    within = [abs(e) <= SPADE_AIM for part in off.values() for e in part]
    orders = [r["with_framework"]["management_ms"] < r["with_framework"]["inference_ms"] for r in rows]
    ends = lambda part, key: [end(r["published"][key] for r in parts[part]) for end in (min, max)]
    return {"fitted": f"{sum(r['fitted'] for r in rows)} / {len(within)}",
            "published": "inference {:.2f} to {:.2f} ms, management {:.2f} to {:.2f} ms".format(*ends("inference", "inference_ms"),
                                                                                             *ends("management", "management_ms")),
            "ours": "; ".join(f"{part} {100 * min(e):+.0f} to {100 * max(e):+.0f} %" for part, e in off.items()) +
                    f"; management is the shorter in {sum(orders)} of {len(orders)}",
            "verdict": judged(within, orders)}


def spade_figure10():
    published = read("published/asyncspade")["Figure 10"]
    steps = {(b["model"], b["gpu"], b["method"].split(":")[0]): b["tpot_ms"] for b in read("results/reproduce-asyncspade-fig10.json")["bars"]}
    below = {other: [1 - ms / steps[model, gpu, other] for (model, gpu, method), ms in steps.items() if method == "asyncspade"]
             for other in ("full", "quest")}
    held = [gain >= published["below_" + other] for other, gains in below.items() for gain in gains]
    return {"fitted": f"0 / {len(held)}",
            "published": " and ".join(f"{100 * published['below_' + other]:.0f} % below {other}" for other in below),
            "ours": "; ".join(f"{100 * min(gains):.0f} to {100 * max(gains):.0f} % below {other}" for other, gains in below.items()),
            "verdict": judged(held, [])}


def hgca_table1():
    """Nats per token more than full attention with a quarter of the KV on the device, over beta 0.25 to 1."""
    rows = read("published/hgca")["Table 1"]["rows"]
    methods = {m["method"]: m["nll"]["value"] for m in read("studies/results/smollm2-grid.json")["methods"]}
    betas = [name for name in methods if name.startswith("hgca:device_kv=0.25,") and float(name.split("beta=")[1]) <= 1]
    span = lambda losses: f"{min(losses):+.3f} to {max(losses):+.3f}"
    return {"published": "a quarter on the device: OPT-6.7B " +
                         span([math.log(p / rows["OPT-6.7B"]["baseline"]) for p in rows["OPT-6.7B"]["0.25"]]) + " nats",
            "ours": "SmolLM2 " + span([methods[name] - methods["full"] for name in betas]) + " nats"}


MADE = {"spade table2": spade_table2, "spade fig10": spade_figure10, "hgca table1": hgca_table1}


def completed(item):
    made = {}
    if "cells" in item:
        made = MADE[item["cells"]]() if item["cells"] in MADE else figure_of_experiment(*item["cells"].split())
    return item | made | {key: filled(item[key + "_from"]) for key in ("published", "ours") if key + "_from" in item}


def as_file(items):
    text = lambda pair: json.dumps(pair[0]) + ": " + json.dumps(pair[1], ensure_ascii=False)
    objects = []
    for item in items:
        lines = [", ".join(map(text, ((key, item[key]) for key in line if key in item))) for line in LINES]
        objects.append("  {" + ",\n   ".join(line for line in lines if line) + "}")
    return '{\n "items": [\n' + ",\n".join(objects) + "\n ]\n}\n"


def table(items):
    """A heading and a table for each source."""
    lines, source = [], None
    for item in items:
        if item["source"] != source:
            source = item["source"]
            lines += ["", f"## {source}", "| item | shows | verdict | published | ours | reason | fitted / predicted | clock | `tandem` ... |", "|---|---|---|---|---|---|---|---|---|"]
        command = f"`{item['command']}`" if "command" in item else ""
        cells = [item["item"], item["shows"], item["verdict"], item["published"], item.get("ours", ""), item["reason"], item.get("fitted", ""),
                 item.get("clock", ""), command]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(items):
    each = [f"{number} {verdict}" for verdict in VERDICTS if (number := sum(item["verdict"] == verdict for item in items))]
    return f"""# Tables and figures of the papers
Each row compares a table or figure with ours. `tandem reproduce --list` prints the same rows.

| verdict | meaning |
|---|---|
| reproduced | nine in ten predicted numbers are within their aims, and nine in ten orders hold |
| partly | fewer, or on other models |
| not | no number is within its aim, or nothing compares yet |
| needs | the command is there, the paper's weights or a GPU are not |

Numbers that made a workload count as fitted. Aims are 20 %, 25 % for ScoutAttention, and 10 points for large shares.
More reasons: [ScoutAttention](../studies/notes/reproduce-scoutattention.md),
[Fluxion](../studies/notes/reproduce-fluxion.md), [AsyncSpade](../studies/notes/asyncspade.md),
[HGCA](../studies/notes/hgca.md).

{BEGIN}
{len(items)} tables and figures: {", ".join(each)}.
{table(items)}
{END}
"""


def main(options):
    if options not in ([], ["--check"]):
        sys.exit(__doc__)
    items = [completed(item) for item in read(str(ITEMS.relative_to(ROOT)))["items"]]
    stale = []
    for file, text in ((ITEMS, as_file(items)), (PAGE, page(items))):
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(file.relative_to(ROOT)))
        if not options:
            file.write_text(text, encoding="utf-8")
    if options and stale:
        sys.exit(f"reproduction_page.py: out of date: {', '.join(stale)}. Run it without --check.")


if __name__ == "__main__":
    main(sys.argv[1:])
