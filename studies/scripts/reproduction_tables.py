"""Writes the tables of a document from what `tandem reproduce NAME --out FILE.json` wrote: whatever stands between
`<!-- made: PART -->` and `<!-- end -->` is replaced; the text around it stays.

  python3 studies/scripts/reproduction_tables.py results/reproduce-fluxion.json studies/notes/reproduce-fluxion.md
  python3 studies/scripts/reproduction_tables.py results/reproduce-scout.json studies/notes/reproduce-scoutattention.md
  python3 studies/scripts/reproduction_tables.py results/reproduce-hgca.json studies/notes/hgca.md
  python3 studies/scripts/reproduction_tables.py results/reproduce-asyncspade-table2.json studies/notes/asyncspade.md
  python3 studies/scripts/reproduction_tables.py results/reproduce-asyncspade-fig10.json studies/notes/asyncspade.md
"""
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from wrap_pages import wrapped  # noqa: E402


def by_difference(cell):
    """Large shares are compared by difference, the rest by ratio: Cell::by_difference() of eval/reproduce/experiment.h."""
    return cell["quantity"] in ("idle_ratio", "selection_share") and cell["published"] >= cell["aim"]


def value(quantity, number):
    if number is None:
        return "does not fit"
    if quantity.endswith(("_ratio", "_share")):
        return f"{100 * number:.1f} %"
    return f"{number:.2f}×" if quantity == "speed_up" else f"{number:.2f} ms"


def ours(cell):
    """What came out, with its range."""
    text = value(cell["quantity"], cell["ours"])
    if "low" not in cell:
        return text
    unit = 100 if cell["quantity"].endswith(("_ratio", "_share")) else 1
    return f"{text} [{unit * cell['low']:.3g}–{unit * cell['high']:.3g}]"


def error(cell, number):
    if number is None:
        return "-"
    if by_difference(cell):
        return f"{100 * (number - cell['published']):+.1f} points"
    return f"{100 * (number / cell['published'] - 1):+.0f} %"


def which(cell):
    if cell["fitted"]:
        return "fitted"
    if cell.get("source_of_the_workload"):
        return "source of the workload"
    text = "predicted, " + ("within aim" if cell["within_aim"] else "**missed**")
    if "at_most" in cell:
        below = cell["ours"] is not None and cell["ours"] <= cell["at_most"]
        text += f"; {'at most' if below else '**not** at most'} {100 * cell['at_most']:.0f} %"
    return text


def predicted(cells):
    return [c for c in cells if not c["fitted"] and not c.get("source_of_the_workload")]


def near(cell, number):
    """Whether a number would be within the cell's aim."""
    off = number - cell["published"] if by_difference(cell) else number / cell["published"] - 1
    return abs(off) <= cell["aim"]


def share(items, is_right):
    return f"{sum(bool(is_right(i)) for i in items)} of {len(items)}"


class Document:
    def __init__(self, data, parts):
        self.data = data
        self.parts = parts

    def own_orders(self):
        """Predicted ones."""
        return [o for o in self.data["orders"] if not o.get("ours") and not o.get("decided_by_source")]

    def held(self):
        cells = [c for c in predicted(self.data["cells"]) if not c.get("derived")]
        return (f"{share(cells, lambda c: c['within_aim'])} predicted cells are within their aims, and "
                f"{share(self.own_orders(), lambda o: o['holds'])} predicted orders hold.")

    def missed(self):
        text = "| figure | missed | published | ours | error |\n|---|---|---:|---:|---:|\n"
        for c in predicted(self.data["cells"]):
            if not c["within_aim"] and not c.get("derived"):
                text += f"| {c['figure']} | {c['name']} | {value(c['quantity'], c['published'])} | {ours(c)} | {error(c, c['ours'])} |\n"
        for o in self.own_orders():
            if not o["holds"]:
                text += f"| {o['figure']} | order: {o['says']} | holds | does not hold | |\n"
        return text

    def fill(self, text):
        found = 0

        def made(match):
            nonlocal found
            name = match.group(1)
            if name not in self.parts:  # of another file's
                return match.group(0)
            found += 1
            part = self.parts[name]()
            return f"<!-- made: {name} -->" + ("\n" + part if "\n" in part else part) + "<!-- end -->"
        text = re.sub(r"<!--\s+(made:[^>]+?|end)\s+-->", lambda mark: " ".join(mark.group(0).split()), text)  # wrapped ones
        text = re.sub(r"<!-- made: ([^>]+?) -->.*?<!-- end -->", made, text, flags=re.DOTALL)
        if found == 0:
            sys.exit(f"The document has none of the parts that this file makes: {', '.join(self.parts)}.")
        return wrapped(text)


