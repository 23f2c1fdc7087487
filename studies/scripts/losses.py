#!/usr/bin/env python3
"""Writes methods/losses.json, which `tandem advise` reads: needle losses of the runs that ship, and the papers' tables.

  python3 studies/scripts/losses.py      runs anew from results/readme.json and SMOLLM2's files in studies/results/; the papers' rows stay

A row is a method at one length of prompts: points of a score of 100 that it loses beside full attention on the same samples,
their 95 % interval, and the share of the context that a step attends. A paper's row has no share where the paper gives none.
"""
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "methods" / "losses.json"
LOSSLESS = ("full", "full-offload", "full-host")
SMOLLM2 = ("smollm2-essays", "smollm2-learned-essays", "smollm2-longer")


def read(path):
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def row(spec, length, share, loss, low, high):
    """A trained Fluxion is found under the name of what stands in for it where only a shape is simulated."""
    name = {"method": "fluxion:heads=published", "ran_as": spec} if spec.startswith("fluxion:") else {"method": spec}
    return {**name, "length": length, "share": round(share, 4), **{key: round(100 * value, 2) + 0.0 for key, value in
                                                                 (("points", loss), ("low", low), ("high", high))}}


def embedded():
    """Full attention answers every sample, so that the paired loss of a method is what it gets wrong."""
    run = read("results/readme.json")["accuracy"]
    full = next(r for r in run["rows"] if r["name"] == "full")
    assert full["accuracy"] == 1
    rows = [row(r["spec"], run["length"], r["attended"] / full["attended"], 1 - r["accuracy"], 1 - r["interval"][1], 1 - r["interval"][0])
            for r in run["rows"] if r["name"] not in LOSSLESS]
    return {"kind": "shipped run", "model": "the embedded model", "source": "RULER needles, results/readme.json", "rows": rows}


def attended(method):
    return sum(method["latency"]["attended_per_step"][side] for side in ("device", "host"))


def smollm2(name):
    """Without heads=oracle, which measures in every step what a predictor would have to know."""
    path = f"studies/results/{name}.json"
    methods = read(path)["methods"]
    rows = []
    for m in methods[1:]:
        if "heads=oracle" in m["method"]:
            continue
        for cell in m["lengths"]:
            low, high = cell["difference"]["interval"]
            rows.append(row(m["method"], cell["length"], attended(m) / attended(methods[0]), -cell["difference"]["value"], -high, -low))
    return {"kind": "shipped run", "model": "SmolLM2-135M-Instruct", "source": f"needles in essays, {path}", "rows": rows}


def text_of(sources):
    """A line for each row."""
    parts = []
    for source in sources:
        head = ",\n   ".join(f"{json.dumps(key)}: {json.dumps(source[key])}" for key in ("kind", "model", "source"))
        rows = ",\n    ".join(json.dumps(r) for r in source["rows"])
        parts.append(f'  {{\n   {head},\n   "rows": [\n    {rows}\n   ]\n  }}')
    return '{\n "sources": [\n' + ",\n".join(parts) + "\n ]\n}\n"


def main():
    papers = [s for s in json.loads(FILE.read_text(encoding="utf-8"))["sources"] if s["kind"] == "paper"]
    FILE.write_text(text_of([embedded(), *map(smollm2, SMOLLM2), *papers]), encoding="utf-8")


if __name__ == "__main__":
    main()
