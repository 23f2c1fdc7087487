"""Writes the tables of a model's pages from what measure_model.sh left in its folder: whatever stands between
`<!-- made: PART -->` and `<!-- end -->` is replaced; the text around it stays.

  studies/scripts/measure_model.sh embedded runs/embedded
  python3 studies/scripts/model_tables.py runs/embedded models/deep/fluxion/README.md

Of the predictors' page it makes rules, lengths, blocks and regret; of models/README.md accuracy, tasks and heads; in
studies/notes of fluxion-accuracy.md regret, near, near_attended, far and ablations; of hgca.md perplexity, needles and grid; of baselines.md
means; of asyncspade.md shift and flops; of scoutattention.md scout; of language_model.md ruler, text,
variants, essays, learned, longer and heads. With a third word, such as seed, they are "seed accuracy" and so on, so that one
page can have two models. A part whose measurement the folder lacks is left as it is, and named. For a model of your own, let
it write a copy of the page: the text between the tables stays.
"""
import sys
from pathlib import Path

import run_tables
from reproduction_tables import Document
from run_tables import length_text, table

ABOUT = {
    "niah_single_1": "one number in noise", "niah_single_2": "one number in prose", "niah_single_3": "one UUID in prose",
    "niah_multikey_1": "one of four numbers", "niah_multikey_2": "one number among needles",
    "niah_multikey_3": "one UUID among UUID needles",
}
RULES = ("fluxion", "output", "score")


def score(cell):
    low, high = cell["interval"]
    return f"{100 * cell['accuracy']:.0f} [{100 * low:.0f}, {100 * high:.0f}]"


