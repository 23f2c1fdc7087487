"""Tests of train_on_gpu.sh: what it does of a training that ends, dies or hangs. A shell script stands in for Python."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Notes how it was called, then does what the next line of `deeds` says; without one it finishes.
PYTHON = """#!/bin/bash
[ "$1" = studies/recipe/train.py ] || exit 0
here=$(dirname "$0")
echo "$*" >>"$here/calls"
deed=$(head -n 1 "$here/deeds")
sed -i 1d "$here/deeds"
while [ $# -gt 0 ]; do [ "$1" = --out ] && out=$2; shift; done
case $deed in
  dies) echo Traceback; exit 1 ;;
  steps-and-dies) touch "$out/beat"; exit 1 ;;
  hangs) sleep 60 ;;
  steps-and-hangs) touch "$out/beat"; sleep 60 ;;
  refuses) echo "train.py: the plan has no stage"; exit 1 ;;
  *) touch "$out/beat"; echo finished ;;
esac
"""


class TrainOnGpuTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.python = self.folder / "python"
        self.python.write_text(PYTHON)
        self.python.chmod(0o755)
        (self.folder / "deeds").touch()
        self.config = self.folder / "plan.json"
        self.config.write_text("{}")

    def call(self, *words, **more):
        clean = {name: value for name, value in os.environ.items() if name not in ("OUT", "CONFIG", "TEXT", "INIT", "COMPILE", "WITHIN")}
        return subprocess.run([ROOT / "studies/recipe/train_on_gpu.sh", *words], capture_output=True, text=True, timeout=60,
                              env={**clean, "RUN": str(self.folder / "run"), **more})

    def start(self, *deeds, **more):
        (self.folder / "deeds").write_text("".join(deed + "\n" for deed in deeds))
        return self.call("start", "1", PYTHON=str(self.python), CONFIG=str(self.config), STALL="2", **more)

    def calls(self):
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def test_one_that_finishes_is_called_once(self):
        done = self.start("finishes")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("training is finished", done.stdout)
        self.assertEqual(len(self.calls()), 1)
        self.assertIn("--compile", self.calls()[0])

    def test_one_that_dies_before_its_first_step_goes_on_without_compiling(self):
        done = self.start("dies")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(["--compile" in call for call in self.calls()], [True, False])
        self.assertIn("Traceback", done.stderr)

    def test_one_that_has_made_steps_goes_on_as_it_was(self):
        self.assertEqual(self.start("steps-and-dies").returncode, 0)
        self.assertEqual(["--compile" in call for call in self.calls()], [True, True])

    def test_one_that_hangs_is_killed(self):
        for deed, compiled in (("hangs", False), ("steps-and-hangs", True)):
            (self.folder / "calls").unlink(missing_ok=True)
            (self.folder / "run/train.log").unlink(missing_ok=True)
            done = self.start(deed)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("no step for 2 s", done.stderr)
            self.assertEqual(["--compile" in call for call in self.calls()], [True, compiled])

    def test_it_is_tried_three_times_in_all(self):
        done = self.start("dies", "dies", "dies", "dies")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(self.calls()), 3)
        self.assertIn("training ended early", done.stderr)

    def test_what_train_py_refuses_is_final(self):
        self.assertEqual(self.start("refuses").returncode, 1)
        self.assertEqual(len(self.calls()), 1)

    def test_missing_files_are_told_before_anything_runs(self):
        text, init = self.folder / "text.txt", self.folder / "init"
        for more, missing in (({"TEXT": str(text)}, "text.txt"), ({"INIT": str(init)}, "init/config.json")):
            done = self.start("finishes", **more)
            self.assertEqual(done.returncode, 2)
            self.assertIn(missing, done.stderr)
        init.mkdir()
        for name in ("config.json", "training.json", "tokenizer.model"):
            (init / name).write_text("x")
        self.assertIn("no model*.safetensors", self.start("finishes", INIT=str(init)).stderr)
        self.assertEqual(self.calls(), [])

    def test_how_an_earlier_one_ended_says_nothing_of_the_next(self):
        self.assertEqual(self.start("refuses").returncode, 1)
        (self.folder / "deeds").write_text("dies\n")
        self.assertEqual(self.call("wait", "1").returncode, 0)
        self.assertEqual(len(self.calls()), 3)

    def test_a_start_that_goes_on_remembers_too(self):
        self.assertEqual(self.start("refuses", WITHIN="5").returncode, 1)
        (self.folder / "run/last.pt").touch()
        self.assertEqual(self.call("start", "1").returncode, 0)
        self.assertIn("--within", self.calls()[1])

    def test_later_calls_remember_what_the_first_was_given(self):
        text = self.folder / "text.txt"
        text.write_text("A sentence.\n")
        self.assertEqual(self.start("refuses", TEXT=str(text), WITHIN="5").returncode, 1)
        self.assertEqual(self.call("wait", "1").returncode, 0)
        first, second = self.calls()
        self.assertEqual(first.split("--within")[0], second.split("--within")[0])
        self.assertIn(str(text), second)
        self.assertIn("--within", second)


if __name__ == "__main__":
    unittest.main()
