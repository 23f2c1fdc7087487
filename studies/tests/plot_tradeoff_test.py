"""Tests of studies/scripts/plot_tradeoff.py; those of the drawing are skipped, saying so, where matplotlib is not installed.

  python3 studies/tests/plot_tradeoff_test.py
"""
import contextlib
import importlib.util
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import plot_tradeoff

NO_MATPLOTLIB = importlib.util.find_spec("matplotlib") is None


def cell(accuracy, baseline):
    out = {"accuracy": accuracy, "interval": [accuracy - 0.1, accuracy + 0.1], "n": 10}
    return out if baseline else {**out, "difference": {"value": accuracy - 0.5, "interval": [-0.125, 0.0625]}}


def write_run(folder, methods):
    """methods: label, accuracy, bytes that the CPU reads and that cross the link in a step."""
    entries = []
    for i, (label, accuracy, dram, h2d) in enumerate(methods):
        latency = {"bytes_per_token": {"hbm": 9, "dram": dram, "h2d": h2d, "d2h": 9}, "tpot_ms": 1.5}
        entries.append({"method": label, "overall": cell(accuracy, i == 0), "latency": latency,
                        "lengths": [{"length": 1024, **cell(accuracy / 2, i == 0)}],
                        "latency_by_length": [{"length": 1024, **latency}]})
    run = {"benchmark": "ruler", "model": "m", "clock": "simulated", "methods": entries}
    (folder / "summary.json").write_text(json.dumps(run))
    (folder / "manifest.json").write_text(json.dumps({"lengths": [1024], "seed": 3, "git_commit": "c", "other": 1}))


class PlotTradeoffTest(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)

    def run_script(self, *arguments):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), mock.patch.object(sys, "argv", ["plot_tradeoff.py", str(self.folder), *arguments]):
            plot_tradeoff.main()
        return out.getvalue()

    def test_says_who_reads_no_more_and_is_no_less_accurate(self):
        write_run(self.folder, [("full", 0.5, 0, 0), ("a", 0.25, 1024, 1024), ("b:x=1", 0.25, 1024, 0), ("b:x=2", 0.5, 2048, 1024),
                                ("c", 0.25, 2048, 0)])
        lines = self.run_script("--json", str(self.folder / "out.json")).splitlines()
        self.assertEqual(lines[2], "| full | 50.0 |  | 0.0 |  | 1.5000 |  |")
        self.assertEqual(lines[3], "| a | 25.0 | -25.0 [-12.5, +6.2] | 2.0 |  | 1.5000 | b:x=1 |")
        self.assertEqual([line.split("|")[-2].strip() for line in lines[4:]], ["", "", "b:x=1"])
        out = json.loads((self.folder / "out.json").read_text())
        self.assertEqual(out["made"], {"git_commit": "c", "lengths": [1024], "seed": 3})
        self.assertEqual([m["host_bytes"] for m in out["methods"]], [0, 2048, 1024, 3072, 2048])
        self.assertEqual(out["lengths"]["1024"][3]["accuracy"], 25)
        with self.assertRaisesRegex(SystemExit, "has no length 2048"):
            self.run_script("--length", "2048")

    def test_each_length_weighs_the_same(self):
        """Not each step: summary.json's figures of all lengths, those of 1024 here, are as if nearly all had been written there."""
        write_run(self.folder, [("full", 0.5, 0, 0), ("a", 0.5, 2048, 0), ("b", 0.25, 4096, 0)])
        run = json.loads((self.folder / "summary.json").read_text())
        for method in run["methods"]:
            short, = method["latency_by_length"]
            long = {**short, "length": 8192, "tpot_ms": 3.5, "bytes_per_token": {**short["bytes_per_token"], "dram": 7168, "h2d": 1024}}
            method["latency_by_length"].append(long)
            method["lengths"].append({**method["lengths"][0], "length": 8192})
        (self.folder / "summary.json").write_text(json.dumps(run))
        (self.folder / "manifest.json").write_text(json.dumps({"lengths": [1024, 8192]}))
        samples = [{"task": "t", "length": n, "index": 0, "method": m["method"], "score": 1} for n in (1024, 8192) for m in run["methods"]]
        (self.folder / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
        note = "of all lengths together: the mean of the lengths' means."
        lines = self.run_script("--json", str(self.folder / "out.json")).splitlines()
        self.assertEqual([line.split("|")[4].strip() for line in lines[2:5]], ["4.0", "5.0", "6.0"])  # with 8 KiB at 8192
        self.assertEqual(lines[2].split("|")[6].strip(), "2.5000")
        self.assertEqual(lines[5:], ["", f"Bytes and TPOT {note}"])
        self.assertEqual([m["host_bytes"] for m in json.loads((self.folder / "out.json").read_text())["methods"]], [4096, 5120, 6144])
        lines = self.run_script("--by-length").splitlines()
        self.assertEqual([line.split("|")[-3:-1] for line in lines[2:5]], [[" 2 ", " 4 "], [" 8 ", " 8 "], [" 5 ", " 6 "]])
        self.assertEqual(lines[5:], ["", f"Bytes {note}"])
        self.assertNotIn("together", self.run_script("--length", "8192"))

    @unittest.skipIf(NO_MATPLOTLIB, "not installed: matplotlib")
    def test_a_method_that_reads_nothing_is_drawn(self):
        import matplotlib.pyplot as plt
        for least, scale in ((0, "linear"), (1024, "log")):
            write_run(self.folder, [("full", 0.5, 0, 0), ("streaming", 0.25, least, 0), ("b", 0.5, 1 << 20, 0)])
            self.run_script(str(self.folder / "a.svg"))
            self.assertEqual(plt.gcf().axes[0].get_xscale(), scale)
            self.assertIn("<svg", (self.folder / "a.svg").read_text())
            plt.close("all")

    @unittest.skipIf(NO_MATPLOTLIB, "not installed: matplotlib")
    def test_the_plot_is_drawn_again_from_the_kept_numbers(self):
        write_run(self.folder, [("full", 0.5, 0, 0), ("a:x=1", 0.25, 1024, 0), ("a:x=2", 0.375, 2048, 0)])
        manifest = json.loads((self.folder / "manifest.json").read_text())
        (self.folder / "manifest.json").write_text(json.dumps({**manifest, "protocol_id": "ruler/v1", "model": "m", "clock": "simulated"}))
        self.run_script(str(self.folder / "a.svg"), "--json", str(self.folder / "a.json"), "--lines", "x")
        with mock.patch.object(sys, "argv", ["plot_tradeoff.py", str(self.folder / "a.json"), str(self.folder / "b.svg"), "--lines", "x"]):
            plot_tradeoff.main()
        self.assertEqual((self.folder / "a.svg").read_text(), (self.folder / "b.svg").read_text())

    @unittest.skipIf(NO_MATPLOTLIB, "not installed: matplotlib")
    def test_a_method_alone_is_a_sentence(self):
        write_run(self.folder, [("full", 0.5, 0, 0)])
        with self.assertRaisesRegex(SystemExit, "the run has one method, full: there is nothing to draw beside it"):
            self.run_script(str(self.folder / "a.svg"))


if __name__ == "__main__":
    unittest.main()
