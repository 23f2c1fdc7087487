"""Tests of bench/peers.py with small programs in the place of the engines.

  python3 tests/bench/peers_test.py
"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Each writes its arguments to a log and answers as the engine would.
TANDEM = """#!/bin/sh
echo "tandem $*" >>LOG
while [ $# -gt 0 ]; do [ "$1" = --out ] && out=$2; [ "$1" = decode ] && rate=DECODE; [ "$1" = prefill ] && rate=PREFILL; shift; done
echo "{\\"tokens_per_second\\": $rate}" >"$out"
"""
PYTHON = """#!/bin/sh
echo "transformers $* $OMP_NUM_THREADS" >>LOG
echo "Loading"
echo '{"tokens_per_second": 10}'
"""
LLAMA = """#!/bin/sh
echo "llama $*" >>LOG
echo '[{"avg_ts": 20.0}]'
"""
BROKEN = """#!/bin/sh
echo "no such model" >&2
exit 1
"""


class PeersTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.log = self.folder / "log"
        (self.folder / "model").mkdir()
        (self.folder / "weights.gguf").touch()

    def program(self, name, text):
        path = self.folder / name
        path.write_text(text.replace("LOG", str(self.log)))
        path.chmod(0o755)
        return path

    def peers(self, *more, decode=30, prefill=30, llama=LLAMA):
        tandem = self.program("tandem", TANDEM.replace("DECODE", str(decode)).replace("PREFILL", str(prefill)))
        return subprocess.run(
            [sys.executable, ROOT / "bench/peers.py", "--model", self.folder / "model", "--tandem", tandem,
             "--python", self.program("python", PYTHON), "--llama-bench", self.program("llama-bench", llama),
             "--gguf", self.folder / "weights.gguf", "--rounds", "2", "--noise", "1000", *map(str, more)],
            capture_output=True, text=True)

    def test_tells_medians_and_ratios(self):
        out = self.folder / "out.json"
        done = self.peers("--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        decode, prefill = done.stdout.split("prefill 4096 tokens")
        self.assertIn("| transformers | 10.00 | 10.00 | 10.00 | 0.0 | 100.000 | 3.00 | 1.5 |", decode)
        self.assertIn("| llama.cpp | 20.00 | 20.00 | 20.00 | 0.0 | 50.000 | 1.50 | 1.1 |", decode)
        self.assertIn("| llama.cpp | 20.00 | 20.00 | 20.00 | 0.0 | 50.000 | 1.50 | 1.0 |", prefill)
        rates = json.loads(out.read_text())["tokens_per_second"]
        self.assertEqual(rates["decode"], {"tandem": [30, 30], "transformers": [10, 10], "llama.cpp": [20, 20]})

    def test_engines_take_turns_with_the_same_work(self):
        self.peers("--what", "decode", "--context", "1K", "--steps", 7, "--threads", 1, "--llama-options=-fa 1")
        lines = self.log.read_text().splitlines()
        self.assertEqual([line.split()[0] for line in lines],
                         ["tandem", "transformers", "llama", "transformers", "llama", "tandem"])
        self.assertIn("bench decode --context 1024 --steps 7", lines[0])
        self.assertIn("--threads 1 --rounds 1", lines[0])
        self.assertTrue(lines[1].endswith("decode 1024 7 1 1"), lines[1])
        self.assertIn("-t 1 -r 1 -o json -p 0 -n 7 -d 1024 -fa 1", lines[2])

    def test_a_missed_target_is_told(self):
        done = self.peers(decode=21)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Targets missed: decode: 1.05 times llama.cpp, not 1.1.", done.stderr)

    def test_a_busy_machine_is_not_judged(self):
        done = self.peers("--noise", -1, decode=21)
        self.assertEqual(done.returncode, 3)
        self.assertIn("No judgement", done.stderr)
        self.assertIn("| llama.cpp |", done.stdout)

    def test_engines_can_be_left_out(self):
        done = self.peers("--engines", "tandem,llama.cpp", "--what", "prefill", prefill=19)
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("transformers", done.stdout + self.log.read_text())

    def test_a_failing_engine_ends_the_run_with_its_words(self):
        done = self.peers(llama=BROKEN)
        self.assertEqual(done.returncode, 3)
        self.assertIn("no such model", done.stderr)

    def test_bad_usage_is_a_sentence(self):
        for arguments, says in [(("--engines", "tandem,vllm"), "'vllm' is none of"), (("--rounds", 0), "at least 1"),
                                (("--context", "8X"), "not a number of tokens"),
                                (("--gguf", "/no/such.gguf"), "--gguf is /no/such.gguf")]:
            done = self.peers(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(says, done.stderr)
            self.assertFalse(self.log.exists())


if __name__ == "__main__":
    unittest.main()
