"""Tests of `cmake --install`: what it leaves in a folder runs there without the source tree.

  python3 tests/scripts/install_test.py --build build/release --cmake cmake
"""
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = re.compile(r'"((?:engine|eval|hardware|methods|models)(?:/[\w.-]+)+)"')  # as data_path() gets it
SHIPPED = {".py", ".json", ""}
options = {"--build": str(ROOT / "build/release"), "--cmake": "cmake"}


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        subprocess.run([options["--cmake"], "--install", options["--build"], "--prefix", cls.folder], check=True, capture_output=True)
        # The program looks into the source tree last: here it finds another path there. Compilers put a short path into
        # instructions, eight bytes in each.
        cls.program = cls.folder / "bin/tandem"
        source = str(ROOT).encode()[:8]
        code = cls.program.read_bytes()
        assert source in code
        cls.program.write_bytes(code.replace(source, b"/" + b"-" * (len(source) - 1)))

    def run_there(self, *arguments):
        done = subprocess.run([self.program, *arguments], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_profiles_and_models_are_found(self):
        told = self.run_there("info")
        self.assertIn("rtx-4090", told)
        self.assertIn("model embedded", told)

    def test_steps_are_simulated(self):
        told = self.run_there("simulate", "--hw", "h200", "--methods", "full,quest", "--context", "1K", "--batch", "1", "--steps", "2",
                              "--quiet")
        self.assertIn("quest", told)

    def test_every_file_that_the_sources_name_is_there(self):
        named = set()
        for folder in ("cli", "engine", "eval", "methods"):
            for file in (ROOT / folder).rglob("*.[ch]*"):
                if file.suffix in (".cc", ".h"):
                    named.update(DATA.findall(file.read_text(encoding="utf-8")))
        named = {name for name in named if Path(name).suffix in SHIPPED and (ROOT / name).exists()}
        self.assertIn("eval/report/plot.py", named)
        self.assertIn("hardware/experiments", named)
        for name in named:
            there = self.folder / "share/tandem" / name
            self.assertTrue(any(there.iterdir()) if there.is_dir() else there.is_file(), name)


if __name__ == "__main__":
    for option in options:
        if option in sys.argv:
            at = sys.argv.index(option)
            options[option] = sys.argv[at + 1]
            del sys.argv[at:at + 2]
    unittest.main()
