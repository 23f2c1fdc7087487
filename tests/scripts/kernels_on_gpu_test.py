"""Tests of scripts/kernels_on_gpu.sh: which programs it runs, and what it keeps of those that fail or hang. Shell scripts
stand in for the programs."""
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Notes how it was called and writes its file. DEED says what it does to which calls: "fails:WORDS" or "hangs:WORDS".
PROGRAM = """#!/bin/bash
file= words="$(basename "$0") $*"
echo "$words" >>"$(dirname "$0")/calls"
[ "$1" = info ] && echo "  CUDA parts     yes"
while [ $# -gt 0 ]; do
  case $1 in
    --out) file=$2 ;;
    --export) file=$2.ncu-rep ;;
    --gtest_output=json:*) file=${1#*:} ;;
  esac
  shift
done
if [ -n "$DEED" ] && [[ $words == *"${DEED#*:}"* ]]; then
  if [ "${DEED%%:*}" = fails ]; then exit 3; fi
  echo '{}' >"$file"
  exec sleep 60
fi
[ -z "$file" ] || echo '{}' >"$file"
"""
PROGRAMS = ("tandem", "tandem-probe", "test_kernel_cases", "test_kernels_cuda", "test_cuda_device_gpu", "test_methods_cuda",
            "ncu", "compute-sanitizer")


class KernelsOnGpuTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.out = self.folder / "out"
        (self.folder / "bin").mkdir()
        shutil.copy(ROOT / "scripts/kernels_on_gpu.sh", self.folder)
        for name in PROGRAMS:
            (self.folder / "bin" / name).write_text(PROGRAM)
            (self.folder / "bin" / name).chmod(0o755)

    def call(self, *words, **more):
        clean = {name: value for name, value in os.environ.items() if name not in ("PACK", "LIMIT", "DEED")}
        return subprocess.run([self.folder / "kernels_on_gpu.sh", *words], capture_output=True, text=True, timeout=100,
                              env={**clean, "PATH": f"{self.folder}/bin:{clean['PATH']}", "OUT": str(self.out), **more})

    def calls(self, words):
        return [call for call in (self.folder / "bin/calls").read_text().splitlines() if words in call]

    def verdicts(self):
        return {step: found["verdict"] for step, found in json.loads((self.out / "summary.json").read_text()).items()}

    def test_the_first_call_is_the_default_and_fits(self):
        done = self.call()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(list(self.verdicts()), ["info", "tests", "probe", "bench", "ncu", "decode", "profile"])
        batches = self.calls("bench decode")
        self.assertEqual(len(batches), 2)
        for call, batch in zip(batches, ("--batch 8", "--batch 1")):
            self.assertIn(batch, call)
            self.assertIn("full,quest:budget=4096,gpu-fetch,", call)
        calibrate, = self.calls("calibrate")
        self.assertEqual(calibrate.count("--probe"), 3)
        self.assertIn("kernels.json", calibrate)

    def test_limits_of_a_call_are_the_sum_of_its_steps(self):
        text = (ROOT / "scripts/kernels_on_gpu.sh").read_text()
        most = {step: int(seconds) for step, seconds in
                (word.strip("()").lstrip("[").split("]=") for word in text.split("declare -A cap=")[1].split(")")[0].split())}
        for name, limit in (("first", 570), ("second", 200)):
            steps = text.split(f"\n{name}=(")[1].split(")")[0].split()
            self.assertLessEqual(sum(most[step] for step in steps), limit)

    def test_the_second_call(self):
        self.assertEqual(self.call("second").returncode, 0)
        self.assertEqual(list(self.verdicts()), ["connections", "batched", "memcheck", "synccheck", "engine"])
        self.assertEqual(set(self.verdicts().values()), {"ok"})
        self.assertEqual(len([call for call in self.calls("bench kernels") if call.startswith("tandem")]), 2)

    def test_where_methods_fail_full_runs_alone(self):
        done = self.call("decode", DEED="fails:hgca")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(self.calls("--method full ")), 2)
        self.assertEqual(self.verdicts(), {"decode": "failed: exit code 1"})
        self.assertTrue((self.out / "decode-batch8.json").exists())

    def test_what_a_hanging_program_has_written_is_packed(self):
        done = self.call("decode", "profile", DEED="hangs:--batch 8", PACK="1", LIMIT="25")
        self.assertEqual(done.returncode, 1)
        self.assertIn("Not done after", done.stdout)
        with tarfile.open(self.out / "kernels.tar.gz") as packed:
            self.assertIn("./decode-batch8.json", packed.getnames())
        self.assertEqual(sorted(file.name for file in self.out.iterdir()), ["kernels.tar.gz", "summary.json"])

    def test_unknown_steps_are_refused(self):
        done = self.call("nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'nothing'", done.stderr)


if __name__ == "__main__":
    unittest.main()
