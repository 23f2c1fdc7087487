"""Tests of `tandem completion bash`, as bash asks for it.

  python3 tests/scripts/completion_test.py --tandem build/release/bin/tandem
"""
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import program

ASK = 'eval "$1"; shift; COMP_WORDS=(tandem "$@"); COMP_CWORD=$#; _tandem; printf "%s\\n" "${COMPREPLY[@]}"'


class CompletionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.script = subprocess.run([program.path, "completion", "bash"], check=True, capture_output=True, text=True).stdout

    def offered(self, *words):
        done = subprocess.run(["bash", "-c", ASK, "bash", self.script, *words], check=True, capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_subcommands(self):
        self.assertEqual(self.offered("sim"), ["simulate"])
        self.assertIn("compare", self.offered(""))
        self.assertEqual(self.offered("eval", "longb"), ["longbench"])
        self.assertEqual(self.offered("help", "gen"), ["generate"])

    def test_options_are_the_command_s_own(self):
        self.assertEqual(self.offered("gate", "--base"), ["--baseline"])
        self.assertEqual(self.offered("compare", "--baseline"), [])
        self.assertIn("--depths", self.offered("eval", "needle", "--methods", "full", "--d"))

    def test_values(self):
        self.assertEqual(self.offered("compare", "--hw", "rtx-4"), ["rtx-4090"])
        self.assertEqual(self.offered("compare", "--hw", "=", "rtx-4"), ["rtx-4090"])
        self.assertEqual(self.offered("simulate", "--hw", "h100,rtx-4"), ["h100,rtx-4090"])
        self.assertEqual(self.offered("compare", "--methods", "full,que"), ["full,quest"])
        self.assertEqual(self.offered("methods", "hgc"), ["hgca"])
        self.assertEqual(self.offered("simulate", "--as", "llama-3.1-8"), ["llama-3.1-8b"])
        self.assertEqual(self.offered("compare", "--out", "comp"), [], "a file of the user's")

    def test_another_shell_is_refused(self):
        done = subprocess.run([program.path, "completion", "fish"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (2, "tandem: There is no completion for 'fish': give bash.\n"))


if __name__ == "__main__":
    program.main()
