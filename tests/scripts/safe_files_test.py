"""Tests of eval/report/safe_files.py, and of scripts that read a stranger's run with it."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "eval" / "report"))

import safe_files  # noqa: E402


class SafeFilesTest(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.folder = Path(self.holder.name)

    def tearDown(self):
        self.holder.cleanup()

    def test_texts_are_printable(self):  # as tests/engine/common/printable_test.cc
        self.assertEqual(safe_files.printable("a\x1b\u009b\u202e\n\U000e0041\ud800\u00e9 \u200d"),
                         "a\\u001b\\u009b\\u202e\\u000a\\udb40\\udc41\ufffd\u00e9 \u200d")
        self.assertEqual(safe_files.printable("a\n\tb\r", lines=True), "a\n\tb\\u000d")

    def test_texts_make_no_markdown(self):  # as tests/eval/report/markdown_test.cc
        for text, expected in (("niah_single_1 [1, 2] <0.001", "niah_single_1 [1, 2] <0.001"), ("a|b", "a\\|b"),
                               ("[x](http://e)", "[x\\](http\\://e)"), ("<b> &lt; *a* _b_", "\\<b> \\&lt; \\*a\\* \\_b\\_"),
                               ("[^1]: x", "\\[^1]: x"), ("www.e", "www\\.e"), ("\\[x]", "\\\\[x]")):
            self.assertEqual(safe_files.markdown_text(text), expected)

    def test_json_is_cleaned_all_through(self):
        (self.folder / "a.json").write_text(json.dumps({"k\x1b": ["\u202e", {"x": "\ud800"}, 1, None]}))
        self.assertEqual(safe_files.read_json(self.folder / "a.json"), {"k\\u001b": ["\\u202e", {"x": "\ufffd"}, 1, None]})

    def test_no_link_pipe_or_device_is_read(self):
        (self.folder / "secret").write_text("{}")
        (self.folder / "link").symlink_to("secret")
        os.mkfifo(self.folder / "pipe")
        for path in (self.folder / "link", self.folder / "pipe", self.folder, "/dev/zero"):
            with self.assertRaises(OSError, msg=str(path)):
                safe_files.read_bytes(path)
        with self.assertRaises(FileNotFoundError):
            safe_files.read_bytes(self.folder / "none")

    def test_a_link_is_replaced_and_not_written_through(self):
        (self.folder / "secret").write_text("mine")
        for name in ("plot.png", "plot.png.new"):
            (self.folder / name).symlink_to("secret")
        safe_files.write_bytes(self.folder / "plot.png", b"new")
        self.assertEqual((self.folder / "secret").read_text(), "mine")
        self.assertEqual((self.folder / "plot.png").read_text(), "new")
        self.assertEqual(sorted(os.listdir(self.folder)), ["plot.png", "secret"])

    def summary(self, name):
        latency = {"samples": 1, "steps": 1, "tpot_ms": None, "step_ms": 1.0, "busy_ms": 0.5, "idle_ms": 0.5,
                   "idle_ms_by_cause": {name: 0.5}, "bytes_per_token": {"hbm": 1.0, "dram": 1.0, "h2d": 1.0, "d2h": 1.0}}
        cell = {"n": 4, "accuracy": 0.5, "interval": [0.1, 0.9], "interval_kind": "Wilson score"}
        method = {"method": name, "overall": cell, "lengths": [{**cell, "length": 1024}],
                  "cells": [{**cell, "task": name, "length": 1024}], "latency": latency,
                  "latency_by_length": [{**latency, "length": 1024}]}
        return {"benchmark": name, "model": name, "clock": name, "complete": True, "methods": [method]}

    def run_script(self, script, *arguments):
        done = subprocess.run([sys.executable, str(ROOT / script), str(self.folder), *arguments], capture_output=True, text=True,
                              check=False)
        if done.returncode == 4:
            self.skipTest("matplotlib is not here")
        return done

    def test_a_plot_takes_names_for_text(self):
        name = "x$\\frac$ \x1b[0m <script>\u202e _"
        (self.folder / "summary.json").write_text(json.dumps(self.summary(name)))
        (self.folder / "secret").write_text("mine")
        (self.folder / "plot.svg").symlink_to("secret")
        done = self.run_script("eval/report/plot.py")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual((self.folder / "secret").read_text(), "mine")
        svg = (self.folder / "plot.svg").read_text()
        for raw in ("\x1b", "\u202e", "<script>"):
            self.assertNotIn(raw, svg)
        self.assertIn("$\\frac$", svg)

    def test_a_plot_without_matplotlib_is_a_sentence(self):
        (self.folder / "matplotlib.py").write_text("raise ImportError\n")
        for script in ("eval/match_bytes/plot_equal.py", "eval/needle/plot_needle.py", "eval/predict/plot_sweep.py",
                       "eval/report/plot.py", "eval/validate/plot_validation.py", "scripts/plot_reproduction.py"):
            done = subprocess.run([sys.executable, str(ROOT / script), str(self.folder)], capture_output=True, text=True, check=False,
                                  env={**os.environ, "PYTHONPATH": str(self.folder)})
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (4, "", "The plot was not drawn: python3 has no matplotlib (Debian package python3-matplotlib).\n"), script)

    def test_a_table_has_no_time_where_there_is_none(self):
        (self.folder / "summary.json").write_text(json.dumps(self.summary("a|b\n")))
        done = self.run_script("studies/scripts/plot_tradeoff.py")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| a\\|b\\u000a | 50.0 |  | 0.0 |  | - |  |", done.stdout)


if __name__ == "__main__":
    unittest.main()
