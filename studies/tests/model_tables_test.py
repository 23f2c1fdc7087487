"""Tests of run_tables.py and model_tables.py: tables of two small runs, whose figures are made anew from single samples.

  python3 studies/tests/model_tables_test.py --tandem build/release/bin/tandem
"""
import json
import math
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "scripts"), str(Path(__file__).resolve().parents[2] / "tests/scripts")]
import model_tables
import program
import run_tables

METHODS = ["full", "fluxion:heads=oracle", "streaming:window=128", "tova:budget=128"]
BETAS = ["0.5", "1000000"]


def tandem(*arguments):
    subprocess.run([program.path, *arguments, "--model", "tiny", "--no-plot"], check=True, capture_output=True)


def lines_of(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def cells_of(text):
    """Rows of a Markdown table by their first cell, without the head."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.strip().split("\n")[2:]]
    return {row[0]: row[1:] for row in rows}


class TablesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.folder = Path(made.name)
        tandem("compare", "--methods", ",".join(METHODS), "--tasks", "single", "--lengths", "512", "--samples", "3", "--head-errors",
               "--out", str(cls.folder / "regret"))
        (cls.folder / "hgca-needles").symlink_to("regret")
        tandem("eval", "perplexity", "--windows", "2", "--context", "256", "--new", "32", "--methods",
               "full," + ",".join(f"hgca:device_kv=0.25,beta={beta}" for beta in BETAS), "--out", str(cls.folder / "hgca-perplexity"))

    def scores(self, method):
        return [s["score"] for s in lines_of(self.folder / "regret" / "samples.jsonl") if s["method"] == method]

    def test_accuracy_is_the_samples_and_differences_are_the_baselines(self):
        rows = cells_of(run_tables.accuracy_by_method(self.folder / "regret"))
        self.assertEqual(set(rows), set(METHODS))
        self.assertEqual(rows["full"][1], "")
        full = self.scores("full")
        for method in METHODS:
            scores = self.scores(method)
            self.assertTrue(rows[method][0].startswith(f"{100 * sum(scores) / 9:.1f} ["), rows[method])
            if method != "full":
                self.assertTrue(rows[method][1].startswith(f"{100 * (sum(scores) - sum(full)) / 9:+.1f} ["), rows[method])
        self.assertEqual(rows["streaming:window=128"][2:], ["192", "0"])  # with its 64 sinks

    def test_errors_of_heads_are_those_of_the_batches(self):
        row = cells_of(run_tables.regret(self.folder / "regret"))["fluxion:heads=oracle"]
        batches = lines_of(self.folder / "regret" / "errors.jsonl")
        heads = sum(b["heads"] for b in batches)
        self.assertGreater(heads, 0)
        self.assertEqual(row[3], f"{100 * sum(b['error'] for b in batches) / heads:.2f}")
        self.assertEqual(row[4], f"{100 * sum(b['above'][1] for b in batches) / heads:.2f}")  # of 5, 10, 20 and 50 %
        self.assertEqual(row[7], f"{100 * sum(b['attended'] for b in batches) / heads:.1f}")
        self.assertEqual(cells_of(run_tables.regret(self.folder / "regret"))["full"][3:], [""] * 5)

    def test_perplexities_are_the_windows(self):
        text = run_tables.perplexity_grid(self.folder / "hgca-perplexity")
        self.assertTrue(text.startswith("| device_kv | beta 0.5 | nothing is salient |\n"), text)
        windows = lines_of(self.folder / "hgca-perplexity" / "windows.jsonl")
        nll = {m: sum(w["nll"] for w in windows if w["method"] == m) / 2 for m in {w["method"] for w in windows}}
        for cell, beta in zip(cells_of(text)["0.25"], BETAS):
            mine = nll[f"hgca:device_kv=0.25,beta={beta}"]
            self.assertTrue(cell.startswith(f"{math.exp(mine):.3f} ({mine - nll['full']:+.4f} ["), cell)

    def test_perplexities_by_method_are_the_windows_best_first(self):
        rows = cells_of(run_tables.perplexity_by_method(self.folder / "hgca-perplexity"))
        windows = lines_of(self.folder / "hgca-perplexity" / "windows.jsonl")
        nll = {m: sum(w["nll"] for w in windows if w["method"] == m) / 2 for m in {w["method"] for w in windows}}
        self.assertEqual(list(rows), ["full", *sorted((m for m in nll if m != "full"), key=nll.get)])
        for method, row in rows.items():
            self.assertEqual(row[0], f"{math.exp(nll[method]):.2f}")
            self.assertEqual(row[1].split(" [")[0], "" if method == "full" else f"{nll[method] - nll['full']:+.3f}")

    def test_a_text_and_needles_stand_in_one_row(self):
        names = ["full", "hgca:device_kv=0.25,beta=0.5"]
        needles = self.folder / "needles"
        tandem("compare", "--methods", ",".join(names), "--tasks", "single", "--lengths", "512", "--samples", "2", "--out", str(needles))
        text = json.loads((self.folder / "hgca-perplexity" / "summary.json").read_text(encoding="utf-8"))
        text["methods"] = [m for m in text["methods"] if m["method"] in names]
        (self.folder / "some").mkdir()
        (self.folder / "some" / "summary.json").write_text(json.dumps(text), encoding="utf-8")
        rows = cells_of(run_tables.text_and_needles(self.folder / "some", needles))
        self.assertEqual(list(rows), [f"`{name}`" for name in names])
        losses, scores = cells_of(run_tables.perplexity_by_method(self.folder / "some")), cells_of(run_tables.accuracy_by_method(needles))
        for name in names:
            self.assertEqual(rows[f"`{name}`"], [*losses[name][:2], losses[name][3], *scores[name][:2], scores[name][3]])
        self.assertIsNone(run_tables.text_and_needles(self.folder / "some", self.folder / "nothing"))

    def test_what_is_the_same_in_all_windows_has_no_interval(self):
        summary = json.loads((self.folder / "hgca-perplexity" / "summary.json").read_text(encoding="utf-8"))
        summary["methods"][1]["nll_difference"] = {"n": 3, "value": 0.0, "interval": None, "interval_kind": None}
        made = self.folder / "alike"
        made.mkdir()
        (made / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        row = cells_of(run_tables.perplexity_by_method(made))[summary["methods"][1]["method"]]
        self.assertEqual(row[1], "+0.000, the same in all 3")

    def test_many_cosines_are_two_and_a_range(self):
        file = self.folder / "heads-2k.json"
        subprocess.run([program.path, "profile", "heads", "--model", "tiny", "--length", "512", "--tasks", "niah_single_1", "--out", str(file)],
                       check=True, capture_output=True)
        profile = json.loads(file.read_text(encoding="utf-8"))
        each = [layer["mean"]["layer_ahead_cosine"]["next"] for layer in profile["layers"][1:]]
        row = cells_of(model_tables.Measured(self.folder).heads())["cosine of layer-ahead query and query, by layer from 1 on"]
        self.assertEqual(row[0], ", ".join(f"{c:.2f}" for c in each))
        profile["layers"] += profile["layers"][-1:] * 9
        file.write_text(json.dumps(profile), encoding="utf-8")
        row = cells_of(model_tables.Measured(self.folder).heads())["cosine of layer-ahead query and query, by layer from 1 on"]
        mean = (each[0] + 10 * each[1]) / 11
        self.assertEqual(row[0], f"{each[0]:.2f}, {each[1]:.2f}, then {each[1]:.2f} to {each[1]:.2f} (mean {mean:.3f})")
        self.assertEqual(len(each), 2)
        file.unlink()

    def test_readings_of_queries_are_means_and_the_best_are_counted(self):
        file = self.folder / "shift.json"
        tandem_profile = [program.path, "profile", "query-shift", "--model", "tiny", "--length", "256", "--samples", "2", "--tasks",
                          "niah_single_1,vt", "--out", str(file)]
        subprocess.run(tandem_profile, check=True, capture_output=True)
        profile = json.loads(file.read_text(encoding="utf-8"))
        rows = [line.split("|") for line in run_tables.query_shift(file).strip().split("\n")[2:]]
        self.assertEqual(2 * len(rows), len(profile["variants"]))
        best = [int(n) for row in rows for n in row[5].split("/")]
        self.assertGreaterEqual(sum(best), 4)  # prompts; two readings may be the best alike
        for row in rows:
            options = f"weights={row[1].strip(' `')},windows={row[2].strip()},rope=pre"
            variant = next(v for v in profile["variants"] if v["options"] == options)
            mean = 100 * sum(variant["with_shift"]) / len(variant["with_shift"])
            self.assertTrue(row[3].strip().startswith(f"{mean:.1f} ± "), row)

    def test_flops_are_the_papers_formula(self):
        rows = cells_of(run_tables.flops(self.folder / "regret"))
        self.assertEqual(rows["full"][3], f"{3 * 4 * 4 * 64 * 512 * 1e-6:.2f}")  # appendix B: l 4 q h T
        self.assertEqual(rows["tova:budget=128"][3], f"{3 * 4 * 64 * (4 * 128 + 2 * 512) * 1e-6:.2f}")  # every key is scored
        self.assertEqual(rows["fluxion:heads=oracle"][3], "-")  # has no formula

    def test_a_page_gets_what_the_folder_has_and_keeps_the_rest(self):
        page = self.folder / "page.md"
        page.write_text("Before\n<!-- made: needles -->\nold\n<!-- end -->\nbetween\n<!-- made: flops -->\nkept\n<!-- end -->\n", encoding="utf-8")
        with mock.patch.object(sys, "argv", ["model_tables.py", str(self.folder), str(page)]), mock.patch("builtins.print") as said:
            model_tables.main()
        text = page.read_text(encoding="utf-8")
        self.assertEqual(text, "Before\n<!-- made: needles -->\n" + run_tables.accuracy_by_method(self.folder / "regret") +
                         "<!-- end -->\nbetween\n<!-- made: flops -->\nkept\n<!-- end -->\n")
        self.assertIn("flops", said.call_args.args[0])

    def test_a_page_of_which_the_folder_has_nothing_stays(self):
        page = self.folder / "other.md"
        page.write_text("<!-- made: shift -->\nkept\n<!-- end -->\n", encoding="utf-8")
        with mock.patch.object(sys, "argv", ["model_tables.py", str(self.folder), str(page)]), mock.patch("builtins.print") as said:
            model_tables.main()
        self.assertIn("kept", page.read_text(encoding="utf-8"))
        self.assertIn("shift", said.call_args.args[0])

    def test_lengths_that_only_some_tasks_have_leave_the_others_cells_empty(self):
        def run(name, cells):
            made = self.folder / name
            made.mkdir()
            each = [{"task": task, "length": n, "accuracy": a, "interval": [a, 1]} for task, n, a in cells]
            (made / "summary.json").write_text(json.dumps({"complete": True, "methods": [{"cells": each}]}), encoding="utf-8")

        measured = model_tables.Measured(self.folder)
        self.assertIsNone(measured.accuracy())
        run("accuracy", [("vt", 1024, 0.5), ("cwe", 1024, 0.25)])
        self.assertEqual(cells_of(measured.accuracy()), {"vt": ["50 [50, 100]"], "cwe": ["25 [25, 100]"]})
        run("accuracy-16k", [("vt", 16384, 0.75)])
        self.assertTrue(measured.accuracy().startswith("| task | 1K | 16K |\n"))
        self.assertEqual(cells_of(measured.accuracy()), {"vt": ["50 [50, 100]", "75 [75, 100]"], "cwe": ["25 [25, 100]", ""]})

    def test_what_is_missing_makes_no_table(self):
        for make in (run_tables.regret, run_tables.accuracy_by_method, run_tables.perplexity_grid, run_tables.perplexity_by_method, run_tables.query_shift, run_tables.flops):
            self.assertIsNone(make(self.folder / "nothing"))

    def test_a_run_that_is_not_finished_is_an_error(self):
        part = self.folder / "part"
        part.mkdir()
        summary = json.loads((self.folder / "regret" / "summary.json").read_text(encoding="utf-8"))
        (part / "summary.json").write_text(json.dumps({**summary, "complete": False}), encoding="utf-8")
        with self.assertRaisesRegex(SystemExit, "not finished"):
            run_tables.accuracy_by_method(part)


if __name__ == "__main__":
    program.main()