class Measured:
    """The files of a folder of measure_model.sh, and the tables that they make: None where one is missing."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def read(self, name):
        return run_tables.read(self.folder / name)

    def scores(self, *runs):
        """Of full attention: scores as text by (task, length), tasks, lengths, in the runs' order; None without the first run."""
        summaries = [run_tables.summary_of(self.folder / run) for run in runs]
        if summaries[0] is None:
            return None
        cells = {(c["task"], c["length"]): score(c) for summary in filter(None, summaries) for c in summary["methods"][0]["cells"]}
        return cells, list(dict.fromkeys(task for task, _ in cells)), list(dict.fromkeys(length for _, length in cells))

    # ---- models/README.md ----------------------------------------------------------------------------------------
    def accuracy(self):
        return self.by_task("accuracy", "accuracy-16k")

    def by_task(self, *runs):
        if (found := self.scores(*runs)) is None:
            return None
        cells, tasks, lengths = found
        rows = [[f"{task}: {ABOUT[task]}" if task in ABOUT else task, *(cells.get((task, n), "") for n in lengths)] for task in tasks]
        return table(["task", *map(length_text, lengths)], rows)

    def tasks(self):
        if (found := self.scores("tasks")) is None:
            return None
        cells, tasks, lengths = found
        return table(["", *tasks], [[length_text(n), *(cells[task, n] for task in tasks)] for n in lengths])

    def heads(self):
        profiles = {"RULER 2K": self.read("heads-2k.json"), "RULER 4K": self.read("heads-4k.json"),
                    "text 2K": self.read("heads-text.json")}
        profiles = {name: p for name, p in profiles.items() if p is not None}
        if not profiles:
            return None

        def row(name, of, paper, source):
            return [name, *(of(p) for p in profiles.values()), paper, source]

        def percent(x, digits=1):
            return f"{100 * x:.{digits}f}"

        def by_block(p):
            b = p["mean"]["budget"]["0.95"]
            return " / ".join(percent(x, 0) for x in (b["1"], b["16"], b["32"], b["64"]))

        def spread(p):
            each = [h["budget"]["0.99"]["1"] for layer in p["layers"] for h in layer["q_heads"]]
            return f"{percent(p['mean']['budget']['0.99']['1'], 0)} ({percent(min(each), 0)}–{percent(max(each), 0)})"

        def group(p):
            each = [g["streaming"] for layer in p["layers"] for g in layer["kv_heads"]]
            return percent(sum(each) / len(each))

        def cosines(p):
            each = [layer["mean"]["layer_ahead_cosine"]["next"] for layer in p["layers"][1:]]
            if len(each) <= 8:
                return ", ".join(f"{c:.2f}" for c in each)
            return f"{each[0]:.2f}, {each[1]:.2f}, then {min(each[2:]):.2f} to {max(each[2:]):.2f} (mean {sum(each) / len(each):.3f})"

        rows = [
            row("attention mass on sinks, %", lambda p: percent(p["mean"]["sink_mass"]),
                '"a substantial fraction", of the first 64 tokens (Llama-3.1-8B)', "Fluxion §3.1.1, Fig. 3(c); no number in the text"),
            row("attention mass on the window, %", lambda p: percent(p["mean"]["window_mass"]), "none given", ""),
            row("queries at which a head streams, % (sinks 64 and window 256 suffice, tau 0.10)",
                lambda p: percent(p["mean"]["streaming"]),
                "skipping streaming heads saves 9.5 → 8 ms of TPOT; their share is not given", "Fluxion §3.2, §8.3, Fig. 10(b)"),
            row("all heads of a KV head stream, %", group, "none given", ""),
            row("context for 99 % of the mass, tokens, % (lowest and highest head)", spread,
                "10 to about 80 (two heads of layer 16, OPT-6.7B, WikiText)", "HGCA §2, Fig. 4"),
            row("context for 95 % of the mass, %: tokens / blocks of 16 / 32 / 64", by_block,
                "grows about linearly in log2(block) (of output error, retrieval heads)", "Fluxion §3.2, Fig. 5"),
            row("top 1/8 tokens that the next query chooses again, %", lambda p: percent(p["mean"]["token_overlap"], 0),
                "above 40 within 16 queries (Qwen3-32B, AIME24)", "AsyncSpade §3.1, Fig. 4"),
            row("top 1/8 blocks of 32 that the next query chooses again, %", lambda p: percent(p["mean"]["block_overlap"], 0),
                "more than 85 (less than 15 % change; budget 2,048 tokens)", "ScoutAttention §3.2, Fig. 6a"),
            row("cosine of layer-ahead query and query, by layer from 1 on", cosines,
                "0.93 to 0.97 (five models of 7B to 12B)", "ScoutAttention Table 1"),
        ]
        head = ["", *profiles, "in the papers", "source"]
        lines = table(head, rows).split("\n")
        lines[1] = "|---|" + "---:|" * len(profiles) + "---|---|"
        return "\n".join(lines)

    # ---- the predictors' page ------------------------------------------------------------------------------------
    def reports(self):
        found = {rule: self.read(f"fluxion/{rule}.json") for rule in RULES}
        return None if any(r is None for r in found.values()) else found

    def rules(self):
        reports = self.reports()
        if reports is None:
            return None
        rows = []
        for rule, report in reports.items():
            h = report["held_out"]
            s, r = h["streaming"], h["retrieval_heads"]
            rows.append([f"`{rule}`", f"{h['rows']:,}", f"{100 * s['share']:.1f}", f"{100 * s['accuracy']:.1f}", f"{s['auc']:.3f}",
                         f"{100 * s['called_streaming_but_is_not']:.1f}", f"{100 * s['called_retrieval_but_is_streaming']:.1f}",
                         *(f"{r[what][figure]:.{digits}f}" for what in ("budget", "slope")
                           for figure, digits in (("mean", 3), ("r2", 2), ("mae", 3)))])
        return table(["rule", "rows", "streaming, %", "accuracy, %", "AUC", "wrongly called streaming, % of rows", "wrongly not, %",
                      "mean budget", "R²", "MAE", "mean slope", "R²", "MAE"], rows)

    def lengths(self):
        reports = self.reports()
        if reports is None:
            return None
        rows = []
        for length, h in reports["fluxion"]["held_out_by_length"].items():
            s, b = h["streaming"], h["blocks"]["32"]
            rows.append([f"{length} ({h['prompts']} prompts)", f"{h['rows']:,}", f"{100 * s['share']:.1f}", f"{100 * s['accuracy']:.1f}",
                         f"{s['auc']:.3f}", f"{100 * s['called_streaming_but_is_not']:.1f}", f"{b['predicted']['mean']:.3f}",
                         f"{b['mean_predicted']:.3f}", f"{100 * b['too_little']:.1f}"])
        return table(["length", "rows", "streaming, %", "accuracy, %", "AUC", "wrongly called streaming, % of rows", "needed",
                      "predicted", "too little, % of heads"], rows)

    def blocks(self):
        reports = self.reports()
        if reports is None:
            return None
        rows = []
        for block, b in reports["fluxion"]["held_out"]["blocks"].items():
            if block == "1":
                continue  # no block is that small
            p = b["predicted"]
            rows.append([block, f"{p['mean']:.3f}", f"{b['mean_predicted']:.3f}", f"{p['r2']:.2f}", f"{p['mae']:.3f}",
                         f"{b['eq1_on_labels']['mae']:.3f}", f"{100 * b['too_little']:.1f}"])
        return table(["block", "mean budget needed", "mean predicted", "R²", "MAE", "MAE of the line", "too little, %"], rows, left=0)

    # ---- the methods' pages --------------------------------------------------------------------------------------
    def regret(self):
        return run_tables.regret(self.folder / "regret")

    def perplexity(self):
        return run_tables.perplexity_grid(self.folder / "hgca-perplexity")

    def needles(self):
        return run_tables.accuracy_by_method(self.folder / "hgca-needles")

    def means(self):
        return run_tables.accuracy_by_method(self.folder / "means")

    def shift(self):
        return run_tables.query_shift(self.folder / "shift.json")

    def flops(self):
        return run_tables.flops(self.folder / "flops")

    def printed(self, name):
        """A table as plot_tradeoff.py printed it."""
        file = self.folder / f"{name}.md"
        return (file.read_text(encoding="utf-8") or None) if file.exists() else None

    # ---- a model that knows a language ---------------------------------------------------------------------------
    def ruler(self):
        return self.by_task("ruler")

    def text(self):
        return run_tables.perplexity_by_method(self.folder / "text")

    def variants(self):
        return run_tables.perplexity_by_method(self.folder / "variants")

    def grid(self):
        return run_tables.perplexity_grid(self.folder / "grid")

    def essays(self):
        return run_tables.accuracy_by_method(self.folder / "essays")

    def scout(self):
        return run_tables.text_and_needles(self.folder / "scout-text", self.folder / "scout-essays")

    def learned(self):
        return run_tables.text_and_needles(self.folder / "learned-text", self.folder / "learned-essays")

    def longer(self):
        return run_tables.accuracy_by_method(self.folder / "longer")

    def near(self):
        return self.printed("near")

    def near_attended(self):
        return self.printed("near-attended")

    def far(self):
        return self.printed("far")

    def ablations(self):
        return self.printed("ablations")

    PARTS = ("accuracy", "tasks", "heads", "rules", "lengths", "blocks", "regret", "perplexity", "needles", "means", "shift", "flops", "near", "near_attended",
             "far", "ablations", "ruler", "text", "variants", "essays", "grid", "scout", "learned", "longer")


def main():
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    folder, page = sys.argv[1], Path(sys.argv[2])
    for path in (Path(folder), page):
        if not path.exists():
            raise SystemExit(f"model_tables.py: there is no '{path}'.")
    before = sys.argv[3] + " " if len(sys.argv) == 4 else ""
    measured, parts, lacks = Measured(folder), {}, []
    for name in Measured.PARTS:
        text = getattr(measured, name)()
        if text is None:
            lacks.append(before + name)
        else:
            parts[before + name] = lambda text=text: text
    if not parts:
        raise SystemExit(f"model_tables.py: '{folder}' has none of what measure_model.sh leaves: name its folder.")
    text = page.read_text(encoding="utf-8")
    left = [name for name in lacks if f"<!-- made: {name} -->" in text]
    if not left or any(f"<!-- made: {name} -->" in text for name in parts):
        page.write_text(Document({}, parts).fill(text), encoding="utf-8")
    if left:
        print(f"Left as they are, since {folder} lacks what they are made from: {', '.join(left)}.")


if __name__ == "__main__":
    main()
