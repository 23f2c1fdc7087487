#!/usr/bin/env python3
"""Writes the two tables of studies/notes/first_tables.md from a run folder, and its plot to results/first-tables.svg.

  tandem compare --as llama-3.1-8b --batch 16 --context 32K --workload published --out runs/first
  python3 studies/scripts/first_tables.py runs/first
"""
import json
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from wrap_pages import wrapped  # noqa: E402

BEGIN, END = "<!-- results:begin", "<!-- results:end -->"


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table(head, rows):
    return "\n".join([row(head), "|---|" + "---:|" * (len(head) - 1)] + [row(cells) for cells in rows])


def share(value, sign=""):
    return f"{100 * value:{sign}.1f}"


def accuracy_row(method):
    overall = method["overall"]
    low, high = overall["interval"]
    cells = [method["method"], f"{share(overall['accuracy'])} [{share(low)}, {share(high)}]", "", ""]
    if overall.get("difference"):
        difference = overall["difference"]
        low, high = difference["interval"]
        p = difference["mcnemar_mid_p"]
        cells[2] = f"{share(difference['value'], '+')} [{share(low, '+')}, {share(high, '+')}]"
        cells[3] = "<0.001" if p < 0.001 else f"{p:.3f}"
    return cells


def gigabytes(count):
    return f"{count * 1e-9:.1f}" if count else "0"


def target_row(method, target):
    if "refused" in method:
        why = "does not fit" if method.get("too_large") else "refused"
        return [method["method"], "", why] + [""] * 8
    causes = method.get("idle_ms_by_cause", {})
    cause = max(causes, key=causes.get) if causes else "-"
    ttft = (method["prefill_ms"] + method["setup_ms"] + method["first_step_ms"]) * 1e-3
    step = method["step_ms"]
    end = lambda ms: f"{ms:.3g}" if ms < 1000 else f"{ms:.0f}"
    ends = f" [{end(method['step_low_ms'])}–{end(method['step_high_ms'])}]" if "step_high_ms" in method else ""
    return [method["method"], f"{ttft:.1f}", f"{step:.1f}{ends}", f"{1e3 * target['batch'] / step:,.0f}",
            f"{method['idle_ms'] / target['layers']:.2f}", share(method["idle_ms"] / step), cause,
            f"{method['attended_device']:,.0f}", f"{method['attended_host']:,.0f}", gigabytes(method["device_kv_bytes"]),
            gigabytes(method["host_kv_bytes"])]


def length(tokens):
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else str(tokens)


def choices(target):
    """Where it is known from what heads choose, of all rows and of those that have their own."""
    name = target["workload"]["name"]
    text = ("What they choose is drawn from statistics that HGCA and ScoutAttention publish of their models "
            "(hardware/workloads/published.json, with what is assumed). How long choices last is fitted to the share that "
            "ScoutAttention's CPU attends: its row's tokens on the host are an input."
            if name == "published" else f"What they choose is drawn from the workload '{name}'.")
    fitted = [method["method"] for method in target["methods"] if "heads=published" in method["method"]]
    if fitted:
        text += (f" `{fitted[0]}` has budgets fitted to two timings of this shape in Fluxion's paper: its row says little "
                 "new.")
    return text


def results(folder):
    summary, target, manifest = (read(folder, name) for name in ("summary.json", "target.json", "manifest.json"))
    lengths = [length(cell["length"]) for cell in summary["methods"][0]["lengths"]]
    shape = f"{target['model']}, batch {target['batch']} x {length(target['context'])}"
    too_large = ", where full KV is too large for the GPU" if "refused" in target["methods"][0] else ""
    return f"""{BEGIN} (studies/scripts/first_tables.py) -->
![Accuracy, and where a decode step's time goes](../../results/first-tables.svg)

RULER needle tasks (three single, three multikey) at {' and '.join(lengths)}, embedded 5.4 M-parameter model, \
{summary['methods'][0]['overall']['n']} samples per method (made on {manifest['machine']['cores']} cores, \
{manifest['machine']['cpu_model']}, {manifest['isa']}):

{table(["method", "accuracy % [95 %]", "difference to full, points [95 %]", "McNemar p"],
       [accuracy_row(method) for method in summary["methods"]])}

A decode step of {shape}, {target['clock']}{too_large}. Methods have their published budgets here (quest, tova, \
scoutattention and asyncspade 2,048 tokens). {choices(target)} So rows of the two tables are not pairs. Brackets: what \
the step may be, given the low and high of every number of the hardware profile that was assumed or fitted \
([how](../../docs/simulated_times.md#ranges)).

{table(["method", "TTFT of the batch, s", "step ms", "tokens/s", "idle ms/layer", "idle %", "waits mostly for", "attended on device",
        "on host", "KV GB, device", "host"], [target_row(method, target) for method in target["methods"]])}

<details><summary>The command that makes both tables</summary>

`{manifest['command']}`
</details>

{END}"""


def main(folder):
    page = ROOT / "studies" / "notes" / "first_tables.md"
    with open(page, encoding="utf-8") as file:
        text = file.read()
    shutil.copy(os.path.join(folder, "plot.svg"), ROOT / "results" / "first-tables.svg")
    begin, end = text.index(BEGIN), text.index(END) + len(END)
    with open(page, "w", encoding="utf-8") as file:
        file.write(wrapped(text[:begin] + results(folder) + text[end:]))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        main(sys.argv[1])
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"studies/scripts/first_tables.py: {type(error).__name__}: {error}")