class Fluxion(Document):
    def __init__(self, data):
        super().__init__(data, {"head": self.head, "pairs": self.pairs, "runs": self.run_table, "shares": self.shares,
                                "held": self.held, "missed": self.missed, "guard": self.guard, "null": self.null,
                                "errors": self.errors, "budgets": self.budgets,
                                "bounds": self.bounds, "sizes": self.sizes, "mixed": self.mixed, "count": self.count})
        self.runs = {run["name"]: run for run in data["runs"]}
        for figure in ("table5", "7", "8", "9", "10", "2"):
            self.parts["cells " + figure] = lambda figure=figure: self.cells(figure)
            self.parts["orders " + figure] = lambda figure=figure: self.orders(figure)

    def idle_ms(self, name):
        return self.runs[name]["idle_ms"] / self.runs[name]["layers"]

    def head(self):
        text = f"Made with the code of commit {self.data['git_commit'][:7]}, {self.data['clock']}."
        for fitted in self.data["fitted"]:
            text += f" Fitted: {fitted['name']} = {fitted['value']:.3f} ({fitted['reached']:.4g} reached)."
        return text

    def count(self):
        cells = predicted(self.data["cells"])
        own, derived = [c for c in cells if not c.get("derived")], [c for c in cells if c.get("derived")]
        orders = self.own_orders()
        decided = [o for o in self.data["orders"] if o.get("decided_by_source")]
        return (f"{share(own, lambda c: c['within_aim'])} predicted cells are within their aims (20 %; 10 points where the "
                f"number is a share of idle time or of the CPU's work), apart from them "
                f"{share(derived, lambda c: c['within_aim'])} of Figure 7's, and "
                f"{share(orders, lambda o: o['holds'])} predicted orders hold, apart from them "
                f"{share(decided, lambda o: o['holds'])} that fitted values or the workload's sources decide.")

    def cells(self, figure):
        chosen = [c for c in self.data["cells"] if c["figure"] == figure]
        null = any("null_model" in c for c in chosen)
        text = ("| cell | published | ours | error | " + ("null model | its error | " if null else "") + "which |\n"
                "|---|---:|---:|---:|" + ("---:|---:|" if null else "") + "---|\n")
        for c in chosen:
            text += f"| {c['name']} | {value(c['quantity'], c['published'])} | {ours(c)} | {error(c, c['ours'])} | "
            if null:
                number = c.get("null_model")
                text += f"{value(c['quantity'], number)} | {error(c, number)} | " if number else "| | "
            text += which(c) + " |\n"
        return text

    def orders(self, figure):
        text = "| order, as published | tokens/s, slowest first, or idle share (a layer) | holds |\n|---|---|---|\n"
        for o in self.data["orders"]:
            if o["figure"] != figure:
                continue
            if "idle_ratio" in o:
                numbers = " > ".join("does not fit" if x is None else f"{100 * x:.1f} % ({ms:.2f} ms)"
                                     for x, ms in zip(o["idle_ratio"], o["idle_ms"]))
            else:
                numbers = " < ".join("does not fit" if x is None else f"{x:.1f}" for x in o["tokens_per_second"])
            apart = "; an option of ours" if o.get("ours") else "; decided by sources" if o.get("decided_by_source") else ""
            text += f"| {o['says']} | {numbers} | {'yes' if o['holds'] else '**no**'}{apart} |\n"
        return text

    def pairs(self):
        text = "| batches | policy | beside | its step over the other's, mean of 20 | 95 % interval |\n|---|---|---|---:|---:|\n"
        for o in self.data["orders"]:
            for name, ratio in zip(o["runs"], o.get("step_over_last", [])):
                policy, batches = name.split(", ", 1)
                text += f"| {batches} | {policy} | {o['runs'][-1].split(', ')[0]} | {ratio['mean']:.3f} | {ratio['low']:.3f} to {ratio['high']:.3f} |\n"
        return text

    def guard(self):
        """How much shorter a step is without the guard."""
        gains = sorted(100 * (1 - o["step_over_last"][0]["mean"]) for o in self.data["orders"] if o.get("ours"))
        return f"{gains[0]:.1f} to {gains[-1]:.1f} %"

    def shares(self):
        text = "| policy and batches | CPU's share | range tried | step ms at the best, at the worst tried |\n|---|---:|---:|---:|\n"
        for c in self.data.get("calibrated", []):
            shares, steps = [t["share"] for t in c["tried"]], [t["step_ms"] for t in c["tried"]]
            text += f"| {c['run']} | {c['value']:.4f} | {min(shares):.2f} to {max(shares):.2f} | {min(steps):.2f}, {max(steps):.2f} |\n"
        return text

    def null(self):
        cells = [c for c in predicted(self.data["cells"]) if "null_model" in c]

        def line(model):
            of = [c for c in cells if c["name"].startswith(model)]
            return (f"of {model}'s {len(of)} predicted times {sum(near(c, c['null_model']) for c in of)} are within the aim "
                    f"by it, {sum(c['within_aim'] for c in of)} by the simulation")
        return line("Llama") + "; " + line("Qwen")

    def errors(self):
        names = ["error 0.02, 16 x 32K", "error 0.05, 16 x 32K", "Llama Fluxion, 16 x 32K", "error 0.15, 16 x 32K",
                 "error 0.2, 16 x 32K"]
        steps = [self.runs[n]["step_ms"] / self.runs[n]["batch"] for n in names]
        return (f"{', '.join(f'{s:.2f}' for s in steps)} ms at 0.02, 0.05, 0.10, 0.15 and 0.20: {100 * (steps[2] / steps[0] - 1):.0f} % from "
                f"0.02 to 0.10, and still {100 * (steps[4] / steps[2] - 1):.0f} % from 0.10 to 0.20")

    def budgets(self):
        text = []
        for budget, device, hybrid in ((5, "GPU-only, 8 x 32K", "Llama (32,0.05), 8 x 32K"),
                                       (2, "GPU-only (32,0.02), 8 x 32K", "Llama (32,0.02), 8 x 32K")):
            share_of = [100 * self.runs[n]["idle_ms"] / self.runs[n]["step_ms"] for n in (device, hybrid)]
            text.append(f"at {budget} % GPU-only {self.idle_ms(device):.2f} ms a layer and {share_of[0]:.1f} % of the step, hybrid "
                        f"{self.idle_ms(hybrid):.2f} ms and {share_of[1]:.1f} %")
        return "; ".join(text)

    def bounds(self):
        ratios = [r["tasks_ms"] / r["tasks_bound_ms"] for n, r in self.runs.items()
                  if "tasks_ms" in r and not n.startswith("cpu-only")]
        return f"{min(ratios):.2f} to {max(ratios):.2f}"

    def sizes(self):
        rate = lambda name: 1e3 * self.runs[name]["batch"] / self.runs[name]["step_ms"]
        return f"{rate('fixed 32, 16 x 32K'):.1f} and {rate('dynamic, 16 x 32K'):.1f} tokens/s"

    def mixed(self):
        cells = [c for c in self.data["cells"] if c["figure"] == "8"]
        bound = lambda name: self.runs[name]["tasks_ms"] / self.runs[name]["tasks_bound_ms"]
        return (f"{' and '.join('%.2f' % c['ours'] for c in cells)} times, published {' and '.join('%.1f' % c['published'] for c in cells)}; "
                f"tasks end at {bound('priority, U(16K,64K)'):.2f} times the bound, beside {bound('Llama Fluxion, 8 x 32K'):.2f} at 8 x 32K")

    def run_table(self):
        text = ("| run | batch | step ms | step / batch | idle ms a layer | predictor % | tasks ms | least possible | ratio |\n"
                "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
        for name, run in self.runs.items():
            if "step_ms" not in run:
                text += f"| {name} | {run['batch']} | does not fit | | | | | | |\n"
                continue
            tasks = "| | |"
            if "predictor_ms" in run:
                tasks = (f"{100 * run['predictor_ms'] / run['step_ms']:.2f} | {run['tasks_ms']:.1f} | {run['tasks_bound_ms']:.1f} | "
                         f"{run['tasks_ms'] / run['tasks_bound_ms']:.3f}")
            text += (f"| {name} | {run['batch']} | {run['step_ms']:.2f} | {run['step_ms'] / run['batch']:.3f} | "
                     f"{self.idle_ms(name):.3f} | {tasks} |\n")
        return text


class Scout(Document):
    def __init__(self, data):
        super().__init__(data, {"scout held": self.held, "scout missed": self.missed, "scout fitted": self.fitted,
                                "scout cells": self.cells, "scout orders": self.orders, "scout runs": self.runs})

    def fitted(self):
        hgca, infinigen = self.data["fitted"]
        return (f"Fitted: HGCA's CPU attends {hgca['value']:.0f} tokens per KV head ({100 * hgca['reached']:.1f} % idle "
                f"reached); InfiniGen fetches {infinigen['value']:.0f} pages of 32 tokens per layer and step "
                f"({100 * infinigen['reached']:.1f} %; pages are whole, so this is the nearest).")

    def cells(self):
        text = "| cell | figure | published | ours | error | which |\n|---|---|---:|---:|---:|---|\n"
        for c in self.data["cells"]:
            idle = " idle" if c["quantity"] == "idle_ratio" else ""
            text += (f"| {c['name']} | {c['figure']} | {value(c['quantity'], c['published'])}{idle} | "
                     f"{ours(c)}{idle} | {error(c, c['ours'])} | {which(c)} |\n")
        return text

    def orders(self):
        text = "| order, as published | figure | tokens/s, slowest first | holds |\n|---|---|---|---|\n"
        for o in self.data["orders"]:
            numbers = " < ".join("does not fit" if x is None else f"{x:.0f}" for x in o["tokens_per_second"])
            apart = "; decided by sources" if o.get("decided_by_source") else ""
            text += f"| {o['says']} | {o['figure']} | {numbers} | {'yes' if o['holds'] else '**no**'}{apart} |\n"
        return text

    def runs(self):
        text = ("| run | batch | steps | step ms | tokens/s | idle % | idle ms | in layer 0 | KV GB, device | attended on host |\n"
                "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
        for r in self.data["runs"]:
            text += (f"| {r['name']} | {r['batch']} | {r['steps']} | {r['step_ms']:.2f} | {1e3 * r['batch'] / r['step_ms']:.0f} | "
                     f"{100 * r['idle_ms'] / r['step_ms']:.1f} | {r['idle_ms']:.3f} | {r['layer0_idle_ms']:.3f} | "
                     f"{r['device_kv_bytes'] * 1e-9:.2f} | {r['attended_host']:.0f} |\n")
        return text


class Hgca(Document):
    def __init__(self, data):
        super().__init__(data, {"hgca held": self.held, "hgca missed": self.missed, "hgca figure12": self.figure12})

    def figure12(self):
        """Step times by batch."""
        names = ("FlexGen", "H2O", "InfiniGen", "HGCA")
        steps = {tuple(r["name"].split(", 2K x ")): r["step_ms"] for r in self.data["runs"] if ", 2K x " in r["name"] and "step_ms" in r}
        batches = sorted({int(batch) for name, batch in steps if name == names[0]})
        text = "| batch | " + " | ".join(names) + " |\n|---:|" + "---:|" * len(names) + "\n"
        for batch in batches:
            text += f"| {batch} | " + " | ".join(f"{steps[name, str(batch)]:.1f}" for name in names) + " |\n"
        return text


def size(model):
    return model.rsplit("-", 1)[1].upper()


class SpadeTable2(Document):
    def __init__(self, data):
        super().__init__(data, {"table2": self.rows, "table2 framework": self.framework})

    def framework(self):
        per_gpu = {r["gpu"]: r["framework_ms"] for r in self.data["rows"]}
        return " and ".join(f"{ms:.3f} ms on the {gpu.upper()}" for gpu, ms in per_gpu.items())

    def rows(self):
        text = ("| model, batch x context, pack | GPU | inference, published | cache, published | inference, bare | inference, with framework | "
                "cache, simulated | inference, roofline | cache, roofline |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n")
        packs = {}
        for r in self.data["rows"]:
            packs[r["model"]] = min(r["pack"], packs.get(r["model"], r["pack"]))
        for r in self.data["rows"]:
            if r["pack"] != packs[r["model"]]:
                continue
            off = lambda ours, key: f"{100 * (ours / r['published'][key] - 1):+.0f} %"
            own, slow, roof = r["ours"], r["with_framework"], r["roofline"]
            how = "fitted" if r["fitted"] else off(slow["inference_ms"], "inference_ms")
            text += (f"| {size(r['model'])}, {r['batch']} x {r['context'] // 1024}K, {r['pack']} layers | {r['gpu'].upper()} | "
                     f"{r['published']['inference_ms']:.2f} | {r['published']['management_ms']:.2f} | {own['inference_ms']:.2f} | "
                     f"{slow['inference_ms']:.2f} ({how}) | {own['management_ms']:.2f} ({off(own['management_ms'], 'management_ms')}) | "
                     f"{roof['inference_ms']:.2f} | {roof['management_ms']:.2f} |\n")
        return text


class SpadeFigure10(Document):
    def __init__(self, data):
        super().__init__(data, {"figure10": self.rows})

    def rows(self):
        text = ("| model, GPU | full | quest | tova | asyncspade, peer | against full | against quest | roofline: against full | "
                "against quest |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
        groups = {}
        for bar in self.data["bars"]:
            groups.setdefault((bar["model"], bar["gpu"]), {})[bar["method"].split(":")[0]] = bar
        for (model, gpu), bars in groups.items():
            own = bars["asyncspade"]
            least = lambda bar: bar["roofline_ms"]
            off = lambda of, name: f"{100 * (of(own) / of(bars[name]) - 1):+.0f} %"
            step = lambda bar: bar["tpot_ms"]
            text += (f"| {size(model)}, {gpu.upper()} | " +
                     " | ".join(f"{step(bars[n]):.2f}" for n in ("full", "quest", "tova", "asyncspade")) +
                     f" | {off(step, 'full')} | {off(step, 'quest')} | {off(least, 'full')} | {off(least, 'quest')} |\n")
        return text


def document(data):
    """Of a file's content; nothing where this version knows none of its kind."""
    if data.get("schema") == "tandem-asyncspade-table2-3":
        return SpadeTable2(data)
    if data.get("schema") == "tandem-asyncspade-fig10-2":
        return SpadeFigure10(data)
    if "layers" not in data.get("runs", [{}])[0]:
        return None
    return {"fluxion": Fluxion, "scout": Scout, "hgca": Hgca}.get(data.get("experiment"), lambda _: None)(data)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        data = json.load(file)
    made = document(data)
    if made is None:
        sys.exit(f"{sys.argv[1]} is not what this version's `tandem reproduce NAME --out FILE.json` writes; run that first.")
    with open(sys.argv[2], encoding="utf-8") as file:
        text = file.read()
    try:
        text = made.fill(text)
    except KeyError as e:
        sys.exit(f"{sys.argv[1]} has no {e}: it must come from a run of all figures, not of one.")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
