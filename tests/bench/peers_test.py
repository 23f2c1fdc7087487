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
batch=1
while [ $# -gt 0 ]; do
  [ "$1" = --out ] && out=$2; [ "$1" = decode ] && rate=DECODE; [ "$1" = prefill ] && rate=PREFILL; [ "$1" = --batch ] && batch=3
  shift
done
cat >"$out" <<END
{"tandem_version": "1.0", "git_commit": "abc", "isa": "avx512", "rows": [{"tokens_per_second": $((rate * batch))}],
 "loading": {"seconds": LOADING}, "memory": {"weight_bytes": 1000, "device_kv_bytes": 1000000, "host_kv_bytes": 0, "peak_bytes": PEAK}}
END
"""
PYTHON = """#!/bin/sh
echo "$(basename "$1" .py | sed s/peers_//) $* $OMP_NUM_THREADS" >>LOG
echo "Loading"
rate=10
[ "$7" = PA ] && rate=11
echo "{\\"tokens_per_second\\": $rate, \\"load_seconds\\": 2, \\"peak_rss_bytes\\": 3000000000, \\"versions\\": {}}"
"""
LLAMA = """#!/bin/sh
echo "llama $*" >>LOG
rate=20
case "$*" in *"-fa 1 -ctk bf16"*) rate=21;; esac
echo "[{\\"avg_ts\\": $rate, \\"build_commit\\": \\"def\\"}]"
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
        (self.folder / "model/model.safetensors").write_bytes(bytes(1000))
        (self.folder / "openvino").mkdir()
        (self.folder / "weights.gguf").touch()

    def program(self, name, text):
        path = self.folder / name
        path.write_text(text.replace("LOG", str(self.log)))
        path.chmod(0o755)
        return path

    def peers(self, *more, decode=30, prefill=30, loading=0, peak=3e8, llama=LLAMA):
        tandem = TANDEM.replace("DECODE", str(decode)).replace("PREFILL", str(prefill))
        tandem = tandem.replace("LOADING", str(loading)).replace("PEAK", str(int(peak)))
        return subprocess.run(
            [sys.executable, ROOT / "bench/peers.py", "--model", self.folder / "model",
             "--tandem", self.program("tandem", tandem), "--python", self.program("python", PYTHON),
             "--openvino", self.folder / "openvino", "--llama-bench", self.program("llama-bench", llama),
             "--gguf", self.folder / "weights.gguf", "--rounds", "2", "--noise", "1000", *map(str, more)],
            capture_output=True, text=True)

    def lines(self, what):
        return [line for line in self.log.read_text().splitlines() if line.startswith(what)]

    def test_tells_medians_and_ratios(self):
        out = self.folder / "out.json"
        done = self.peers("--decode", "512", "--prefill", "4K", "--out", out, decode=30, prefill=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        decode, prefill = done.stdout.split("prefill 4096 tokens")
        self.assertIn("| openvino | 11.00 | 11.00 | 11.00 | 0.0 | 2.73 | 2.00 | 3.00 | PA |", decode)
        self.assertIn("| transformers | 10.00 | 10.00 | 10.00 | 0.0 | 3.00 | 2.00 | 3.00 |  |", decode)
        self.assertIn("| llama.cpp | 21.00 | 21.00 | 21.00 | 0.0 | 1.43 | - |", decode)
        self.assertIn("| -fa 1 -ctk bf16 -ctv bf16 |", prefill)
        self.assertIn("| decode 512, times llama.cpp | 1.43 | 1.3 | yes |", done.stdout)
        self.assertIn("| decode 512, batch 4 times one sequence | 3.00 | 2.5 | yes |", done.stdout)
        told = json.loads(out.read_text())
        figure = told["figures"][0]
        self.assertEqual(figure["engines"]["tandem, batch 4"]["tokens_per_second"], [90, 90])
        self.assertEqual(figure["fastest_peer"], "llama.cpp")
        self.assertEqual(len(figure["read_seconds"]), 2)
        self.assertEqual(told["versions"]["tandem"], {"tandem": "1.0", "commit": "abc", "isa": "avx512"})
        self.assertTrue(all(v["met"] for v in told["verdicts"]), told["verdicts"])
        self.assertTrue(told["cpu"])

    def test_engines_take_turns_with_the_same_work(self):
        self.peers("--decode", "1K", "--prefill", "", "--steps", 9, "--threads", 1, "--llama-options=--poll 0")
        tried, measured = self.log.read_text().splitlines()[:6], self.log.read_text().splitlines()[6:]
        self.assertTrue(all(line.split()[0] in ("openvino", "llama") for line in tried), tried)
        self.assertIn("-n 8 -d 1024", tried[-1])
        self.assertEqual([line.split()[0] for line in measured],
                         ["tandem", "openvino", "transformers", "llama", "openvino", "transformers", "llama", "tandem"])
        self.assertIn("bench decode --context 1024 --steps 9", measured[0])
        self.assertIn("--threads 1 --rounds 1", measured[0])
        self.assertTrue(measured[1].endswith("decode 1024 9 1 PA 1"), measured[1])
        self.assertTrue(measured[2].endswith("decode 1024 9 1 1"), measured[2])
        self.assertIn("-t 1 -r 1 -o json -p 0 -n 9 -d 1024 -fa 1 -ctk bf16 -ctv bf16 --poll 0", measured[3])

    def test_options_are_tried_at_each_length_but_long_prompts(self):
        self.peers("--decode", "", "--prefill", "2K,4K,16K")
        self.assertEqual(len(self.lines("llama")), 2 * 4 + 3 * 2)
        self.assertEqual(len([line for line in self.lines("llama") if "-p 16384" in line]), 2)

    def test_missed_targets_are_told(self):
        done = self.peers("--decode", "512", "--prefill", "", decode=21, loading=1e6)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Targets missed: decode 512, times llama.cpp: 1.00, not 1.3; loading, times", done.stderr)
        memory = self.peers("--decode", "512", "--prefill", "", decode=60, peak=302e6)
        self.assertEqual(memory.returncode, 1)
        self.assertIn("Targets missed: peak memory beside weights and KV, MB: 301.00, not 300.", memory.stderr)

    def test_a_busy_machine_is_not_judged(self):
        done = self.peers("--noise", -1, "--decode", "512", "--prefill", "", decode=21)
        self.assertEqual(done.returncode, 3)
        self.assertIn("No judgement", done.stderr)
        self.assertIn("| llama.cpp |", done.stdout)

    def test_engines_can_be_left_out(self):
        done = self.peers("--engines", "tandem,llama.cpp", "--decode", "", prefill=19)
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("transformers", done.stdout + self.log.read_text())

    def test_engines_without_their_options_are_left_out_with_a_line(self):
        done = subprocess.run(
            [sys.executable, ROOT / "bench/peers.py", "--model", self.folder / "model", "--tandem",
             self.program("tandem", TANDEM.replace("DECODE", "5").replace("LOADING", "0").replace("PEAK", "9")),
             "--gguf", self.folder / "weights.gguf", "--rounds", "1", "--noise", "1000", "--decode", "512", "--prefill", ""],
            capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("openvino is left out: --openvino and --openvino-python not given.\n", done.stderr)
        self.assertIn("transformers is left out: --python not given.\n", done.stderr)
        self.assertIn("llama.cpp is left out: --llama-bench not given.\n", done.stderr)
        self.assertIn("batch 4 times one sequence", done.stdout)

    def test_a_failing_engine_ends_the_run_with_its_words(self):
        done = self.peers(llama=BROKEN)
        self.assertEqual(done.returncode, 3)
        self.assertIn("no such model", done.stderr)

    def test_bad_usage_is_a_sentence(self):
        for arguments, says in [(("--engines", "tandem,vllm"), "'vllm' is none of"), (("--rounds", 0), "at least 1"),
                                (("--decode", "8X"), "not a number of tokens"),
                                (("--decode", "", "--prefill", ""), "give a length"),
                                (("--gguf", "/no/such.gguf"), "--gguf is /no/such.gguf")]:
            done = self.peers(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(says, done.stderr)
            self.assertFalse(self.log.exists())


if __name__ == "__main__":
    unittest.main()
